"""A project of one table that is made from one source."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.lake.latest import latest
from backfill_assets.lake.store import Lake
from backfill_assets.plan.status import State, Status, status_of
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Project:
    """One table, in a lake of a test's own. `spark` is asked for after days were looked at, and before they are read."""

    root: Path
    table: Table
    spark: Callable[[], SparkSession]
    calendar: Calendar

    @property
    def workspace(self) -> Workspace:
        settings = read_settings(lake=str(self.root / "lake"), landing=self.root)
        area = LandingArea(self.root, self.root / "landed", lake=settings.lake)
        return Workspace(settings, (self.table,), self.calendar, Lake(settings.lake), area)

    def run(self, **request: Any) -> StepResult:
        return Step(self.table, self.workspace, StepRequest(run="a run", **request), self.spark).run(self.calendar.days())

    def status(self) -> Status:
        newest = latest(self.workspace.lake.ledger, {self.table.name: None})
        return status_of(self.workspace, [self.table], self.calendar.days(), latest=newest)

    def outdated(self) -> list[date]:
        return self.status().of(self.table.name).get(State.SOURCE_CHANGED, [])

    def rows(self) -> Rows:
        """What the lake holds, in order; times without their zone."""
        rows: pa.Table = DeltaTable(self.workspace.lake.path(self.table.name)).to_pyarrow_table()
        values = rows.select([column.split()[0] for column in self.table.columns.split(", ")]).to_pydict()
        return sorted(zip(*(map(_without_zone, each) for each in values.values()), strict=True), key=repr)


def _without_zone(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
