"""Training examples: every value as DuckDB finds it, and the same rows whenever they are made as
known by one day.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import leaks
from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.features import region_daily
from backfill_assets.datasets.outages.features_v2 import region_daily_v2
from backfill_assets.datasets.outages.restoration_examples import (
    OUTCOMES,
    known_by,
    reading,
    restoration_examples,
)
from backfill_assets.datasets.outages.restoration_time import restoration_time
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.project import in_order, load
from backfill_assets.step.inputs import InputReader
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table, same_day, window
from tests.worlds.outages import NAMES, oracle_of
from tests.worlds.suite import SAMPLE
from tests.worlds.tables import workspace_of

pytestmark = pytest.mark.long

SQL = Path(__file__).parents[1] / "examples.sql"
FIRST = date(2019, 8, 15)
LAST = date(2019, 10, 13)
# Four days of examples, of which the days of regions that are final by then are the sample's first.
DAYS = ("2019-08-30", "2019-09-02")
TODAY = date(2019, 9, 5)
TEN_DAYS_LATER = date(2019, 9, 15)
COLUMNS = ", ".join(types_of(restoration_examples.columns))


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with oracle_of(SAMPLE, FIRST, LAST) as database:
        yield database


@pytest.fixture(scope="module")
def inputs(spark, oracle, tmp_path_factory) -> dict[str, DataFrame]:
    """The updates about these days, and the regions of all until then, as DuckDB reads them."""
    folder, (first, last) = tmp_path_factory.mktemp("inputs"), DAYS
    oracle.execute(
        f"COPY (FROM updates WHERE outage_day BETWEEN '{first}' AND '{last}') TO"
        f" '{folder}/updates.parquet'"
    )
    oracle.execute(
        f"COPY (FROM region_daily WHERE outage_day <= '{last}') TO '{folder}/regions.parquet'"
    )
    return {name: spark.read.parquet(f"{folder}/{name}.parquet") for name in ("updates", "regions")}


def rows(examples: DataFrame) -> list[tuple[Any, ...]]:
    """Every value, in the order of the key. Times as texts: what a client makes of them depends on
    its zone.
    """
    values = [
        F.col(name).cast("string") if kind == "TIMESTAMP" else name
        for name, kind in examples_types().items()
    ]
    found = examples.select(*values).toArrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=lambda row: row[:2])


def examples_types() -> dict[str, str]:
    return types_of(restoration_examples.columns)


@pytest.mark.parametrize(
    ("day", "in_sql"),
    [
        pytest.param(None, "9999-01-01", id="as known today"),
        pytest.param(TODAY, str(TODAY), id="as known by a day"),
    ],
)
def test_every_value_of_every_column_is_the_oracles(oracle, inputs, tmp_path, day, in_sql):
    table = known_by(day) if day else restoration_examples
    table(**inputs).select(*examples_types()).coalesce(1).write.parquet(str(tmp_path / "found"))
    oracle.execute(SQL.read_text().format(known_by=in_sql))
    found = f"(SELECT {COLUMNS} FROM '{tmp_path}/found/*.parquet')"
    expected = (
        f"(SELECT {COLUMNS} FROM restoration_examples WHERE outage_day BETWEEN '{DAYS[0]}' AND"
        f" '{DAYS[1]}')"
    )
    for one, other in ((found, expected), (expected, found)):
        assert oracle.execute(f"FROM {one} EXCEPT ALL FROM {other}").fetchall() == []
    counts = oracle.execute(
        f"SELECT count(*), count(captured_at), count(region_day), count(restored_at) FROM {found}"
    )
    assert all(n > 1_000 for n in counts.fetchall()[0])


def test_a_training_set_is_the_same_today_ten_days_later_and_after_a_correction(inputs):
    """As known by a day; without one, outcomes come in and are corrected, and features stay as they
    were.
    """
    updates = inputs["updates"]
    regions = inputs["regions"]
    arrived = {
        day: updates.where(F.col("arrival_day") < F.lit(day)) for day in (TODAY, TEN_DAYS_LATER)
    }
    late = updates.where("outage_day >= '2019-09-01' AND change = 'D'").withColumns(
        {
            "arrival_day": F.lit(TEN_DAYS_LATER).cast("date"),
            "captured_at": F.lit(f"{TEN_DAYS_LATER}T12:00:00Z").cast("timestamp"),
            "started_at": F.expr("started_at - interval 2 hours"),
            "customers": F.lit(9_999),
            "region": F.lit("Elsewhere"),
        }
    )
    # The days of regions that are not final today come out differently.
    other = regions.withColumn(
        "outages", F.when(F.col("outage_day") < F.lit("2019-08-21"), F.col("outages")).otherwise(0)
    )
    today = (arrived[TODAY], regions)
    later = (arrived[TEN_DAYS_LATER], other)

    fixed = rows(known_by(TODAY)(*today))
    assert len(fixed) > 1_000
    assert rows(known_by(TODAY)(*later)) == fixed
    # Captured before they were asked about, and delivered ten days later.
    delivered_late = late.withColumn("captured_at", F.expr("started_at + interval 150 minutes"))
    corrected = (arrived[TEN_DAYS_LATER].unionByName(late).unionByName(delivered_late), other)
    assert rows(known_by(TODAY)(*corrected)) == fixed

    names = list(examples_types())
    outcomes = {names.index(name) for name in OUTCOMES}
    before = {row[:2]: row for row in rows(restoration_examples(*today))}
    after = {row[:2]: row for row in rows(restoration_examples(*corrected))}
    changed = {
        key: {n for n, value in enumerate(row) if value != after[key][n]}
        for key, row in before.items()
    }
    assert sum(map(bool, changed.values())) > 100
    assert set.union(*changed.values()) == outcomes


def test_examples_known_by_another_day_have_another_code_version(golden):
    table = known_by(TODAY)
    assert (table.name, table.version) == (
        restoration_examples.name,
        f"{restoration_examples.version}, known by 2019-09-05",
    )
    golden(table.documentation.splitlines()[-1])
    project = load("backfill_assets.datasets.outages.training", Path())
    assert [table.name for table in project.tables] == [
        *NAMES,
        restoration_examples.name,
        restoration_time.name,
    ]
    assert project.tables[-2].version == restoration_examples.version


def test_what_reads_the_examples_reads_those_that_the_project_declares(golden):
    switched = reading(region_daily_v2)
    *_, model = in_order([*TABLES, restoration_time, switched])
    assert model.reads["examples"] == window(switched, first=-28, last=0)
    assert (model.name, model.version) == (restoration_time.name, restoration_time.version)
    names = [table.name for table in model.ancestors()]
    assert (region_daily_v2.name in names, region_daily.name in names) == (True, False)
    with pytest.raises(ValueError, match=switched.name) as raised:
        in_order(
            [
                *TABLES[:-1],
                replace(region_daily_v2, reads={"examples": same_day(switched)}),
                switched,
            ]
        )
    golden(str(raised.value))


def test_examples_of_another_feature_table_are_outdated_by_their_code(tmp_path, golden):
    """With both versions built, the project declares the examples that read the other one."""
    calendar = Calendar(FIRST, date(2019, 9, 8))
    switched = reading(region_daily_v2)
    tables = (*TABLES, restoration_examples)
    workspace = workspace_of(tables, calendar, str(tmp_path))
    accepted: dict[tuple[str, date], Build] = {}
    for table in tables:
        days = calendar.days()
        accepted |= {
            (table.name, at): Build(table.name, at, "accepted", "r", table.version, f"f {at}")
            for at in days
        }
        read = [
            replace(
                accepted[table.name, at],
                inputs=InputReader(table, accepted, calendar).fingerprints(at),
            )
            for at in days
        ]
        workspace.lake.ledger.append(read)

    def outdated(declared: Table) -> dict[str, set[tuple[str, str]]]:
        now = replace(workspace, tables=(*tables[:-1], declared))
        status = status_of(now, now.tables, calendar.days(), latest=latest_builds(now))
        to_build: dict[str, set[tuple[str, str]]] = {}
        for (name, _), each in status.partitions.items():
            if each.state != State.UP_TO_DATE:
                to_build.setdefault(name, set()).add((each.state.value, each.why))
        return to_build

    assert outdated(restoration_examples) == outdated(reading(region_daily)) == {}
    name = switched.name
    ((found, ((state, why),)),) = outdated(switched).items()
    assert (found, state) == (name, "outdated: code changed")
    golden(why, "why", BEFORE=restoration_examples.version, NOW=switched.version)
    of_v2 = replace(workspace, tables=(*tables[:-1], switched))
    planned = make_plan(RebuildRequest(partitions="last 5", only="outdated"), of_v2)
    assert planned.plan.reasons == {
        name: dict.fromkeys(calendar.days()[-5:], Reason(ReasonKind.CODE_CHANGED))
    }
    golden("\n".join(planned.columns), "planned")
    assert known_by(TODAY, switched).version == f"{switched.version}, known by {TODAY}"


def test_nothing_is_used_that_was_known_later(inputs):
    assert leaks(restoration_examples, inputs) == []
