"""Publishing and taking back 31 days of six tables, beside a plain Spark copy of the same days and
`cp` of their files.

    python -m tests.benchmarks.publish [--rows 20000] [--times 3]

Then 3 days of one table, in a table of 60 days and in one of ten years, in turns: both acts should
follow the days, not the table. Each act is timed in a process of its own, without its start, as
`backfill publish` and `backfill rollback` are run; and in one that has done the same before, where
what is left of its time is mostly `deltalake`, which reads a table's whole list of files whenever
it opens or commits. The lakes have been released before, as lakes with nightly runs have.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime, timedelta
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.calendar import Calendar
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.data_files import write_table
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.slices import condition
from backfill_assets.lake.spark.session import start_session
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.shadow import open_shadow, workspace_of
from backfill_assets.plan.store import Plans
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.settings import read_settings
from backfill_assets.tables.declaration import SliceDays, Table
from backfill_assets.workspace import Workspace
from tests.worlds.small_lake import columns
from tests.worlds.tables import workspace_of as workspace_on

FIRST = date(2019, 8, 15)
Act = Callable[..., float]


def now() -> datetime:
    return datetime.now(UTC)


def days_from(first: int, count: int) -> list[date]:
    return [FIRST + timedelta(days=n) for n in range(first, first + count)]


def tables(count: int) -> list[Table]:
    declared = {
        "columns": "n BIGINT, day DATE, t0 STRING, t1 STRING",
        "reads": {"days": SliceDays()},
    }
    return [
        Table(f"raw/t{n}", lambda: None, "day", **declared, rules=(), version="1")  # type: ignore[arg-type]
        for n in range(count)
    ]


def write(
    lake: Lake, name: str, days: Sequence[date], rows: int, seed: int, plan: str = ""
) -> None:
    """Write these days of a table in one commit, as a step does."""
    random = np.random.default_rng(seed)
    of = np.repeat(np.array(days, "datetime64[D]"), rows)
    texts = {
        f"t{n}": pa.array(random.integers(0, 10**9, len(of))).cast(pa.string()) for n in range(2)
    }
    data = pa.table(
        {
            "n": pa.array(random.integers(0, 10**12, len(of))),
            "day": pa.array(of, pa.date32()),
            **texts,
        }
    )
    files = write_table(data, lake.path(name), "day")

    def decide() -> list[Build]:
        at = lake.ledger.next_time(name)
        return [
            Build(
                name,
                day,
                "accepted",
                "r",
                "1",
                fingerprint=f"{seed} {day}",
                rows=rows,
                plan=plan,
                at=at,
            )
            for day in days
        ]

    commit_and_record(
        lake.root,
        name,
        decide,
        FileCommit(lake.path(name), "day", files, columns("day", "t0", "t1")),
    )


def published_and_taken_back(
    workspace: Workspace, days: Sequence[date], rows: int, seed: int, timing: Callable[..., float]
) -> tuple[float, float]:
    """Seconds of both acts on a plan of these days of every table, built in its shadow."""
    names = [table.name for table in workspace.tables]
    reasons = {name: {day: Reason(ReasonKind.CODE_CHANGED) for day in days} for name in names}
    options = PlanOptions(into="shadow", reason=f"round {seed}")
    plan = Plan(
        dict.fromkeys(names, "1"),
        reasons,
        [Chunk(0, {name: list(days) for name in names})],
        options,
    )
    Plans(workspace.lake.root).keep(plan)
    open_shadow(plan, workspace, "bench")
    for name in names:
        write(workspace_of(plan, workspace).lake, name, days, rows, seed, plan.id)
    Plans(workspace.lake.root).note(plan.id, "ended", now(), ending="done")
    at = str(workspace.lake.root), len(names), workspace.calendar, plan.id
    return timing(_publish, *at), timing(_roll_back, *at)


def _publish(root: str, count: int, calendar: Calendar, plan: str) -> float:
    publication = Publication(
        Plans(root).read(plan), workspace_on(tables(count), calendar, root), "bench"
    )
    return timed(lambda: publication.publish(lambda state: None))


def _roll_back(root: str, count: int, calendar: Calendar, plan: str) -> float:
    workspace = workspace_on(tables(count), calendar, root)
    return timed(lambda: roll_back(Plans(root).read(plan), workspace, who="bench"))


def here(act: Act, *given: object) -> float:
    return act(*given)


def in_a_new_process(act: Act, *given: object) -> float:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(act, *given).result()


def timed(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started


def lake_of(root: Path, count: int, days: int, rows: int) -> Workspace:
    workspace = workspace_on(tables(count), Calendar(FIRST, days_from(days - 1, 1)[0]), str(root))
    for table in workspace.tables:
        write(workspace.lake, table.name, days_from(0, days), rows, 1)
        DeltaTable(
            workspace.lake.path(table.name)
        ).create_checkpoint()  # as a table that was built day by day has one
    release_live(workspace, who="bench")
    return workspace


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a day")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        root = Path(folder)
        spark = start_session(read_settings(spark_remote="", home=folder))
        drawn = Drawn(
            "round",
            "publish",
            "roll back",
            "Spark's copy",
            "cp",
            "publish / Spark",
            "roll back / publish",
        )
        workspace = lake_of(root / "lake", 6, 60, given.rows)
        month = days_from(20, 31)
        ratios = []
        for n in range(given.times):
            publishing, back = published_and_taken_back(workspace, month, given.rows, 100 + n, here)
            copy = root / "copy"
            shutil.copytree(root / "lake" / "raw", copy)

            def by_spark(copy: Path = copy) -> None:
                for table in workspace.tables:
                    rows = (
                        spark.read.format("delta")
                        .load(workspace.lake.path(table.name))
                        .where(condition("day", month))
                    )
                    target = (
                        rows.write.format("delta")
                        .mode("overwrite")
                        .option("replaceWhere", condition("day", month))
                    )
                    target.save(str(copy / table.name.split("/")[1]))

            def by_cp(copy: Path = copy) -> None:
                shutil.copytree(copy, root / "cp")

            copied = timed(by_spark)
            cp = timed(by_cp)
            for made in (copy, root / "cp"):
                shutil.rmtree(made)
            ratios.append((publishing / copied, back / publishing))
            seconds = [f"{each:.2f} s" for each in (publishing, back, copied, cp)]
            drawn.add_row(str(n + 1), *seconds, *(f"{ratio:.2f}" for ratio in ratios[-1]))
        Console(width=110).print(drawn)
        copying, back = (median(each) for each in zip(*ratios, strict=True))
        print(f"medians: publish / Spark {copying:.2f}, roll back / publish {back:.2f}")
        lakes = {days: lake_of(root / f"lake{days}", 1, days, 100) for days in (60, 3650)}
        seeds = count(200)  # a plan of its own for each round
        for words, timing in (
            ("a process of its own", in_a_new_process),
            ("one that has done it before", here),
        ):
            rounds: dict[int, list[tuple[float, float]]] = {60: [], 3650: []}
            for seed in islice(seeds, 1 + 3 * given.times):
                for days, lake in lakes.items():
                    rounds[days].append(
                        published_and_taken_back(lake, days_from(20, 3), 100, seed, timing)
                    )
            took = {
                days: [median(each) for each in zip(*of[1:], strict=True)]
                for days, of in rounds.items()
            }
            for days, (publishing, back) in took.items():
                print(
                    f"in {words}, 3 days of {days}: publish {publishing * 1000:.0f} ms, roll back"
                    f" {back * 1000:.0f} ms"
                )
            print(
                "ten years / 60 days:",
                ", ".join(f"{took[3650][n] / took[60][n]:.2f}" for n in (0, 1)),
            )


if __name__ == "__main__":
    main()
