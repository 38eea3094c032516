"""One thing that is at odds between the records of what was built, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from backfill_assets.calendar import ranges


class Kind(StrEnum):
    """What is at odds."""

    UNRECORDED = "committed, but not in the ledger"
    NO_COMMIT = "in the ledger, but its commit is not in the table"
    NOT_OURS = "rewritten by somebody else"
    OTHER_ROWS = "the table holds other rows than the ledger says"
    UNKNOWN = "holds rows of which the ledger knows no build"
    UNTOLD = "stands, but Dagster does not call it materialized"
    OTHER_VERSION = "stands, but Dagster was last told of other rows"
    NOT_STANDING = "Dagster calls it materialized, but no build of it stands"


MENDABLE = frozenset({Kind.UNRECORDED, Kind.UNTOLD, Kind.OTHER_VERSION})
# Of these the ledger says that nothing need be done: a plan leaves them out unless it is told otherwise.
BY_FORCE = frozenset({Kind.NO_COMMIT, Kind.NOT_OURS, Kind.OTHER_ROWS})


@dataclass(frozen=True)
class Disagreement:
    """One thing at odds, and of each day of one table it is true of, the figures."""

    kind: Kind
    table: str
    days: Mapping[date, str]
    buildable: bool = True

    @property
    def mendable(self) -> bool:
        return self.kind in MENDABLE

    def remedy(self) -> str:
        if self.mendable:
            return "`backfill reconcile --repair` mends the record."
        if not self.buildable:
            return "No table of that name is built any more: bring it back into the catalog, or remove its folder."
        days = ranges(self.days).replace(", ", ",")
        force = " --force" if self.kind in BY_FORCE else ""
        return f"Build again: `backfill run --partitions {days} --target {self.table}{force}`."
