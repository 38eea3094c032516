"""The tables of a lake: where they are, at which version, and the rows of a slice.

Live tables are at `<lake>/<layer>/<table>`, partitioned by their day. They are written by `commit` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets.lake.ledger import Ledger, version_of
from backfill_assets.lake.paths import Paths

if TYPE_CHECKING:
    from backfill_assets.lake.reading import SliceReader
    from backfill_assets.lake.slice import Slice


@dataclass(frozen=True)
class Lake:
    """The tables under one root: a directory or an object-store prefix."""

    root: str

    @property
    def paths(self) -> Paths:
        return Paths(self.root)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.root)

    def path(self, name: str) -> str:
        return self.paths.table(name)

    def version(self, name: str) -> int:
        """The newest version of a table; -1 where there is none."""
        return version_of(self.path(name))

    def reader(self, rows: Slice, columns: str) -> SliceReader:
        """What reads a slice, as the rows of the declared `columns`."""
        from backfill_assets.lake.reading import SliceReader

        return SliceReader(self.path(rows.table), rows, columns)
