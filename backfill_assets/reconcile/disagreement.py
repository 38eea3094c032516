"""A disagreement between the records of what was built, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from backfill_assets.calendar import days_as_typed


class Kind(StrEnum):
    """In what the records disagree."""

    UNREADABLE = "in the ledger, but the table cannot be read"
    UNRECORDED = "committed, but not in the ledger"
    NO_COMMIT = "in the ledger, but its commit is not in the table"
    FOREIGN_COMMIT = "rewritten by somebody else"
    ROW_COUNT_DIFFERS = "the table holds another number of rows than the ledger says"
    UNKNOWN_ROWS = "the table holds rows, but the ledger has no build of them"
    NOT_REPORTED = "accepted, but Dagster does not call it materialized"
    DATA_VERSION_DIFFERS = "accepted, but Dagster has another data version"
    SHOWN_FAILED = "up to date, but Dagster shows it as failed"
    SHOWN_STALE = "up to date, but Dagster shows it as stale"
    NOT_ACCEPTED = "Dagster calls it materialized, but it has no accepted build"


# What `reconcile --repair` puts right: records, and no rows.
REPAIRABLE = frozenset({Kind.UNRECORDED, Kind.NOT_REPORTED, Kind.DATA_VERSION_DIFFERS, Kind.SHOWN_FAILED, Kind.SHOWN_STALE})

# Rows of which the log may still have the accepted ones, and the command that puts those back.
RESTORABLE = frozenset({Kind.FOREIGN_COMMIT, Kind.ROW_COUNT_DIFFERS})
RESTORE = "backfill reconcile --restore"


@dataclass(frozen=True)
class Disagreement:
    """A disagreement of one kind about one table: the days, with the figures of each."""

    kind: Kind
    table: str
    days: Mapping[date, str]
    buildable: bool = True

    @property
    def repairable(self) -> bool:
        return self.kind in REPAIRABLE

    def remedy(self) -> str:
        if self.kind is Kind.UNREADABLE:
            return "Restore its folder from a copy, or move it away, then build its days again."
        if self.repairable:
            return "`backfill reconcile --repair` corrects the record."
        if not self.buildable:
            return "The project has no table of that name any more: bring it back, or delete its folder."
        again = f"Build again: `backfill run --partitions {days_as_typed(self.days)} --target {self.table}`."
        return f"{again} Or put back the rows that were accepted: `{RESTORE}`." if self.kind in RESTORABLE else again
