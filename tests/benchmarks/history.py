"""Long histories: `python -m tests.benchmarks.history nightly`, or `cumulative`.

`nightly` rebuilds one day in a lake with ten years of nightly builds, and in a new lake. The builds
are made up: for each night the day and the two before it, of every table, as rows of the ledger.
The step's own work is the same in both lakes, so that the growth with history shows. It prints
seconds, in turn, and the ratio of medians.

`cumulative` builds a year of the cumulative table, and of tables that are not cumulative, each from
nothing by one step. `features/region_history` reads the day before of itself and the day of
region_daily. A table of the sums of seven days reads the same input; region_daily itself is made
from all outages. A year has as many outages a day in as many regions as the sample. The tables take
turns, in another order each time. Printed are seconds, on the clock and of processors (which other
work on the machine leaves alone), and the medians of the ratios of each turn. Options: `--days`,
`--pairs`, `--outages` (a day) and `--regions`.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

import psutil
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.features import region_daily, region_history, with_week
from backfill_assets.datasets.outages.staging import outages
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.spark.session import start_session
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import SliceDays, Table, itself, same_day, window
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import days
from tests.worlds.outages import NAMES, SAMPLE, World

YEARS = 10
TIMES = 7
LAKE_DAYS = days(0, 1, 2, 3)


def made_up_builds(name: str, end: date, rows: int) -> list[Build]:
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


def nightly() -> None:
    os.environ["BACKFILL_SPARK_CONF"] = "{}"
    with tempfile.TemporaryDirectory() as root:
        spark = start_session(read_settings(home=Path(root)))
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
            worlds["ten years"].lake.ledger.append(made_up_builds(table, LAKE_DAYS[0], usual))
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


FIRST = date(2024, 1, 1)
DAYS = 365
OUTAGES = 671
REGIONS = 246


@dataclass(frozen=True)
class Took:
    """Seconds on the clock, and of the processors: those of this process and of its Spark."""

    clock: float
    worked: float

    def __str__(self) -> str:
        return f"{self.clock:.1f} s, worked {self.worked:.1f} s"


def took(act: Callable[[], object]) -> Took:
    """What it takes to `act`."""
    started = time.perf_counter()
    worked = _worked()
    act()
    return Took(time.perf_counter() - started, _worked() - worked)


def _worked() -> float:
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def made_up(a_day: int, regions: int) -> Table:
    """`staging/outages` with as many outages a day in as many regions, of any size and duration,
    made from the days alone.
    """
    values = {
        "outage_number": "concat(unix_date(outage_day), '-', id)",
        "region": f"concat('Region ', pmod(xxhash64(id, outage_day, 1), {regions}))",
        "cause": "'Unknown'",
        "customers": "cast(pmod(xxhash64(id, outage_day, 2), 500) AS INT)",
        "peak_customers": "cast(pmod(xxhash64(id, outage_day, 2), 700) AS INT)",
        "started_at": "cast(outage_day AS TIMESTAMP)",
        "restored_at": (
            "timestamp_seconds(86400 * unix_date(outage_day) + pmod(xxhash64(id, outage_day, 3),"
            " 90000))"
        ),
    }

    def compute(days: DataFrame) -> DataFrame:
        rows = days.crossJoin(days.sparkSession.range(a_day))
        of = {
            name: values.get(name, f"cast(null AS {kind})")
            for name, kind in types_of(outages.columns).items()
        }
        return rows.selectExpr(
            "outage_day",
            *[f"{value} AS {name}" for name, value in of.items() if name != "outage_day"],
        )

    return replace(
        outages, reads={"days": SliceDays()}, compute=compute, rules=(), version="made up"
    )


@dataclass(frozen=True)
class Year:
    """A lake in which the inputs are built, and the tables that are measured."""

    workspace: Workspace
    spark: SparkSession
    measured: Sequence[Table]

    def build(self, table: Table) -> None:
        """Every day of `table`; the benchmark ends if one was not built: it would compare other
        work.
        """
        step = Step(table, self.workspace, StepRequest("a run"), lambda: self.spark)
        result = step.run(self.workspace.calendar.days())
        if [build.outcome for build in result.built] != ["accepted"] * len(
            self.workspace.calendar.days()
        ):
            sys.exit(
                f"{table.name} was not built: {[build.message for build in result.failed()]}"
                f" {result.blocked}"
            )


def year(
    root: Path,
    spark: SparkSession,
    *,
    days: int = DAYS,
    a_day: int = OUTAGES,
    regions: int = REGIONS,
) -> Year:
    """A year whose inputs are built: the cumulative table first, then those that it is measured
    against.
    """
    source = made_up(a_day, regions)
    daily = replace(region_daily, reads={"outages": window(source, first=-6, last=0)})
    history = replace(
        region_history, reads={"days": SliceDays(), "before": itself(), "daily": same_day(daily)}
    )
    week = replace(
        region_daily,
        name="features/region_week",
        reads={"daily": window(daily, first=-6, last=0)},
        compute=lambda daily: with_week(daily.drop("outages_7d", "customers_7d")),
        version="1",
    )
    calendar = Calendar(FIRST, FIRST + timedelta(days=days - 1))
    settings = read_settings(lake=str(root), landing=root)
    workspace = Workspace(
        settings, (source, daily, history, week), calendar, Lake(str(root)), LandingArea(root)
    )
    made = Year(workspace, spark, (history, week, daily))
    for table in (source, daily):
        made.build(table)
    return made


def measured(made: Year, pairs: int) -> list[list[Took]]:
    """What each table takes, a line a turn; the first turn, on a cold machine, is not counted."""
    turns = []
    for turn in range(pairs + 1):
        order = made.measured if turn % 2 else made.measured[::-1]
        # Each under a name of this turn, so that it is not there yet.
        one = {
            table.name: took(partial(made.build, replace(table, name=f"{table.name}_{turn}")))
            for table in order
        }
        turns.append([one[table.name] for table in made.measured])
    return turns[1:]


def cumulative(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--outages", type=int, default=OUTAGES)
    parser.add_argument("--regions", type=int, default=REGIONS)
    given = parser.parse_args(arguments)
    os.environ["BACKFILL_SPARK_CONF"] = "{}"
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        spark = start_session(read_settings(home=Path(folder)))
        made = year(
            Path(folder) / "lake",
            spark,
            days=given.days,
            a_day=given.outages,
            regions=given.regions,
        )
        turns = measured(made, given.pairs)
        spark.stop()
    shown = Drawn(
        *[table.name for table in made.measured], "by clock", "worked", title=f"{given.days} days"
    )
    for history, *others in turns:
        by_clock = ", ".join(f"{history.clock / other.clock:.2f}" for other in others)
        worked = ", ".join(f"{history.worked / other.worked:.2f}" for other in others)
        shown.add_row(*map(str, (history, *others)), by_clock, worked)
    Console(width=150).print(shown)
    for n, other in enumerate(made.measured[1:], start=1):
        clock = median(turn[0].clock / turn[n].clock for turn in turns)
        work = median(turn[0].worked / turn[n].worked for turn in turns)
        print(
            f"{made.measured[0].name} / {other.name}: median {clock:.2f} on the clock, {work:.2f}"
            " worked"
        )


if __name__ == "__main__":
    benchmark, *options = sys.argv[1:]
    nightly() if benchmark == "nightly" else cumulative(options)
