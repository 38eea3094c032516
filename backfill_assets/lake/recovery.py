"""Every build there was: those of the ledger, and those that only a table's own commits tell of.

A run that dies between its data commit and the ledger leaves the second kind. `Ledger.mend` looks for them after the
newest commit recorded, which is all a step needs; here every commit the table remembers is looked at, holes included.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from backfill_assets.lake.ledger import Ledger, committed_builds, opened
from backfill_assets.lake.locks import writing
from backfill_assets.lake.record import Build

Key = tuple[str, date, str, datetime]


@dataclass(frozen=True)
class Trail:
    """Builds in order of time: `recorded` in the ledger, or `left_out` of it."""

    recorded: Sequence[Build]
    left_out: Sequence[Build]

    def builds(self) -> list[Build]:
        return sorted([*self.recorded, *self.left_out], key=lambda b: b.at)


def trail(ledger: Ledger, tables: Collection[str], columns: Sequence[str] | None = None) -> Trail:
    """What became of `tables`, changing nothing. `columns` narrows what is read of each build in the ledger."""
    recorded = ledger.builds(tables, columns)
    told = [build for name in tables for build in committed_builds(f"{ledger.root}/{name}")]
    return Trail(recorded, left_out(recorded, told))


def left_out(recorded: Iterable[Build], told: Iterable[Build]) -> list[Build]:
    """Those builds that commits tell of and the ledger does not, in order of time."""
    known = {key(build) for build in recorded}
    return sorted((build for build in told if key(build) not in known), key=lambda b: b.at)


def key(build: Build) -> Key:
    """A build, and no other: a run builds a day more than once only if it tries again, later."""
    return build.table, build.day, build.run, build.at


def record_left_out(ledger: Ledger, table: str) -> list[Build]:
    """Bring into the ledger what it lacks of one table, once no writer is at work on that table."""
    with writing(ledger.root, table):  # a live writer holds this until it has recorded what it committed
        missing = left_out(ledger.builds([table]), committed_builds(f"{ledger.root}/{table}"))
        ledger.append(missing)
    return missing


def tables_in(ledger: Ledger) -> list[str]:
    """Every table that was ever built, those that have another name by now too."""
    table = opened(ledger.path)
    if table is None:
        return []
    return sorted({part["table"] for part in table.partitions()})
