"""One day rebuilt in a lake with ten years of nightly builds, and in a new lake: `python -m
tests.benchmarks.history`.

Ten years of builds are made up: for each night the day and the two before it, of every table, as
rows of the ledger. The step's own work is the same in both lakes, so that what grows with history
shows. Prints seconds, in turn, and the ratio of medians.
"""

import os
import sys
import tempfile
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.calendar import Calendar
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.spark.session import start
from backfill_assets.settings import read_settings
from tests.worlds.deliveries import days
from tests.worlds.outages import NAMES, SAMPLE, World

YEARS = 10
TIMES = 7
LAKE_DAYS = days(0, 1, 2, 3)


def made_up(name: str, end: date, rows: int) -> list[Build]:
    """Three builds of every day of ten years, of so many rows: the nightly run builds a day, and
    rebuilds it twice.
    """
    nights = [end - timedelta(days=n) for n in range(YEARS * 365, 0, -1)]
    midnight = {
        night: datetime(night.year, night.month, night.day, 1, tzinfo=UTC) for night in nights
    }
    inputs = {"t": {"2019-01-01": "9-9-9"}}
    return [
        Build(
            name,
            night - timedelta(days=back),
            "accepted",
            f"nightly {night}",
            "old",
            "9-9-9",
            rows=rows,
            inputs=inputs,
            at=midnight[night],
        )
        for night in nights
        for back in range(3)
    ]


def built(world: World, days: list[date], run: str) -> None:
    """Build the days of every table; the benchmark ends if one of them was not: it would compare
    other work.
    """
    for name, result in world.run(days, run=run, force=True).items():
        if [build.day for build in result.built if build.succeeded] != days:
            sys.exit(
                f"{name} was not built: {[build.message for build in result.built]}"
                f" {result.blocked}"
            )


def main() -> None:
    os.environ["BACKFILL_SPARK_CONF"] = "{}"
    with tempfile.TemporaryDirectory() as root:
        spark = start(read_settings(home=Path(root)))
        first = date(2019, 8, 15) - timedelta(days=YEARS * 365 + 5)
        worlds = {
            name: World(
                Path(root) / name / "lake",
                SAMPLE,
                lambda: spark,
                Calendar(start_day, LAKE_DAYS[-1]),
            )
            for name, start_day in (("new lake", LAKE_DAYS[0]), ("ten years", first))
        }
        built(worlds["new lake"], LAKE_DAYS, "0")
        for table in NAMES:
            usual = worlds["new lake"].accepted(table)[LAKE_DAYS[1]].rows
            worlds["ten years"].lake.ledger.append(made_up(table, LAKE_DAYS[0], usual))
        built(worlds["ten years"], LAKE_DAYS, "0")
        seconds: dict[str, list[float]] = {name: [] for name in worlds}
        for turn in range(TIMES + 1):
            for name, world in worlds.items():
                began = time.monotonic()
                built(world, LAKE_DAYS[1:2], f"{turn + 1}")
                if turn:  # the first warms up
                    seconds[name].append(time.monotonic() - began)
        drawn = Drawn("lake", "ledger rows", "seconds of one day of six tables", "median")
        for name, world in worlds.items():
            rows = f"{world.lake.ledger.rows(['table']).num_rows:,}"
            drawn.add_row(
                name,
                rows,
                ", ".join(f"{s:.2f}" for s in seconds[name]),
                f"{median(seconds[name]):.2f}",
            )
        Console(width=120).print(
            drawn, f"ratio {median(seconds['ten years']) / median(seconds['new lake']):.2f}"
        )
        spark.stop()


if __name__ == "__main__":
    main()
