"""A late row in one day, in a lake of sixty days and in one of ten years: `python -m
tests.benchmarks.late_row [--profile]`.

The sixty days are the sample, built. The ten years are those, and before them 3,590 days made up
from copies of their files: delivered, recorded (three builds of each day, as nights do), committed;
the log has a commit a day for as long as it is kept. Each turn delivers one row, which arrived
eight days late, and builds in both lakes what it makes outdated: of raw and updates the arrival
day, of outages the event day, by overwriting and by merging in turn, and of features what is made
from that. Prints seconds, the medians' ratio of each table, and what finding the late row takes, as
the sensor does it.
"""

import argparse
import cProfile
import os
import pstats
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.calendar import Calendar
from backfill_assets.lake.commit import FileCommit, commit_and_record
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.slices import DataFile, files_of
from backfill_assets.lake.spark.session import start
from backfill_assets.plan.late import late_rows
from backfill_assets.settings import read_settings
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import tables_read
from backfill_assets.tables.declaration import Table
from tests.worlds.deliveries import arriving, day
from tests.worlds.outages import (
    DAILY,
    DAILY_V2,
    HISTORY,
    LATE,
    OUTAGES,
    RAW,
    REJECTED,
    UPDATES,
    World,
)

YEARS = 10
KEPT_DAYS = 400  # as long as commits are kept in the log
ARRIVAL = 58
EVENT = 50
LAST = 59
FINDING = "finding the row"
PROCESSOR = "this process's processor"  # Spark's is another process; it knows no years
TEN_YEARS = Calendar(day(LAST) - timedelta(days=YEARS * 365 - 1), day(LAST))
FEATURES = (DAILY, DAILY_V2, HISTORY, LATE)


def ten_years(sixty: World, root: Path) -> None:
    """A copy of the sixty days, with ten years less sixty days before them."""
    world = replace(sixty.copied(root), calendar=TEN_YEARS)
    before = [at for at in TEN_YEARS.days() if at < day(0)]
    for at in before:
        shutil.copytree(world.folder(like(at)), world.folder(at), copy_function=os.link)
    accepted: dict[tuple[str, date], Build] = {}
    for table in world.tables:
        made_up(table, world, before, accepted)


def like(at: date) -> date:
    """The day of the sample whose files an earlier day gets: none near its ends."""
    return day(20 + at.toordinal() % 20)


def made_up(
    table: Table, world: World, before: Sequence[date], accepted: dict[tuple[str, date], Build]
) -> None:
    of_sample = world.accepted(table.name)
    folder = Path(world.lake.path(table.name))
    delta = DeltaTable(str(folder))
    files = {file.day: file for file in files_of(delta, table.partition_by, of_sample)}
    source = table.source()
    delivered = source.delivered(world.workspace.area, before) if source else {}
    copies = list[DataFile]()
    for at in before:
        build = of_sample[like(at)]
        delivery = delivered.get(at, Delivery())
        assert isinstance(delivery, Delivery)
        accepted[table.name, at] = replace(
            build, day=at, run="nightly", at=datetime(at.year, at.month, at.day, tzinfo=UTC) + timedelta(days=3),
            inputs=tables_read(table, at, accepted, world.calendar), delivered=delivery.fingerprint, files=delivery.files,
            day_fingerprints={moved(on, at - like(at)): value for on, value in build.day_fingerprints.items()},
        )  # fmt: skip
        if like(at) in files:
            file = files[like(at)]
            copies.append(
                replace(file, day=at, path=f"{table.partition_by}={at}/{Path(file.path).name}")
            )
            (folder / copies[-1].path).parent.mkdir(exist_ok=True)
            os.link(folder / file.path, folder / copies[-1].path)
    schema = delta.schema().to_json()
    parts = [before[:-KEPT_DAYS], *([at] for at in before[-KEPT_DAYS:])]
    for days in parts:
        these = set(days)
        builds = [accepted[table.name, at] for at in days]
        of_part = FileCommit(
            str(folder), table.partition_by, [file for file in copies if file.day in these], schema
        )
        nights = [
            replace(b, run=f"night {n}", at=b.at - timedelta(days=n))
            for b in builds
            for n in (1, 2)
        ]
        world.lake.ledger.append(nights)
        for made in commit_and_record(world.lake.root, table.name, partial(list, builds), of_part):
            accepted[table.name, made.day] = made


def moved(on: str, by: timedelta) -> str:
    return str(date.fromisoformat(on) + by) if on else on


