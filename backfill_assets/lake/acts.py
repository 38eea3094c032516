"""Acts: changes to several tables that are decided in one write and finished by anyone.

Several tables have several Delta logs, and therefore several commits. An act makes them one. It is
recorded with everything that is needed to finish it. Its files are put into the tables' folders,
and then it is checked: `committing` or `aborted`. After that it can always be finished, also if
its shadow is gone. Each table is committed once: the commit carries the number of the act. Then
the ledger gets the builds once, and the release is added once. Then the act has `ended`.

A writer to live, a release and maintenance first finish an act that was begun. So no act waits for
the process that began it. On a local disk, locks keep other writers away between the decision and
the commits. An object store has no locks: there, an empty commit to each table (a fence) makes
writers that opened the table before the act start again.

`tests/protocol` searches all interleavings of this protocol.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from pydantic import TypeAdapter
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import (
    NOTHING_COMMITTED,
    Conflict,
    ServiceUnavailable,
    TableUnreadable,
    UsageError,
)
from backfill_assets.lake.delta import CachedTable, one_line, open_table
from backfill_assets.lake.file_commit import ACTS, FENCES, FileCommit, last_act
from backfill_assets.lake.history import (
    commit_metadata,
    last_committed,
    record_missing,
    recover_locked,
)
from backfill_assets.lake.integrity import differing_days, hash_by_day
from backfill_assets.lake.ledger import COMMITTED, ActKind, Build, Ledger
from backfill_assets.lake.moves import Move, put_files
from backfill_assets.lake.record_table import RecordFiles, RecordTable
from backfill_assets.lake.released import open_version
from backfill_assets.lake.releases import (
    PLAN_PUBLISHED,
    PLAN_ROLLED_BACK,
    Release,
    Releases,
    TableVersion,
)
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.lake.slices import DataFile
from backfill_assets.lake.storage import Paths, writing


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


class Ended(NamedTuple):
    """The builds that an act recorded, and its release; None without one."""

    builds: list[Build]
    release: Release | None


class Stage(StrEnum):
    """How far an act is. Each stage is one entry in the table of acts."""

    RECORDED = "recorded"
    COMMITTING = "committing"
    ABORTED = "aborted"
    ENDED = "ended"


NAME = "_acts"
# The lock of those who decide or finish an act. The table of acts has a lock of its own.
_DECIDING = "_deciding"
_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("stage", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("id", pa.string()),
        ("kind", pa.string()),
        ("plan", pa.string()),
        ("who", pa.string()),
        ("reason", pa.string()),
        # The whole act, in its first entry.
        ("act", pa.string()),
        ("token", pa.string()),
        ("left", pa.int64()),
    ]
)
# The entries of a thousand acts. The files of large acts are left alone.
_COMPACTED_BYTES = 2**18
# Other writers may commit first, several times.
_COMMIT_ATTEMPTS = 200
_RELEASE_ATTEMPTS = 20


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
    left: int = 0


_COLUMNS = list(ActEntry.__annotations__)
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
    def _records(self) -> RecordTable:
        return RecordTable(
            self.root, NAME, _SCHEMA, bounds="number", compacted=_COMPACTED_BYTES, retries=0
        )

    def newest(self) -> ActEntry | None:
        """The newest entry; None if there is none."""
        files = self._records.files()
        number = files.highest_number()
        return next(_entries(files, number, number), None)

    def unfinished(self) -> Begun | None:
        """The act that was begun and has not ended; None if there is none."""
        newest = self.newest()
        if newest is None or newest.stage in (Stage.ABORTED, Stage.ENDED):
            return None
        number = newest.number - (newest.stage == Stage.COMMITTING)
        rows = self._records.files().numbered(number, number, ["act"])
        act = json.loads(rows["act"][0].as_py())
        return Begun(self, number, _ACT.validate_python(act))

    def outcome(self, number: int) -> ActEntry | None:
        """The decision about the act that was recorded as entry `number`; None if there is none."""
        return next(_entries(self._records.files(), number + 1, number + 1), None)

    def last_of_plans(self) -> Mapping[str, ActEntry]:
        """The last act of each plan that was decided, without aborted ones."""
        files = self._records.files()
        facts = files.log.facts if isinstance(files.log, CachedTable) else {}
        if NAME not in facts:
            facts[NAME] = {entry.plan: entry for entry in _decided(files)}
        return dict(facts[NAME])

    def of_plan(self, plan: str) -> list[ActEntry]:
        """The acts of a plan that were decided, oldest first, without aborted ones."""
        return [entry for entry in _decided(self._records.files()) if entry.plan == plan]

    def add(self, act: Act, stage: Stage, after: int, reason: str = "") -> bool:
        """Add an entry after the entry `after`. False, and nothing is added, if another is there.

        The first entry of an act may skip numbers.
        Raises ServiceUnavailable if it cannot be written.
        """
        row = {
            "number": after + 1,
            "stage": stage,
            "at": datetime.now(UTC),
            "id": act.id,
            "kind": act.kind,
            "plan": act.plan,
            "who": act.who,
            "reason": reason or act.reason,
            "act": _json(act) if stage == Stage.RECORDED else None,
            "left": act.left,
        }
        try:
            return self._records.add_after(after, [row], may_skip=stage == Stage.RECORDED)
        except DeltaError as error:
            raise ServiceUnavailable(
                f"{self._records.path} cannot be written: {one_line(error)}.",
                unchanged="Readers get the same release as before.",
                next_step="Make room or correct the permissions, then type the same again.",
            ) from error


def _decided(files: RecordFiles) -> list[ActEntry]:
    return [entry for entry in _entries(files, 1) if entry.stage == Stage.COMMITTING]


def _entries(files: RecordFiles, first: int, last: int | None = None) -> Iterator[ActEntry]:
    rows = files.numbered(first, last, _COLUMNS).sort_by("number")
    return (ActEntry(**row | {"left": row["left"] or 0}) for row in rows.to_pylist())


@contextmanager
def deciding(root: str, tables: Sequence[str]) -> Iterator[Turn]:
    """Give the right to decide the next act, on these tables. An act that was begun is finished.

    Commits that the ledger lacks are recorded. On a local disk, no other process decides an act or
    commits to these tables in the block.
    """
    acts = Acts(root)
    with writing(root, _DECIDING):
        if begun := acts.unfinished():
            begun.finish()
        with _locked(root, tables):
            recover_locked(Ledger(root), tables)
            newest = acts.newest()
            numbers = [newest.number] if newest else []
            # If the entries were lost, the logs of the tables still have the numbers of their acts.
            for table in tables:
                log = open_table(Paths(root).table(table))
                numbers += [last_act(log, ACTS), last_act(log, FENCES)]
            yield Turn(acts, max(numbers, default=0))


def finish(root: str) -> None:
    """Finish the act that was begun and has not ended, if there is one.

    The caller holds no lock of a table. Raises Conflict or ServiceUnavailable if it cannot be
    finished now.
    """
    acts = Acts(root)
    if acts.unfinished():
        with writing(root, _DECIDING):
            if begun := acts.unfinished():
                begun.finish()


@dataclass(frozen=True)
class Turn:
    """The right to record an act with a higher number than `after`."""

    acts: Acts
    after: int

    def carry_out(self, act: Act) -> Ended:
        """Record and finish an act.

        Raises Conflict if another act, release or writer came first. Then nothing was committed.
        """
        try:
            if not self.acts.add(act, Stage.RECORDED, self.after):
                raise _Aborted("another act was recorded first")
            return Begun(self.acts, self.after + 1, act).carry_out()
        except _Aborted as error:
            raise Conflict(
                f"Live or the shadow was changed while this was decided: {error}.",
                unchanged=NOTHING_COMMITTED,
                next_step="Type the same again.",
            ) from None


class _Aborted(Exception):
    """An act was aborted. Nothing of it was committed."""


@contextmanager
def _locked(root: str, tables: Iterable[str]) -> Iterator[None]:
    with ExitStack() as held:
        for table in sorted(tables):
            held.enter_context(writing(root, table))
        yield


@dataclass(frozen=True)
class Begun:
    """An act that was recorded as entry `number`.

    Several processes may carry it out at once in an object store, and each may stop anywhere.
    """

    acts: Acts
    number: int
    act: Act

    @property
    def root(self) -> str:
        return self.acts.root

    def finish(self) -> None:
        """Carry the act out. The caller holds the lock of acts, and none of a table."""
        with _locked(self.root, self.act.tables), suppress(_Aborted):
            self.carry_out()

    def carry_out(self) -> Ended:
        """Bring the act to its end.

        The caller holds the locks of acts and of the tables. Raises _Aborted, with the reason.
        """
        ledger = Ledger(self.root)
        with ExitStack() as marked:
            for change in self.act.changes:
                days = [build.day for build in change.builds]
                step = RunningStep(change.table, days, self.act.id, self.act.plan)
                marked.enter_context(mark_running(self.root, step))
            self._decide()
            # A commit says that all commits before it are in the ledger.
            recover_locked(ledger, self.act.tables)
            versions: dict[str, TableVersion] = {}
            builds = [
                build for change in self.act.changes for build in self._commit(change, versions)
            ]
            record_missing(ledger, builds)
            release = self._release(self.act.release, versions) if self.act.release else None
            self.acts.add(self.act, Stage.ENDED, self.number + 1)
        return Ended(builds, release)

    def _decide(self) -> None:
        """Decide whether the act is committed, unless another process has. Raises _Aborted."""
        outcome = self.acts.outcome(self.number)
        if outcome is None:
            why_not = self._why_not()
            stage = Stage.ABORTED if why_not else Stage.COMMITTING
            self.acts.add(self.act, stage, self.number, why_not)
            outcome = self.acts.outcome(self.number)
        if outcome is not None and outcome.stage == Stage.ABORTED:
            raise _Aborted(outcome.reason)

    def _why_not(self) -> str:
        """Say why the act cannot be committed; "" if it can.

        The files are put in place, and the tables are fenced where there are no locks.
        """
        for change in self.act.changes:
            if lost := put_files(self._source(change), self._folder(change), change.files):
                return f"{self._source(change)}/{lost[0]} was removed or changed"
        if not Paths(self.root).is_local:
            for change in self.act.changes:
                if change.committed:
                    self._once(change, FENCES, self._files(change).fence)
        newest = Releases(self.root).newest()
        if self.act.release and (newest.number if newest else 0) != self.act.release.after:
            return "another release came first"
        for change in self.act.changes:
            if not change.committed:
                continue
            try:
                table = open_table(self._folder(change))
                if change.before and table is None:
                    return f"{change.table} was deleted"
                if written := differing_days(self._seen(change), table):
                    return f"{change.table} {ranges(written)} was written"
                days = [build.day for build in change.committed]
                self._files(change).refuse_unfit(table, days)
            except (UsageError, TableUnreadable) as error:
                return error.what.rstrip(".")
        return ""

    def _commit(self, change: TableChange, versions: dict[str, TableVersion]) -> list[Build]:
        """Commit a change once, and return its builds as the commit has them.

        `versions` are those of the tables that the act committed before. This one is added.
        """
        builds = list(_with_inputs(change.builds, versions))
        committed = [build for build in builds if build.outcome in COMMITTED]
        if not committed:
            return builds
        files = self._files(change)
        days = [build.day for build in committed]
        metadata = commit_metadata(committed, complete=True)
        self._once(change, ACTS, lambda table: files(table, days, metadata))
        last = last_committed(self._folder(change), set(days)).values()
        # Once another process has ended the act, others may have built these days again.
        there = [build for build in last if build.run == self.act.id]
        if there and (table := open_table(self._folder(change))):
            version = max(build.delta_version for build in there)
            versions[change.table] = TableVersion(change.table, version, str(table.metadata().id))
        return there + [build for build in builds if build not in committed]

    def _once(
        self, change: TableChange, mark: str, commit: Callable[[DeltaTable | None], object]
    ) -> None:
        """Commit to a table, unless its log has the act under this mark.

        Starts again if another writer commits first. Raises Conflict if the table was changed so
        that it cannot take the commit.
        """
        folder = self._folder(change)

        def attempt() -> None:
            table = open_table(folder)
            if last_act(table, mark) >= self.number:
                return
            try:
                commit(table)
            except DeltaError:
                # The commit may have succeeded, and only its checkpoint failed.
                if last_act(open_table(folder), mark) < self.number:
                    raise

        attempts = Retrying(
            retry=retry_if_exception_type(CommitFailedError),
            stop=stop_after_attempt(_COMMIT_ATTEMPTS),
            wait=wait_random(0, 0.05),
            reraise=True,
        )
        try:
            attempts(attempt)
        except (CommitFailedError, UsageError) as error:
            why = error.what if isinstance(error, UsageError) else one_line(error)
            before = f" TO VERSION AS OF {change.before.version}" if change.before else ""
            raise Conflict(
                f"{folder} was changed, and cannot take the commit of {self.act.id}:"
                f" {why.rstrip('.')}.",
                unchanged="Readers get the same release as before.",
                next_step=(
                    f"Restore that table as it was (RESTORE TABLE ...{before}). The next run or"
                    " publication finishes the act."
                ),
            ) from error

    def _release(self, decided: NextRelease, committed: Mapping[str, TableVersion]) -> Release:
        """Add the release of the act, with the `committed` tables, unless it is there."""
        releases = Releases(self.root)
        built = {build.table: build.at for build in self.act.builds}
        is_publication = self.act.kind == "publish"
        kind = PLAN_PUBLISHED if is_publication else PLAN_ROLLED_BACK
        # The preview of a plan that is published in part stays.
        plans = (self.act.plan,) if is_publication and not self.act.left else ()

        def attempt() -> Release:
            files = releases.files()
            # Until the act has ended, no other act adds a release.
            for later in files.all(decided.after):
                if (later.kind, later.plans) == (kind, plans):
                    return later
            newest = files.newest()
            # A release that began before the act may have been added since, with older versions.
            tables = _later_versions(newest.tables if newest else {}, decided.tables)
            recorded = newest.recorded if newest else {}
            return releases.add(
                newest,
                {**tables, **committed},
                kind=kind,
                who=self.act.who,
                reason=decided.reason,
                recorded={**recorded, **decided.recorded, **built},
                plans=plans,
            )

        attempts = Retrying(
            retry=retry_if_exception_type(Conflict),
            stop=stop_after_attempt(_RELEASE_ATTEMPTS),
            reraise=True,
        )
        return attempts(attempt)

    def _folder(self, change: TableChange) -> str:
        return Paths(self.root).table(change.table)

    def _source(self, change: TableChange) -> str:
        return f"{self.root}/{change.source}" if change.source else self._folder(change)

    def _seen(self, change: TableChange) -> DeltaTable | None:
        return open_version(self.root, change.before) if change.before else None

    def _files(self, change: TableChange) -> FileCommit:
        folder = self._folder(change)
        return FileCommit(folder, change.column, change.files, change.columns, self.number)


def _later_versions(
    released: Mapping[str, TableVersion], decided: Mapping[str, TableVersion]
) -> dict[str, TableVersion]:
    """The tables of both, each at its later version. A recreated table is as it was `decided`."""
    later = {
        name: version
        for name, version in released.items()
        if name in decided
        and version.id == decided[name].id
        and version.version > decided[name].version
    }
    return {**released, **decided, **later}


def _with_inputs(builds: Iterable[Build], versions: Mapping[str, TableVersion]) -> Iterator[Build]:
    """Yield the builds with the versions at which the act committed their inputs."""
    for build in builds:
        inputs = {
            name: versions[name].version if name in versions else version
            for name, version in build.input_versions.items()
        }
        yield replace(build, input_versions=inputs)
