"""Changed declarations that a table cannot take in place: plan, step and commit lead out."""

import shutil
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import SliceDays, same_day, table
from backfill_assets.calendar import Calendar
from backfill_assets.errors import NOTHING_COMMITTED, UsageError
from backfill_assets.plan.columns import column_lines
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.plan import Chunk
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.status import latest_builds, status_of
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace
from tests.worlds.depth import deep
from tests.worlds.outages import FOUR, no_spark
from tests.worlds.tables import workspace_of

NAME = "raw/n"
CALENDAR = Calendar(FOUR[0], FOUR[-1])


def numbers(column: str = "day", kind: str = "INT", **declared) -> Table:
    """One row a day, of the column `column` and the number of the day in its month."""

    @table(
        NAME, partition_by=column, columns=f"{column} DATE, n {kind}", version="1",
        reads={"days": SliceDays()}, **declared,
    )  # fmt: skip
    def declare(days):
        return days.withColumn("n", F.dayofmonth(column).cast(kind))

    return declare


def copies(of: Table) -> Table:
    @table(
        "staging/n",
        partition_by="day",
        columns="day DATE, n INT",
        version="1",
        reads={"n": same_day(of)},
    )
    def declare(n):
        return n.withColumnRenamed(of.partition_by, "day")

    return declare


class Lake:
    """Two tables on a lake, as they are declared now."""

    def __init__(self, root: Path, spark):
        self.root = root
        self.spark = spark

    def workspace(self, of: Table, calendar: Calendar) -> Workspace:
        return workspace_of([of, copies(of)], calendar, str(self.root))

    def build(
        self, of: Table, days: Sequence[date] = FOUR, calendar: Calendar = CALENDAR, **request: Any
    ) -> list[str]:
        step = Step(
            of,
            self.workspace(of, calendar),
            StepRequest(**{"run": "a run"} | request),
            lambda: self.spark,
        )
        return [build.outcome for build in step.run(days).built]

    def planned(self, of: Table, calendar: Calendar = CALENDAR, **options: Any) -> list[date]:
        """The days that `backfill run --partitions FIRST..LAST --target raw/n` plans."""
        asked = of.calendar_of(calendar)
        request = RebuildRequest(partitions=f"{asked.first}..{asked.last}", target=NAME, **options)
        return make_plan(request, self.workspace(of, calendar)).plan.days()

    def states(self, of: Table, calendar: Calendar = CALENDAR) -> dict[str, int]:
        of_workspace = self.workspace(of, calendar)
        status = status_of(
            of_workspace, of_workspace.tables, calendar.days(), latest=latest_builds(of_workspace)
        )
        return {
            f"{name} {state}": len(of_state)
            for name in status.tables
            for state, of_state in status.of(name).items()
        }

    def rows(self, name: str = NAME) -> list[tuple]:
        return sorted(
            tuple(row.values())
            for row in DeltaTable(str(self.root / name)).to_pyarrow_table().to_pylist()
        )


@pytest.fixture
def lake(tmp_path, spark) -> Lake:
    """Both tables, built for four days."""
    made = Lake(tmp_path, spark)
    for of in (numbers(), copies(numbers())):
        made.build(of)
    return made


def test_a_table_with_another_partition_column_is_refused_before_computing(lake, golden):
    of = numbers("arrival_day")
    rows = lake.rows()
    step = Step(of, lake.workspace(of, CALENDAR), StepRequest(run="a run", force=True), no_spark)
    with golden.raises(UsageError) as refused:
        step.run(FOUR)
    assert refused.value.unchanged == NOTHING_COMMITTED
    assert lake.rows() == rows


def test_nothing_is_read_from_a_table_that_is_partitioned_by_another_column(lake):
    with pytest.raises(UsageError, match="raw/n"):
        lake.build(copies(numbers("arrival_day")), force=True)


@pytest.mark.parametrize("moved", deep([True, False], [True]), ids=["moved away", "removed"])
def test_once_its_folder_is_gone_a_table_is_partitioned_by_the_column_now_declared(
    lake, moved, golden
):
    of = numbers("arrival_day")
    rows = lake.rows()
    folder = lake.root / NAME
    with golden.raises(UsageError):
        lake.build(of, force=True)
    if moved:
        folder.rename(lake.root / "before")
    else:
        shutil.rmtree(folder)
    assert lake.planned(of) == FOUR
    assert lake.build(of, FOUR[:2]) + lake.build(of) == ["accepted"] * 4
    assert lake.rows() == rows
    assert DeltaTable(str(folder)).metadata().partition_columns == ["arrival_day"]
    lake.build(copies(of))
    assert lake.rows("staging/n") == rows
    assert lake.states(of) == {"raw/n up to date": 4, "staging/n up to date": 4}


NARROW: dict[str, tuple[dict[str, Any], Calendar, str]] = {
    "the calendar ends earlier": ({}, Calendar(FOUR[0], FOUR[2]), "set BACKFILL_LAST_DAY"),
    "the calendar begins later": ({}, Calendar(FOUR[1], FOUR[3]), "set BACKFILL_FIRST_DAY"),
    "the table begins later": ({"first_day": FOUR[1]}, Calendar(FOUR[0], FOUR[3]), "first_day="),
}
narrow = pytest.mark.parametrize("how", deep(NARROW, ["the calendar ends earlier"]))


@narrow
def test_a_new_type_is_refused_while_days_outside_the_calendar_exist(lake, how):
    declared, calendar, advice = NARROW[how]
    of = numbers(kind="STRING", **declared)
    rows = lake.rows()
    workspace = lake.workspace(of, calendar)
    all_days = of.calendar_of(calendar).days()
    *_, line = column_lines(workspace, [of], [Chunk(0, {NAME: all_days})])[NAME]
    assert advice in line
    with pytest.raises(
        UsageError,
        match=r"(?s)2019-08.*--target.*raw/n",
    ):
        lake.build(of, all_days, calendar, force=True)
    assert lake.rows() == rows
    assert line in column_lines(workspace, [of])[NAME]


def test_a_type_changes_once_the_calendar_has_every_day_of_the_table(lake):
    of = numbers(kind="STRING")
    assert lake.planned(of, force=True) == FOUR
    assert lake.build(of, force=True) == ["accepted"] * 4
    assert lake.rows() == [(at, str(at.day)) for at in FOUR]


@narrow
def test_a_type_changes_once_the_folder_with_days_outside_the_calendar_is_moved_away(
    lake, how, golden
):
    declared, calendar, _ = NARROW[how]
    of = numbers(kind="STRING", **declared)
    all_days = of.calendar_of(calendar).days()
    with golden.raises(UsageError):
        lake.build(of, all_days, calendar, force=True)
    (lake.root / NAME).rename(lake.root / "before")
    assert lake.planned(of, calendar) == all_days
    assert lake.build(of, all_days, calendar) == ["accepted"] * 3
    assert lake.rows() == [(at, str(at.day)) for at in all_days]
    assert lake.states(of, calendar)["raw/n up to date"] == 3
