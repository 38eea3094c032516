"""Four small days, and all 60 days of the sample, against an independent oracle: DuckDB over the
source files, every column's values.
"""

from datetime import date

import pytest

from backfill_assets.lake.history import latest
from backfill_assets.plan.late import arrivals_of
from tests.worlds.outages import (
    FOUR,
    LATE,
    NAMES,
    ORACLE_TABLES,
    REJECTED,
    ROWS_OF_SIXTY_DAYS,
    SAMPLE,
    UPDATES,
    differences,
    oracle_of,
)


@pytest.mark.parametrize("name", ORACLE_TABLES)
def test_every_value_of_four_small_days_is_the_oracles(once, name):
    with oracle_of(once.landing, FOUR[0], FOUR[-1]) as oracle:
        assert differences(oracle, name, once.arrow(name)) == []


@pytest.fixture(scope="module")
def oracle():
    with oracle_of(SAMPLE, date(2019, 8, 15), date(2019, 10, 13)) as database:
        yield database


@pytest.mark.parametrize("name", ORACLE_TABLES)
def test_every_value_of_every_column_is_the_oracles(sixty, oracle, name):
    assert differences(oracle, name, sixty.arrow(name)) == []


@pytest.mark.parametrize("name", list(ROWS_OF_SIXTY_DAYS))
def test_sixty_days_hold_as_many_rows_as_counted_before(sixty, name):
    assert sixty.arrow(name).num_rows == ROWS_OF_SIXTY_DAYS[name]


def test_no_line_of_the_sample_is_rejected(sixty):
    assert sixty.arrow(REJECTED).num_rows == 0


def test_the_ledger_counts_what_the_tables_hold(sixty):
    accepted = {name: sixty.accepted(name) for name in NAMES}
    assert {
        name: sum(build.rows for build in builds.values()) for name, builds in accepted.items()
    } == {name: sixty.arrow(name).num_rows for name in NAMES}
    assert {name: len(builds) for name, builds in accepted.items()} == dict.fromkeys(NAMES, 60)


def test_late_rows_are_as_many_as_counted_in_the_files(sixty):
    late = [row for row in sixty.arrow(LATE).to_pylist() if row["late"]]
    assert (sum(row["late"] for row in late), sum(row["appeared"] for row in late)) == (1_665, 133)
    assert sum(row["outside_horizon"] for row in sixty.arrow(LATE).to_pylist()) == 11


def test_the_picture_of_late_rows_shows_the_figures_of_the_table(sixty):
    (arrivals,) = arrivals_of(sixty.workspace, latest(sixty.lake.ledger, {UPDATES: None}))
    expected = [
        (row["arrival_day"], row["outage_day"], row["updates"])
        for row in sixty.arrow(LATE).to_pylist()
    ]
    assert sorted(arrivals.rows, key=repr) == sorted(expected, key=repr)
