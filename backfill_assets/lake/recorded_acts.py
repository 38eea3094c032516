"""Acts as values, and the documents that record the stage of each act.

An act is a decided change of several tables (`acts.py` carries it out). Its first document has
everything that is needed to finish it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from pydantic import TypeAdapter

from backfill_assets.calendar import Partition
from backfill_assets.lake.broken_files import unreadable
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.ledger import COMMITTED, ActKind, Build
from backfill_assets.lake.listed_files import hash_by_day
from backfill_assets.lake.moves import Move
from backfill_assets.lake.numbered_documents import Document, NumberedDocuments
from backfill_assets.lake.releases import TableVersion
from backfill_assets.lake.slices import DataFile
from backfill_assets.lake.storage import Paths


@dataclass(frozen=True)
class TableChange:
    """The change of an act in one table: the new files of its days, and their builds.

    A build that is `unchanged` has no files, and is only recorded. `columns` are the columns of the
    files, as JSON. `source` is the folder in the lake from which the files come; "" for the folder
    of the table. `before` is the version at the decision (None: no table).
    """

    table: str
    column: str
    builds: tuple[Build, ...]
    files: tuple[DataFile, ...]
    columns: str
    before: TableVersion | None
    source: str = ""

    @classmethod
    def of(
        cls,
        root: str,
        table: str,
        column: str,
        builds: Iterable[Build],
        move: Move,
        before: TableVersion | None,
        source: str = "",
    ) -> TableChange:
        """The change with these builds and files. Raises UsageError if the table rejects them."""
        folder = Paths(root).table(table)
        hashes = hash_by_day((file.day, file.path) for file in move.files)
        builds = tuple(
            replace(build, data_files=hashes.get(build.day, ""))
            if build.outcome in COMMITTED
            else build
            for build in builds
        )
        change = cls(table, column, builds, tuple(move.files), move.columns, before, source)
        if days := [build.day for build in change.committed]:
            FileCommit(folder, column, *move).refuse_unfit(open_table(folder), days)
        return change

    @property
    def committed(self) -> list[Build]:
        """The builds with new files."""
        return [build for build in self.builds if build.outcome in COMMITTED]


@dataclass(frozen=True)
class NextRelease:
    """The release of an act. `after` is the newest release at the decision (0: none).

    `tables` are the versions of all tables at the decision. The release has these, and the tables
    of the act as committed.
    """

    after: int
    tables: Mapping[str, TableVersion]
    recorded: Mapping[str, datetime]
    reason: str


@dataclass(frozen=True)
class Act:
    """A decided change of live. Its builds have `id` as their run.

    `changes` are in the order in which tables are committed, inputs first. `left` is the number of
    partitions that a partial publication leaves in the shadow. `counts` are for people: the numbers
    of partitions that are `published`, `restored`, `removed`, or `left` as they were.
    """

    id: str
    kind: ActKind
    plan: str
    who: str
    reason: str
    changes: tuple[TableChange, ...]
    release: NextRelease | None = None
    left: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        return [change.table for change in self.changes]

    @property
    def builds(self) -> list[Build]:
        return [build for change in self.changes for build in change.builds]

    @property
    def partitions(self) -> set[Partition]:
        """The partitions that get new files."""
        return {(change.table, build.day) for change in self.changes for build in change.committed}


class Stage(StrEnum):
    """The stages of an act. Each is one document."""

    RECORDED = "recorded"
    COMMITTING = "committing"
    ABORTED = "aborted"
    ENDED = "ended"


# Why the foreign partitions of an act prevent its release.
FOREIGN = "another program wrote it after this was decided, or its files were lost"
# The documents about an act, after the act itself.
_DECIDED = "decided"
_ENDED = "ended"
_ABOUT = {
    Stage.RECORDED: "",
    Stage.COMMITTING: _DECIDED,
    Stage.ABORTED: _DECIDED,
    Stage.ENDED: _ENDED,
}


@dataclass(frozen=True)
class ActEntry:
    """A stage of the act `number`. `reason` says why an act was aborted.

    An act that has ended has the number of its `release` (0: none), and the `foreign` partitions
    that prevented it.
    """

    number: int
    stage: Stage
    at: datetime
    id: str
    kind: ActKind
    plan: str
    who: str
    reason: str
    left: int
    counts: Mapping[str, int] = field(default_factory=dict)
    release: int = 0
    foreign: tuple[Partition, ...] = ()


_ENTRY = TypeAdapter(ActEntry)
_ACT = TypeAdapter(Act)


def _json(entry: ActEntry, act: Act | None) -> str:
    # Pydantic's own JSON supports neither NaN nor file names that are not UTF-8.
    values = {"entry": _ENTRY.dump_python(entry), "act": act and _ACT.dump_python(act)}
    return json.dumps(values, default=lambda time: time.isoformat())


def _entry(contents: bytes) -> ActEntry:
    return _ENTRY.validate_python(json.loads(contents)["entry"])


@dataclass(frozen=True)
class Acts:
    """The acts of the lake at `root`. An act is recorded after the previous one has ended.

    Act 12 is `_acts/000000012.json`, its outcome `000000012-decided.json`, and its end
    `000000012-ended.json`. The first writer of each decides for all.
    """

    root: str

    @property
    def documents(self) -> NumberedDocuments:
        return NumberedDocuments(self.root, "_acts")

    def newest(self) -> ActEntry | None:
        """The last stage of the newest act; None if there is none."""
        newest = self.documents.newest()
        return _entry(*self.documents.read([newest])) if newest else None

    def unfinished(self) -> tuple[int, Act] | None:
        """The act that was begun and has not ended, with its number; None if there is none."""
        newest = self.documents.newest()
        if newest is None or newest.about == _ENDED:
            return None
        if newest.about == _DECIDED:
            (contents,) = self.documents.read([newest])
            if _entry(contents).stage == Stage.ABORTED:
                return None
        return newest.number, self.act(newest.number)

    def act(self, number: int) -> Act:
        """The act of that number. Raises BrokenFile if its first document is missing."""
        contents = self.documents.get(number)
        if contents is None:
            path = self.documents.path
            raise unreadable(Path(path, f"{number:09d}.json"), "is missing", path)
        return _ACT.validate_python(json.loads(contents)["act"])

    def outcome(self, number: int) -> ActEntry | None:
        """The decision about an act; None if there is none."""
        return self._about(number, _DECIDED)

    def last_of_plans(self) -> Mapping[str, ActEntry]:
        """The last decided act of each plan, without aborted acts."""
        return {entry.plan: entry for entry in self._committed()}

    def of_plan(self, plan: str) -> list[ActEntry]:
        """The decided acts of a plan, oldest first, without aborted acts.

        Each entry is about the last stage of the act.
        """
        entries = [entry for entry in self._committed() if entry.plan == plan]
        return [self._about(entry.number, _ENDED) or entry for entry in entries]

    def _about(self, number: int, about: str) -> ActEntry | None:
        contents = self.documents.get(number, about)
        return _entry(contents) if contents else None

    def _committed(self) -> Sequence[ActEntry]:
        listed = self.documents.listed()
        return _committed(self.documents, tuple(d for d in listed if d.about == _DECIDED))

    def add(
        self,
        act: Act,
        stage: Stage,
        number: int,
        reason: str = "",
        release: int = 0,
        foreign: Iterable[Partition] = (),
    ) -> bool:
        """Record a stage of an act. Return False, and record nothing, if another writer did.

        Raises ServiceUnavailable if the stage cannot be written.
        """
        entry = ActEntry(
            number,
            stage,
            datetime.now(UTC),
            act.id,
            act.kind,
            act.plan,
            act.who,
            reason or act.reason,
            act.left,
            act.counts,
            release,
            tuple(sorted(foreign)),
        )
        contents = _json(entry, act if stage == Stage.RECORDED else None)
        return self.documents.add(number, contents, _ABOUT[stage])


@lru_cache(maxsize=4)
def _committed(documents: NumberedDocuments, decided: tuple[Document, ...]) -> Sequence[ActEntry]:
    """The decisions in these documents, without aborted acts. Documents never change."""
    entries = map(_entry, documents.read(decided))
    return [entry for entry in entries if entry.stage == Stage.COMMITTING]