def deliver(world: World, turn: int) -> None:
    world.write(
        day(ARRIVAL), arriving(ARRIVAL, 90_000 + turn, began=EVENT), f"late-{turn}.jsonl.gz"
    )


def take_in(world: World, turn: int, mode: str) -> dict[str, float]:
    """Seconds of each table's step, and of finding the row. The benchmark ends if a day was not
    built: it would time less.
    """
    seconds = dict[str, float]()
    used = time.process_time()

    def timed(name: str, days: Sequence[date], write_mode: str = "overwrite") -> None:
        began = time.perf_counter()
        result = world.run(days, [name], run=f"turn {turn}", write_mode=write_mode)[name]
        seconds[name] = time.perf_counter() - began
        if not result.built or any(not build.succeeded for build in result.built) or result.blocked:
            sys.exit(f"{name}: {[build.message for build in result.built]} {result.blocked}")

    for name in (REJECTED, RAW, UPDATES):
        timed(name, [day(ARRIVAL)])
    began = time.perf_counter()
    late = [each.day for each in late_rows(world.workspace).within()]
    seconds[FINDING] = time.perf_counter() - began
    if late != [day(EVENT)]:
        sys.exit(f"late are {late}")
    timed(OUTAGES, late, mode)
    for name in FEATURES:
        timed(name, [day(n) for n in ([ARRIVAL] if name == LATE else range(EVENT, LAST + 1))])
    seconds[PROCESSOR] = time.process_time() - used
    return seconds


@dataclass
class Turns:
    """The seconds of each part, by lake."""

    seconds: dict[str, dict[str, list[float]]]

    def drawn(self, mode: str) -> Drawn:
        small, large = self.seconds
        shown = Drawn(f"late row, {mode}", small, large, "ratio of medians")
        parts = [part for part in self.seconds[small] if part != PROCESSOR]
        steps = [part for part in parts if part != FINDING]
        for part in [*steps, "all steps", FINDING, "in all", PROCESSOR]:
            which = {"all steps": steps, "in all": parts}.get(part, [part])
            medians = [
                median(sum(s) for s in zip(*(of[p] for p in which), strict=True))
                for of in self.seconds.values()
            ]
            shown.add_row(part, *(f"{m:.2f} s" for m in medians), f"{medians[1] / medians[0]:.2f}")
        return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument(
        "--folder",
        type=Path,
        help="a new folder, or one of an earlier run, whose lakes are then used again",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="what the turns in the lake of ten years spend their time on",
    )
    given = parser.parse_args()
    os.environ["BACKFILL_SPARK_CONF"] = "{}"
    with tempfile.TemporaryDirectory(prefix="bench") as made:
        root = given.folder or Path(made)
        spark = start(read_settings(spark_remote="", home=Path(made)))
        began = time.monotonic()
        sixty = World(root / "sixty" / "lake", root / "sixty" / "landing", lambda: spark)
        if not root.joinpath("done").exists():
            sixty.deliver([day(n) for n in range(LAST + 1)]).run([day(n) for n in range(LAST + 1)])
            ten_years(sixty, root / "ten")
            root.joinpath("done").touch()
        long = replace(
            sixty, root=root / "ten" / "lake", landing=root / "ten" / "landing", calendar=TEN_YEARS
        )
        worlds = {"60 days": sixty, "10 years": long}
        print(f"lakes made: {time.monotonic() - began:.0f} s", flush=True)
        turns = {mode: Turns({name: {} for name in worlds}) for mode in ("overwrite", "merge")}
        profile = cProfile.Profile()
        first = len([*sixty.folder(day(ARRIVAL)).iterdir()])  # after the turns of earlier runs
        for turn in range(first, first + 2 * (given.times + 1)):
            mode = ("overwrite", "merge")[(turn - first) % 2]
            for name, world in worlds.items():
                deliver(world, turn)
                if given.profile and turn > first + 1 and world is long:
                    profile.enable()
                seconds = take_in(world, turn, mode)
                profile.disable()
                for part, took in seconds.items() if turn > first + 1 else ():  # the first warm up
                    turns[mode].seconds[name].setdefault(part, []).append(took)
        Console(width=110).print(*(each.drawn(mode) for mode, each in turns.items()))
        if given.profile:
            pstats.Stats(profile).sort_stats("cumtime").print_stats(
                "backfill_assets|deltalake|method", 60
            )
        spark.stop()


if __name__ == "__main__":
    main()
