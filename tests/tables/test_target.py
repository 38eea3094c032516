"""Which tables a `--target` names."""

import pytest

from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.errors import UsageError
from backfill_assets.tables.graph import tables_named

RAW = ["raw/rejected_lines", "raw/outage_events"]
UPDATES = "staging/outage_updates"
OUTAGES = "staging/outages"
DAILY = "features/region_daily"
DAILY_V2 = "features/region_daily_v2"
HISTORY = "features/region_history"
LATE = "features/late_arrivals"


@pytest.mark.parametrize(
    ("target", "names"),
    [
        pytest.param("", [*RAW, UPDATES, OUTAGES, DAILY, DAILY_V2, HISTORY, LATE], id="all"),
        pytest.param(f" {DAILY}, {OUTAGES} ,", [OUTAGES, DAILY], id="names, inputs first"),
        pytest.param("raw/*", RAW, id="a pattern"),
        pytest.param("group:features", [DAILY, DAILY_V2, HISTORY, LATE], id="a layer"),
        pytest.param('key:"staging/out*"', [UPDATES, OUTAGES], id="as Dagster has it"),
        pytest.param(f"+{OUTAGES}", [*RAW, UPDATES, OUTAGES], id="with what is upstream"),
        pytest.param(
            f"{OUTAGES}+", [OUTAGES, DAILY, DAILY_V2, HISTORY], id="with what is downstream"
        ),
        pytest.param(f"+{DAILY}+", [*RAW, UPDATES, OUTAGES, DAILY, HISTORY], id="with both"),
        pytest.param(f"+group:staging,{HISTORY}", [*RAW, UPDATES, OUTAGES, HISTORY], id="several"),
    ],
)
def test_a_target_names_tables(target, names):
    assert [table.name for table in tables_named(target, TABLES)] == names


@pytest.mark.parametrize(
    "target",
    ["raw", "raw/outage", "group:raw/*", f"{RAW[0]},none*", "++raw/*", "tag:x", "2+raw/*", "+"],
)
def test_what_names_no_table_is_refused_with_the_tables_and_what_works(target, golden):
    with golden.raises(UsageError):
        tables_named(target, TABLES)


@pytest.mark.parametrize("typed", ["raw/outage_event", "+raw/outage_evnets", "outage_events+"])
def test_the_table_that_was_meant_is_asked_for(typed, golden):
    with golden.raises(UsageError):
        tables_named(typed, TABLES)
