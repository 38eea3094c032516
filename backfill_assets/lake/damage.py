"""Damage to a day: its differences from the accepted rows, as typed facts.

`integrity` finds damage in the log and in the files, and `Latest` finds it in the audits.
The text for people is made here only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import IntEnum, StrEnum


class Depth(IntEnum):
    """How closely days are checked. A deeper check includes the shallower ones."""

    LOG = 1  # reads the table's log
    FILES = 2  # asks the store for the size of each file
    BYTES = 3  # reads each file to its end


class DamageKind(StrEnum):
    """The kinds of damage to a day."""

    LOG_UNREADABLE = "log unreadable"
    COLUMNS_RENAMED = "columns renamed"
    TABLE_GONE = "table gone"
    COMMIT_GONE = "commit gone"
    OVERWRITTEN = "overwritten"
    NOT_IN_LEDGER = "not in the ledger"
    REWRITTEN = "rewritten"
    ROW_COUNT = "row count"
    WITHOUT_BUILD = "without a build"
    FILE_MISSING = "file missing"
    FILE_SIZE = "file size"
    FILE_UNREADABLE = "file unreadable"
    OTHER_ROWS = "other rows"


OF_FILES = (DamageKind.FILE_MISSING, DamageKind.FILE_SIZE, DamageKind.FILE_UNREADABLE)


@dataclass(frozen=True)
class ForeignCommits:
    """Consecutive commits of other writers, and the days whose files they changed."""

    first: int
    last: int
    operations: Sequence[str]
    days: frozenset[date]

    def __str__(self) -> str:
        one = self.first == self.last
        versions = f"commit {self.first}" if one else f"commits {self.first} to {self.last}"
        return f"{versions} ({', '.join(self.operations)})"


@dataclass(frozen=True)
class Damage:
    """Why a day does not hold the accepted rows. `str()` gives the text for people.

    `version`: the commit in question. `found` and `expected`: rows, or bytes of the `file`.
    `detail`: the text of an error, of an audit, or of a setting.
    """

    kind: DamageKind
    version: int = -1
    commits: ForeignCommits | None = None
    file: str = ""
    found: int = 0
    expected: int = 0
    detail: str = ""

    def __str__(self) -> str:
        match self.kind:
            case DamageKind.TABLE_GONE:
                return "its table is gone"
            case DamageKind.COMMIT_GONE:
                return f"its commit {self.version} is not in the table any more"
            case DamageKind.OVERWRITTEN:
                return f"its commit {self.version} was replaced by {self.commits} of another writer"
            case DamageKind.NOT_IN_LEDGER:
                repair = "`backfill reconcile --repair` records it"
                return f"its commit {self.version} is not in the ledger: {repair}"
            case DamageKind.REWRITTEN:
                return f"it was rewritten by {self.commits}, not by this project"
            case DamageKind.ROW_COUNT:
                return f"its files hold {self.found:,} rows, and {self.expected:,} were accepted"
            case DamageKind.WITHOUT_BUILD:
                return "has rows without a recorded build: see `backfill reconcile`"
            case DamageKind.COLUMNS_RENAMED:
                mode = f"delta.columnMapping.mode={self.detail}"
                return f"columns of the table were renamed ({mode}), not by this project"
            case DamageKind.FILE_MISSING:
                return f"its file {self.file} is missing"
            case DamageKind.FILE_SIZE:
                sizes = f"{self.found:,} bytes, and {self.expected:,} were written"
                return f"its file {self.file} has {sizes}"
            case DamageKind.FILE_UNREADABLE:
                return f"its file {self.file} cannot be read: {self.detail}"
            case _:
                return self.detail


DamageByDay = dict[date, Damage]
