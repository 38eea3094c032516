"""A lake that is maintained: what lies in it, what its releases hold, and days of many files. No Spark."""

import hashlib
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.files import write_table
from backfill_assets.lake.maintenance import Maintenance, maintain
from backfill_assets.lake.record import Build
from backfill_assets.lake.release import STABLE
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.upkeep import MANY_FILES, TableUpkeep
from backfill_assets.publish.live import live_tables
from tests.publish.site import A, Site, columns

WINDOW = 30


def later(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def run(site: Site, days: float = 0) -> Maintenance:
    """Maintain the lake as if it were so many days later."""
    return maintain(str(site.root), WINDOW, later(days), "ada")


def age(site: Site, days: float) -> None:
    """Make everything that lies in the lake older by so many days."""
    for path in site.root.rglob("*"):
        then = path.stat().st_mtime - timedelta(days=days).total_seconds()
        os.utime(path, (then, then))


def of_table(done: Maintenance, name: str = A.name) -> TableUpkeep:
    return next(table for table in done.tables if table.name == name)


def on_disk(site: Site, table: str = A.name) -> set[str]:
    """The data files in the folder of a table."""
    paths = {path.relative_to(site.root / table) for path in (site.root / table).rglob("*.parquet")}
    return {str(path) for path in paths if path.parts[0] != "_delta_log"}


def release(site: Site, *channels: str) -> int:
    """Release live as it stands."""
    releases = Releases(str(site.root))
    newest = releases.newest()
    tables = live_tables(site.workspace, newest)
    return releases.add(newest, tables, kind="live", who="ada", reason="r", channels=channels or (STABLE,)).number


def values_of(site: Site, number: int) -> dict[date, int]:
    """The value of each day of A as a release has it; each as often as it says."""
    release = Releases(str(site.root)).readable(number)
    rows = ReleasedTable(str(site.root), release, A.name).dataset().to_table()
    pairs = list(zip(rows["day"].to_pylist(), rows["n"].to_pylist(), strict=True))
    assert all(pairs.count(pair) == pair[1] for pair in set(pairs)), pairs
    return dict(sorted(set(pairs)))


def write_in_many_files(site: Site, at: date, count: int = MANY_FILES + 1) -> None:
    """Write a day of A, of the value `count`, by a night whose build has a file a row."""
    folder, ledger = str(site.root / A.name), site.workspace.lake.ledger
    row = pa.table({"n": pa.array([count], pa.int64()), "day": pa.array([at], pa.date32())})
    files = [file for _ in range(count) for file in write_table(row, folder, "day")]

    def decide() -> list[Build]:
        when = ledger.next_time(A.name)
        return [Build(A.name, at, "accepted", f"run{when}", "1", fingerprint=f"{count}", rows=count, at=when)]

    commit_and_record(str(site.root), A.name, decide, FileCommit(folder, "day", files, columns("day")))


def contents(root: Path) -> dict[str, str]:
    """Everything in a folder, folders too, with a hash of what is in a file."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in root.rglob("*")
    }
