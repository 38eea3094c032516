"""Records of builds, and commits as a step leaves them, written with the deltalake library. No Spark."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from backfill_assets.lake.record import Build
from backfill_assets.lake.recovery import commit_metadata
from tests.deliveries import day

TABLE = "staging/o"
NOON = datetime(2019, 10, 14, 12, tzinfo=UTC)


def build(number: int = 0, minutes: int = 0, **fields: Any) -> Build:
    known: dict[str, Any] = {"run": "r", "code_version": "1", "outcome": "accepted", "at": NOON + timedelta(minutes=minutes)}
    return Build(TABLE, day(number), **known | fields)


FULL = build(
    fingerprint="1-2-3", rows=1, nulls={"a": 1}, measures={"m": 2}, samples={"s": ["x"]},
    day_fingerprints={"2019-08-15": "p"}, inputs={"t": {"2019-08-15": "f"}}, delivered="d", files={"f": 1}, accept="f",
    input_versions={"t": 4}, git_commit="c",
    checks=[{"rule": "r", "passed": True, "message": "", "figures": {"rows": 1}, "severity": "error", "rows": []}],
    delta_version=3, seconds=0.5, write_mode="merge", plan="p", who="w", reason="why", message="m",
)  # fmt: skip


def commit(lake: Path, *builds: Build, metadata: str | None = None) -> None:
    """A commit of one row to the table, with the builds' metadata or another."""
    text = commit_metadata(builds) if metadata is None else metadata
    properties = CommitProperties(custom_metadata={"userMetadata": text})
    write_deltalake(str(lake / TABLE), pa.table({"a": [1]}), mode="append", commit_properties=properties)


def days_of(builds: Sequence[Build]) -> list[Any]:
    return [each.day for each in builds]


def write_days(root: Path, *builds: Build, ours: bool = True, columns: Sequence[str] = ("outage_day", "n")) -> None:
    """Replace each build's day by as many rows as it has, in one commit with their metadata, or without any.

    The first of `columns` is the day, the others are texts.
    """
    rows, (partition_by, *texts) = [(b.day, str(n)) for b in builds for n in range(b.rows)], columns
    days, numbers = pa.array([at for at, _ in rows], pa.date32()), pa.array([n for _, n in rows], pa.string())
    path, exists = root / builds[0].table, (root / builds[0].table / "_delta_log").exists()
    metadata = {"userMetadata": commit_metadata(builds)} if ours else {}
    write_deltalake(
        str(path),
        pa.table({partition_by: days, **dict.fromkeys(texts, numbers)}),
        partition_by=[partition_by],
        mode="overwrite",
        predicate=" OR ".join(f"{partition_by} = '{b.day}'" for b in builds) if exists else None,
        commit_properties=CommitProperties(custom_metadata=metadata),
    )
