"""A project of two tables: examples of prices, and a model of them. A price is ten times a size,
unless days say otherwise.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.ml import Pipeline
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import RandomForestRegressor
from pyspark.sql import SparkSession

from backfill_assets import Landing, SliceDays, field, models, rules, table, window
from backfill_assets.calendar import Calendar
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.spark.session import start
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import days
from tests.worlds.suite import connect

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
    columns=f"day DATE, {EXAMPLES.columns}",
    version="1",
    reads={"lines": EXAMPLES},
    rules=[rules.has_rows()],
)
def prices(lines):
    return lines.select("arrival_day", *[each.name for each in EXAMPLES.fields]).withColumnRenamed(
        "arrival_day", "day"
    )


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


# Fitted otherwise, and so another code version.
OTHER = replace(
    price, version="2", compute=lambda days, examples: models_of(days, examples, seed=2)
)


@dataclass(frozen=True)
class Prices:
    """The project, in a lake and a landing area of a test's own."""

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
        """Build the examples of all days that are delivered, and the models of some; what became of
        these.
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
    """Build a day, and be killed while the forest is fitted: python -m tests.worlds.prices ROOT
    DAY.
    """
    fit = RandomForestRegressor.fit

    def killed_soon(*arguments: Any) -> Any:
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        return fit(*arguments)

    RandomForestRegressor.fit = killed_soon
    spark = start(read_settings(spark_remote=connect()))
    Prices(Path(sys.argv[1]), lambda: spark).run(date.fromisoformat(sys.argv[2]), run="killed")


if __name__ == "__main__":
    main()
