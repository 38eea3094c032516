"""What an act is, and the table that records how far each act is.

An act is a decided change of several tables (`acts.py` carries it out). Its first entry has
everything that is needed to finish it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pydantic import TypeAdapter

from backfill_assets.calendar import Partition
from backfill_assets.errors import ServiceUnavailable
from backfill_assets.lake.delta import one_line, open_table
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.ledger import COMMITTED, ActKind, Build
from backfill_assets.lake.listed_files import hash_by_day
from backfill_assets.lake.moves import Move
from backfill_assets.lake.record_table import RecordFiles, RecordTable
from backfill_assets.lake.releases import TableVersion
from backfill_assets.lake.slices import DataFile
from backfill_assets.lake.storage import Paths


@dataclass(frozen=True)
class TableChange:
    """What an act changes in one table: the files that its days get, and their builds.

    A build that is `unchanged` has no files here, and is only recorded. `columns` are those of the
    files, as JSON. `source` is the folder in the lake from which the files come; "" if they are in
    the folder of the table. `before` is the version that the decision saw (None: no table).
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
    """The release of an act. `after` is the newest release that the decision saw (0: none).

    `tables` are the versions of all tables that the decision saw. The release has these, and the
    tables of the act as the act committed them.
    """

    after: int
    tables: Mapping[str, TableVersion]
    recorded: Mapping[str, datetime]
    reason: str


@dataclass(frozen=True)
class Act:
    """A decided change of live. `id` names it in the builds that it records, as their run.

    `changes` are in the order in which tables are committed, inputs first. `left` is the number of
    partitions that a publication in part leaves in the shadow.
    """

    id: str
    kind: ActKind
    plan: str
    who: str
    reason: str
    changes: tuple[TableChange, ...]
    release: NextRelease | None = None
    left: int = 0

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
    """How far an act is. Each stage is one entry in the table of acts."""

    RECORDED = "recorded"
    COMMITTING = "committing"
    ABORTED = "aborted"
    ENDED = "ended"


NAME = "_acts"
_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("entry", pa.string()),
        # The whole act, in its first entry.
        ("act", pa.string()),
        ("token", pa.string()),
    ]
)
# The entries of a thousand acts. The files of large acts are left alone.
_COMPACTED_BYTES = 2**18


@dataclass(frozen=True)
class ActEntry:
    """A stage of an act, as recorded under a number. `reason` says why an act was aborted."""

    number: int
    stage: Stage
    at: datetime
    id: str
    kind: ActKind
    plan: str
    who: str
    reason: str
    left: int


_ENTRY = TypeAdapter(ActEntry)
_ACT = TypeAdapter(Act)


def _json(act: Act) -> str:
    # Pydantic's own JSON has no NaN, and no names of files that are not UTF-8.
    return json.dumps(_ACT.dump_python(act), default=_iso)


def _iso(time: date) -> str:
    return time.isoformat()


@dataclass(frozen=True)
class Acts:
    """The acts of the lake at `root`. The next one is recorded after the last one has ended."""

    root: str

    @property
    def records(self) -> RecordTable:
        return RecordTable(
            self.root,
            NAME,
            _SCHEMA,
            form="entry",
            bounds="number",
            compacted=_COMPACTED_BYTES,
            retries=0,
        )

    def newest(self) -> ActEntry | None:
        """The newest entry; None if there is none."""
        files = self.records.files()
        number = files.highest_number()
        return next(_entries(files, number, number), None)

    def unfinished(self) -> tuple[int, Act] | None:
        """The act that was begun and has not ended, with its number; None if there is none."""
        newest = self.newest()
        if newest is None or newest.stage in (Stage.ABORTED, Stage.ENDED):
            return None
        number = newest.number - (newest.stage == Stage.COMMITTING)
        rows = self.records.files().numbered(number, number, ["act"])
        act = json.loads(rows["act"][0].as_py())
        return number, _ACT.validate_python(act)

    def outcome(self, number: int) -> ActEntry | None:
        """The decision about the act that was recorded as entry `number`; None if there is none."""
        return next(_entries(self.records.files(), number + 1, number + 1), None)

    def last_of_plans(self) -> Mapping[str, ActEntry]:
        """The last act of each plan that was decided, without aborted ones."""
        files = self.records.files()
        facts = files.log.facts if files.log else {}
        if NAME not in facts:
            facts[NAME] = {entry.plan: entry for entry in _decided(files)}
        return dict(facts[NAME])

    def of_plan(self, plan: str) -> list[ActEntry]:
        """The acts of a plan that were decided, oldest first, without aborted ones."""
        return [entry for entry in _decided(self.records.files()) if entry.plan == plan]

    def add(self, act: Act, stage: Stage, after: int, reason: str = "") -> bool:
        """Add an entry after the entry `after`. False, and nothing is added, if another is there.

        The first entry of an act may skip numbers.
        Raises ServiceUnavailable if it cannot be written.
        """
        now = datetime.now(UTC)
        why = reason or act.reason
        entry = ActEntry(after + 1, stage, now, act.id, act.kind, act.plan, act.who, why, act.left)
        row = {
            "number": entry.number,
            "entry": _ENTRY.dump_json(entry).decode(),
            "act": _json(act) if stage == Stage.RECORDED else None,
        }
        try:
            return self.records.add_after(after, row, may_skip=stage == Stage.RECORDED)
        except DeltaError as error:
            raise ServiceUnavailable(
                f"{self.records.path} cannot be written: {one_line(error)}.",
                unchanged="Readers get the same release as before.",
                next_step="Make room or correct the permissions, then type the same again.",
            ) from error


def _decided(files: RecordFiles) -> list[ActEntry]:
    return [entry for entry in _entries(files, 1) if entry.stage == Stage.COMMITTING]


def _entries(files: RecordFiles, first: int, last: int | None = None) -> Iterator[ActEntry]:
    rows = files.numbered(first, last, ["number", "entry"]).sort_by("number")
    return map(_ENTRY.validate_json, rows["entry"].to_pylist())
