"""Publishers of releases, each a thread or a process of its own, and tables to release, written with deltalake. No Spark."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from backfill_assets.errors import Conflict
from backfill_assets.lake.release import Release, TableVersion
from backfill_assets.lake.releases import Releases
from tests.deliveries import day

NAME, COLUMN = "staging/o", "outage_day"


def tables(version: int, name: str = NAME) -> dict[str, TableVersion]:
    return {name: TableVersion(name, version)}


def release(releases: Releases, version: int, after: Release | None = None, who: str = "ada") -> Release:
    return releases.add(after or releases.newest(), tables(version), kind="live", who=who, reason=f"version {version}")


def release_many(root: str, who: str, times: int, start: Callable[[], object] = lambda: None) -> int:
    """Add `times` releases among others who do so too; how often somebody else came first."""
    start()
    releases, conflicts, added = Releases(root), 0, 0
    while added < times:
        try:
            release(releases, added, releases.newest(), who)
            added += 1
        except Conflict:
            conflicts += 1
    return conflicts


def write(root: Path, rows: dict[date, list[str]], name: str = NAME) -> None:
    """Replace these days of a table by rows of these texts, in one commit; its folder and log are made by the first."""
    path = root / name
    made = (path / "_delta_log").exists()
    flat = [(at, n) for at, of_day in rows.items() for n in of_day]
    table = pa.table({COLUMN: pa.array([at for at, _ in flat], pa.date32()), "n": pa.array([n for _, n in flat], pa.string())})
    where = " OR ".join(f"{COLUMN} = '{at}'" for at in rows) if made else None
    write_deltalake(str(path), table, partition_by=[COLUMN], mode="overwrite", predicate=where)


THREE_DAYS = {day(n): [f"{n}a", f"{n}b"] for n in range(3)}
