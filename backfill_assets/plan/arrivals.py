"""How many rows arrived when, about which days, in the inputs that are read by that day: from the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.lake.latest import Latest
from backfill_assets.plan.late import late_reads, rows_of
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Arrivals:
    """The rows of `table` by arrival day and the day that they are about (None: not known), and after how many days a row is
    late, and in no day any more, by the windows of the tables that read it."""

    table: str
    rows: Sequence[tuple[date, date | None, int]]
    watermark: int
    horizon: int


def arrivals_of(workspace: Workspace, builds: Latest) -> list[Arrivals]:
    """Those of every table whose rows may be late, in the order of the tables."""
    reads = [read for table in workspace.tables for read in late_reads(table)]
    return [
        Arrivals(
            table.name,
            [
                (day, date.fromisoformat(about) if about else None, rows_of(mark))
                for (name, day), build in sorted(builds.accepted.items(), key=lambda item: item[0])
                if name == table.name
                for about, mark in sorted(build.day_fingerprints.items())
            ],
            min(window.last_needed for other, window in reads if other is table),
            max(window.last for other, window in reads if other is table),
        )
        for table in workspace.tables
        if any(other is table for other, _ in reads)
    ]
