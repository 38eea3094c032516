"""Diffs in the lake: `_diffs/<id>.json`, each written whole or not at all. One that cannot be read is made again."""

from dataclasses import dataclass

from backfill_assets.lake.documents import Documents
from backfill_assets.lake.paths import Paths
from backfill_assets.publish.diff import Diff, read_diff


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
        self._documents.write(f"{diff.id}.json", diff.contents())

    @property
    def _documents(self) -> Documents:
        return Documents(Paths(self.root).diffs)
