"""What is committed next of archives that are taken in: lines of one or of many, and what is then recorded of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from backfill_assets.lake.archived import Archived, LoadRecord, archived, commit
from backfill_assets.lake.slice import DataFile

# Small archives are committed together: each commit says of all archives how far they are in.
FILES = 1000


@dataclass(frozen=True)
class LoadResult:
    """What came of one archive in a run: the bytes that were read of it, what is recorded of it now, and its rows and days.

    `problem`: why it is not in, or not as it lies there; what was in before stays. `acceptable`: it is in doubt, and may be
    accepted. `left_out`: it was modified too late to be taken in. `dropped`: it is gone, and now is what was in of it.
    """

    name: str
    bytes_read: int = 0
    record: LoadRecord | None = None
    rows: int = 0
    days: Sequence[date] = ()
    problem: str = ""
    acceptable: bool = False
    left_out: bool = False
    dropped: bool = False


@dataclass
class Slice:
    """The archives of the table in `folder` as they are in once this slice is committed: its `files`, which hold lines of
    `size` bytes, and the results that are told then."""

    folder: str
    state: Archived
    committed: Archived
    files: list[DataFile] = field(default_factory=list)
    size: int = 0
    results: list[LoadResult] = field(default_factory=list)

    @classmethod
    def of(cls, folder: str) -> "Slice":
        state = archived(folder)
        return cls(folder, state, state)

    def is_full(self, slice_bytes: int) -> bool:
        return self.size >= slice_bytes or len(self.files) >= FILES

    def begin(self, name: str, record: LoadRecord) -> None:
        """Commit so much of one archive, of which no day has any row yet."""
        self.state = replace(self.state, begun={**self.state.begun, name: record})
        self._commit()

    def told(self) -> Iterator[LoadResult]:
        """Commit what there is; then what came of the archives in it."""
        self._commit()
        results, self.results = self.results, []
        yield from results

    def _commit(self) -> None:
        if self.state != self.committed:
            self.state = self.committed = commit(self.committed, self.state, self.files)
        self.files, self.size = [], 0
