"""The releases as they stand at one version of their table: the rows of its files.

The log says which numbers a file has, so that one release is one small read, however many there are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from backfill_assets.lake.paths import files_in
from backfill_assets.lake.release import SCHEMA, from_row

# Whether a file is of interest, by the lowest and the highest number in it.
Wanted = Callable[[int, int], bool]


@dataclass(frozen=True)
class ReleaseFiles:
    """The files of the releases at `path` as `log` lists them; none where `log` is None. Rows are plain values."""

    path: str
    log: DeltaTable | None

    def newest(self) -> dict[str, Any] | None:
        """The row with the highest number; None if there is none."""
        return self.row(max((highest for _, _, highest in self._files), default=0))

    def row(self, number: int) -> dict[str, Any] | None:
        """The row of that number; None if there is none."""
        rows = self._rows(lambda low, high: low <= number <= high, pc.field("number") == number)
        return rows[0] if rows else None

    def rows(self, after: int = 0) -> list[dict[str, Any]]:
        """The rows with a higher number than `after`, by number."""
        return sorted(self._rows(lambda _, high: high > after, pc.field("number") > after), key=lambda row: row["number"])

    def with_plan(self, plan: str) -> int:
        """The number of the release that published a plan; 0 if there is none."""
        named = pc.match_substring(pc.field("plans"), f'"{plan}"') | pc.match_substring(pc.field("reason"), plan)
        rows = self._rows(lambda _, __: True, named)
        return min((row["number"] for row in rows if plan in from_row(row).plans), default=0)

    def _rows(self, wanted: Wanted, condition: ds.Expression) -> list[dict[str, Any]]:
        paths = [path for path, low, high in self._files if wanted(low, high)]
        if not paths:
            return []
        rows = ds.dataset(paths, SCHEMA, ds.ParquetFileFormat(), files_in(self.path)).to_table(filter=condition)
        return list(rows.to_pylist())

    @cached_property
    def _files(self) -> list[tuple[str, int, int]]:
        """Each data file, and the lowest and the highest number in it."""
        listed = pa.table(self.log.get_add_actions(flatten=True)) if self.log else None
        if listed is None or not listed.num_rows:
            return []
        return list(zip(*(listed[name].to_pylist() for name in ("path", "min.number", "max.number")), strict=True))
