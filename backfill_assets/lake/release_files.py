"""The releases as they stand at one version of their table: the rows of its files.

The log says which numbers a file has, so that one release is one small read, however many there are.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from backfill_assets.lake.record_table import RecordFiles
from backfill_assets.lake.release import from_row


@dataclass(frozen=True)
class ReleaseFiles:
    """The releases that are in these files. Rows are plain values."""

    files: RecordFiles

    def newest(self) -> dict[str, Any] | None:
        """The row with the highest number; None if there is none."""
        return self.row(max((file.facts["max.number"] for file in self.files.listed), default=0))

    def row(self, number: int) -> dict[str, Any] | None:
        """The row of that number; None if there is none."""
        rows = self._rows(number, number, pc.field("number") == number)
        return rows[0] if rows else None

    def rows(self, after: int = 0) -> list[dict[str, Any]]:
        """The rows with a higher number than `after`, by number."""
        rows = self._rows(after + 1, None, pc.field("number") > after)
        return sorted(rows, key=lambda row: row["number"])

    def with_plan(self, plan: str) -> int:
        """The number of the release that published a plan; 0 if there is none."""
        named = pc.match_substring(pc.field("plans"), f'"{plan}"') | pc.match_substring(pc.field("reason"), plan)
        rows = self._rows(0, None, named)
        return min((row["number"] for row in rows if plan in from_row(row).plans), default=0)

    def _rows(self, first: int, last: int | None, condition: ds.Expression) -> list[dict[str, Any]]:
        """The rows for which the condition holds, of the files with numbers from `first` to `last` (None: the highest)."""
        wanted = [
            file
            for file in self.files.listed
            if file.facts["max.number"] >= first and (last is None or file.facts["min.number"] <= last)
        ]
        return list(self.files.read(wanted, condition=condition).to_pylist())
