"""Diffs in the lake: `_diffs/<id>.json`, and pages of them beside, each written whole or not at all.

One that cannot be read is made again.
"""

from dataclasses import dataclass

from backfill_assets.diff.diff import Diff, read_diff
from backfill_assets.lake.documents import Documents
from backfill_assets.lake.paths import Paths


@dataclass(frozen=True)
class Diffs:
    """The diffs of the lake at `root`, a directory or an object-store prefix."""

    root: str

    def read(self, diff_id: str) -> Diff | None:
        """The diff of that id; None if there is none, or it is not what was kept any more."""
        try:
            diff = read_diff(self._documents.read(f"{diff_id}.json"))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return diff if diff.id == diff_id else None

    def keep(self, diff: Diff) -> None:
        """Write a diff, in place of one of the same id."""
        self._write(f"{diff.id}.json", diff.contents())

    def keep_page(self, diff_id: str, page: str) -> str:
        """Write the page of a diff beside it; where it is."""
        self._write(f"{diff_id}.html", page)
        return f"{self._documents.folder}/{diff_id}.html"

    def _write(self, name: str, text: str) -> None:
        # Text of a table may hold half a surrogate pair, which no file takes.
        self._documents.write(name, text.encode(errors="backslashreplace").decode())

    @property
    def _documents(self) -> Documents:
        return Documents(Paths(self.root).diffs)
