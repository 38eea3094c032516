"""Small projects: in a folder, where they are edited, or in memory, with one table or a model."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.ml import Pipeline
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import RandomForestRegressor
from pyspark.sql import SparkSession

from backfill_assets import Landing, SliceDays, field, models, rules, table, window
from backfill_assets.calendar import Calendar
from backfill_assets.lake.history import latest
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.spark.session import start_session
from backfill_assets.plan.status import State, Status, status_of
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.step.step import Step
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.deliveries import days
from tests.worlds.suite import connect

MODULE = '''import backfill_assets
from datetime import date
from backfill_assets import Landing, rules, same_day, table

@table(
    "raw/files", partition_by="arrival_day",
    columns="arrival_day DATE, source_file STRING, line STRING",
    reads={"lines": Landing("marks")}, rules=[rules.has_rows()],
)
def files(lines):
    """As delivered."""
    return lines.select("arrival_day", "source_file", "line")

@table(
    "staging/marks", partition_by="arrival_day", columns="arrival_day DATE, line STRING",
    reads={"files": same_day(files)},
)
def marks(files):
    """One row per mark."""
    return files.select("arrival_day", "line")

defs = backfill_assets.definitions(
    tables=[files, marks], first_day=date(2019, 6, 1), last_day=date(2019, 6, 2)
)
'''


def written(root: Path, name: str, *changes: tuple[str, str]) -> Path:
    """A folder with the module `name` and a pyproject.toml that names it.

    In each change, the second text replaces the first.
    """
    folder = root / f"{name} folder"
    folder.mkdir(parents=True)
    module = MODULE
    for old, new in changes:
        assert old in module
        module = module.replace(old, new)
    (folder / f"{name}.py").write_text(module)
    (folder / "pyproject.toml").write_text(f'[tool.backfill]\nproject = "{name}"\n')
    return folder


def opened(folder: Path, **given: Any) -> Workspace:
    """The workspace of a folder, without the environment of the tests."""
    return open_workspace(
        folder, **{"home": ".backfill", "lake": "", "landing": "", "last_day": "", **given}
    )


def deliver(workspace: Workspace, *days: str) -> None:
    """Deliver a file of one line for each of `days`."""
    source = workspace.tables[0].source()
    assert source
    folder = workspace.area.root / source.name
    folder.mkdir(parents=True, exist_ok=True)
    for day in days:
        (folder / f"{day}.jsonl").write_text(f'{{"day": "{day}"}}\n')


Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class OneTable:
    """One table, in a test's own lake.

    `spark` is called after days were checked, and before they are read.
    """

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
        return Step(
            self.table, self.workspace, StepRequest(run="a run", **request), self.spark
        ).run(self.calendar.days())

    def status(self) -> Status:
        newest = latest(self.workspace.lake.ledger, {self.table.name: None})
        return status_of(self.workspace, [self.table], self.calendar.days(), latest=newest)

    def outdated(self) -> list[date]:
        return self.status().of(self.table.name).get(State.SOURCE_CHANGED, [])

    def rows(self) -> Rows:
        """The rows of the lake, in order; times without a zone."""
        rows: pa.Table = DeltaTable(self.workspace.lake.path(self.table.name)).to_pyarrow_table()
        values = rows.select([*types_of(self.table.columns)]).to_pydict()
        return sorted(
            zip(*(map(_without_zone, each) for each in values.values()), strict=True), key=repr
        )


def _without_zone(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


DAYS = days(0, 1, 2, 3)
EXAMPLES = Landing(
    "prices",
    fields=[
        field("number INT"),
        field("size DOUBLE"),
        field("cents DOUBLE"),
        field("paid_at TIMESTAMP"),
    ],
)
LEAST = 2


@table(
    "raw/prices",
    partition_by="day",
    key=["number"],
    columns=f"day DATE, {EXAMPLES.columns}, unparsed MAP<STRING, STRING>, malformed STRING",
    version="1",
    reads={"lines": EXAMPLES},
    rules=[rules.has_rows()],
)
def prices(lines):
    return lines.withColumnRenamed("arrival_day", "day").drop("source_file", "unknown_fields")


@table(
    "models/price",
    partition_by="day",
    key=["day"],
    columns=f"day DATE, {models.COLUMNS}",
    version="1",
    reads={"days": SliceDays(), "examples": window(prices, first=-28, last=0)},
    cron="0 4 * * 1",
    measures=models.MEASURES,
    shows=models.shown,
    rules=[rules.has_rows(), models.trained_on_at_least(LEAST), models.better_than_median(by=0.1)],
)
def price(days, examples):
    return models_of(days, examples, seed=1)


def models_of(days: Any, examples: Any, seed: int) -> Any:
    forest = RandomForestRegressor(
        labelCol="cents", predictionCol="predicted", numTrees=2, maxDepth=3, seed=seed
    )
    stages: list[Any] = [VectorAssembler(inputCols=["size"], outputCol="features"), forest]
    return models.by_day(
        days,
        examples,
        Pipeline(stages=stages),
        day="day",
        key=["day", "number"],
        label="cents",
        prediction="predicted",
        known_at="paid_at",
        features=["size"],
        least_days=LEAST,
    )


# Fitted in another way, which gives another code version.
OTHER = replace(
    price, version="2", compute=lambda days, examples: models_of(days, examples, seed=2)
)


@dataclass(frozen=True)
class Prices:
    """The project, in a test's own lake and landing area."""

    root: Path
    spark: Callable[[], SparkSession]
    model: Table = price

    @property
    def workspace(self) -> Workspace:
        settings = read_settings(lake=str(self.root / "lake"), landing=self.root)
        calendar = Calendar(DAYS[0], DAYS[-1])
        area = LandingArea(self.root, self.root / "landed", lake=settings.lake)
        return Workspace(settings, (prices, self.model), calendar, Lake(settings.lake), area)

    def deliver(
        self, day: date, of_size: Callable[[int], float] = lambda size: 10.0 * size
    ) -> None:
        rows = [
            {"number": n, "size": n, "cents": of_size(n), "paid_at": f"{day}T12:00:00Z"}
            for n in range(40)
        ]
        path = self.root / "prices" / f"{day}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def run(self, *at: date, workspace: Workspace | None = None, **request: Any) -> StepResult:
        """Build the examples of all delivered days, and the models of some. Return the results of
        the models.
        """
        workspace = workspace or self.workspace
        asked = StepRequest(**({"run": "a run"} | request))
        if workspace.lake.root == self.workspace.lake.root:
            Step(prices, workspace, asked, self.spark).run(DAYS)
        return Step(self.model, workspace, asked, self.spark).run(list(at))

    def models(self) -> dict[date, dict[str, Any]]:
        folder = self.root / "lake" / price.name
        return (
            {row["day"]: row for row in DeltaTable(str(folder)).to_pyarrow_table().to_pylist()}
            if folder.exists()
            else {}
        )


def main() -> None:
    """Build a day, and be killed while the forest is fitted: python -m tests.worlds.projects ROOT
    DAY.
    """
    fit = RandomForestRegressor.fit

    def killed_soon(*arguments: Any) -> Any:
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        return fit(*arguments)

    setattr(RandomForestRegressor, "fit", killed_soon)  # noqa: B010
    spark = start_session(read_settings(spark_remote=connect()))
    Prices(Path(sys.argv[1]), lambda: spark).run(date.fromisoformat(sys.argv[2]), run="killed")


if __name__ == "__main__":
    main()
