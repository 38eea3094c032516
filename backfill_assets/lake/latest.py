"""The last builds of every (table, day), read in bulk and changing nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.lake.ledger import Ledger, committed_builds, opened, version_of
from backfill_assets.lake.record import Build, from_arrow

Partition = tuple[str, date]
# Figures and verdicts stay where they are: reading them would take most of the time, and only one day's are ever asked for.
WHAT_STATUS_NEEDS = (
    "table", "day", "outcome", "run", "code_version", "fingerprint", "parts", "inputs", "delta_version", "seconds", "rows",
    "identity", "plan", "message", "at",
)  # fmt: skip


@dataclass(frozen=True)
class Latest:
    """Of each partition, the last build, and the last one whose rows stand in the table."""

    last: dict[Partition, Build] = field(default_factory=dict)
    accepted: dict[Partition, Build] = field(default_factory=dict)

    def add(self, builds: Iterable[Build]) -> None:
        for build in builds:
            partition = (build.table, build.day)
            self.last[partition] = build
            if build.succeeded:
                self.accepted[partition] = build


def latest(ledger: Ledger, tables: Collection[str]) -> Latest:
    """As the ledger and the tables' own commits tell: what a crash left out of the ledger is seen, and not yet mended."""
    found, recorded = Latest(), dict.fromkeys(tables, -1)
    table = opened(ledger.path)
    if table is not None:
        rows = table.to_pyarrow_table(columns=list(WHAT_STATUS_NEEDS), filters=[("table", "in", sorted(tables))])
        for newest in rows.group_by("table").aggregate([("delta_version", "max")]).to_pylist():
            recorded[newest["table"]] = newest["delta_version_max"]
        found.add(from_arrow(rows.take(_last_rows(rows))))
    for name, version in recorded.items():
        path = f"{ledger.root}/{name}"
        if version_of(path) > version:
            found.add(committed_builds(path, after=version))
    return found


def _last_rows(rows: pa.Table) -> pa.Array:
    """Where the last build of each partition is, and the last that stands; in order of time."""
    by_time = pc.sort_indices(rows["at"])
    partitions = rows.select(["table", "day"]).append_column("failed", pc.equal(rows["outcome"], "failed")).take(by_time)
    numbered = partitions.append_column("number", pa.array(range(len(by_time)), pa.int64()))  # typed: of no rows, too
    last = numbered.group_by(["table", "day", "failed"]).aggregate([("number", "max")])["number_max"]
    return by_time.take(last.sort())
