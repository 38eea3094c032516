"""The times of a backup and a restore, with a writer at work: `python -m tests.drills.backups`, or
the rows of a day: `python -m tests.drills.backups 100000`.

The lake has eight tables of a hundred days, each day in a file of its own, and an open plan.
"""

import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from threading import Event, Thread

import duckdb
import numpy as np
import pyarrow as pa

from backfill_assets.calendar import Calendar
from backfill_assets.lake.backup import back_up, restore
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.data_files import write_table
from backfill_assets.lake.delta import open_table, open_version_of
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.lake.releases import Releases
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import release_live
from backfill_assets.tables.declaration import SliceDays, Table
from backfill_assets.workspace import Workspace
from tests.worlds.small_lake import SmallLake, approved, columns
from tests.worlds.tables import workspace_of

FIRST = date(2026, 1, 1)
DAYS = [FIRST + timedelta(n) for n in range(100)]
TABLES = tuple(
    Table(f"raw/t{n}", lambda: None, "day", "n BIGINT, day DATE", {"days": SliceDays()}, (), "1")
    for n in range(8)
)


class DrillLake(SmallLake):
    @property
    def workspace(self) -> Workspace:
        return workspace_of(TABLES, Calendar(DAYS[0], DAYS[-1]), str(self.root))


def write_days(
    root: str, table: str, days: list[date], rows: int, run: str, plan: str = ""
) -> None:
    """Write these days of a table in one commit, with random numbers."""
    folder = f"{root}/{table}"
    numbers = np.random.default_rng().integers(0, 2**62, rows * len(days))
    at = pa.array(np.repeat(np.array(days, "datetime64[D]"), rows))
    files = write_table(pa.table({"n": numbers, "day": at}), folder, "day")

    def decide() -> list[Build]:
        when = Ledger(root).next_time(table)
        return [
            Build(table, day, "accepted", run, "1", f"{run} {day}", rows=rows, plan=plan, at=when)
            for day in days
        ]

    commit_and_record(root, table, decide, FileCommit(folder, "day", files, columns("day")))


def sums(root: str, table: str, version: int) -> list[tuple]:
    """The number of rows and the sum of each day, by DuckDB over the files of a version."""
    listed = pa.table(open_version_of(f"{root}/{table}", version).get_add_actions(flatten=True))
    paths = [f"{root}/{table}/{path}" for path in listed["path"].to_pylist()]
    return duckdb.execute(
        f"SELECT day, count(*), sum(n) FROM read_parquet({paths}, hive_partitioning=true)"
        " GROUP BY day ORDER BY day"
    ).fetchall()


def drill(folder: Path, rows: int) -> dict[str, float]:
    """The seconds of a backup and of a restore. Raises AssertionError for other rows."""
    lake = DrillLake(folder / "lake")
    root = str(lake.root)
    names = [table.name for table in TABLES]
    for name in names:
        for n in range(0, len(DAYS), 25):
            write_days(root, name, DAYS[n : n + 25], rows, f"run {n}")
    release_live(lake.workspace, who="sensor")
    plan = lake.shadow_plan({names[0]: DAYS[:2]}, workspace=lake.workspace)
    write_days(f"{root}/_shadow/{plan.id}", names[0], DAYS[:2], rows, "run", plan.id)
    ended = Event()

    def write() -> None:
        for n in range(10**6):
            if ended.is_set():
                return
            write_days(root, names[n % 8], [DAYS[2 + n % 98]], rows, f"night {n}")

    writer = Thread(target=write)
    writer.start()
    started = time.monotonic()
    made = back_up(root, str(folder / "backups"))
    backed_up = time.monotonic()
    ended.set()
    writer.join()
    again = str(folder / "again")
    resumed = time.monotonic()
    restore(str(folder / "backups"), again, 0, "ada")
    seconds = time.monotonic() - resumed
    for name in names:
        table = open_table(f"{again}/{name}")
        assert table
        version = int(table.version())
        assert sums(again, name, version) == sums(root, name, version)
        released = Releases(again).readable(1).tables[name].version
        assert sums(again, name, released) == sums(root, name, released)
    restored = DrillLake(folder / "again")
    published = Publication(plan, restored.workspace, "ada", "a drill").publish(approved)
    assert [build.day for build in published.builds] == DAYS[:2]
    return {
        "files": made.files,
        "backup s": backed_up - started,
        "restore s": seconds,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made_here:
        figures = drill(Path(made_here), int((sys.argv[1:] or ["20000"])[0]))
        for what, figure in figures.items():
            print(f"{what}: {figure:,.1f}")
