"""Acts: changes to several tables that are decided in one write and finished by anyone.

Several tables have several Delta logs, and therefore several commits. An act makes them one. It is
recorded with everything that is needed to finish it (`recorded_acts.py`). Its files are put into
the tables' folders, and then it is checked: `committing` or `aborted`. After that it can always be
finished, also if its shadow is gone. Each table is committed once: the commit carries the number of
the act. Then the ledger gets the builds once, and the release is added once, unless another program
wrote to these tables after the decision. Then the act has `ended`.

A writer to live, a release and maintenance first finish an act that was begun. So no act waits for
the process that began it. On a local disk, locks keep other writers away between the decision and
the commits. In an object store a writer can lose its lock unnoticed: there, an empty commit to each
table (a fence) makes writers that opened the table before the act start again.

`tests/protocol` searches all interleavings of this protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from typing import NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import (
    NOTHING_COMMITTED,
    Conflict,
    NotAsWritten,
    TableUnreadable,
    UsageError,
)
from backfill_assets.lake.channels import ChannelHistory
from backfill_assets.lake.delta import one_line, open_table, open_version_of
from backfill_assets.lake.durable import put_on_disk
from backfill_assets.lake.file_commit import ACTS, FENCES, FileCommit, last_act
from backfill_assets.lake.history import (
    commit_metadata,
    last_committed,
    record_missing,
    recover_locked,
)
from backfill_assets.lake.integrity import damaged_files, read_state
from backfill_assets.lake.ledger import COMMITTED, Build, Ledger
from backfill_assets.lake.listed_files import data_files, differing_days
from backfill_assets.lake.locks import writing
from backfill_assets.lake.moves import put_files
from backfill_assets.lake.recorded_acts import Act, Acts, NextRelease, Stage, TableChange
from backfill_assets.lake.released import open_version
from backfill_assets.lake.releases import (
    PLAN_PUBLISHED,
    PLAN_ROLLED_BACK,
    Release,
    Releases,
    TableVersion,
)
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.lake.storage import Paths
from backfill_assets.tries import again_after

# The lock for deciding and finishing acts. The folder of acts has another lock.
_DECIDING = "_deciding"
# Other writers may commit first, several times.
_COMMIT_ATTEMPTS = 200
_RELEASE_ATTEMPTS = 20


class Ended(NamedTuple):
    """The builds that an act recorded, and its release; None without a release.

    `foreign` are partitions that another program wrote between the decision and the commits, or
    whose files were lost. They prevent a release.
    """

    builds: list[Build]
    release: Release | None
    foreign: Collection[Partition] = ()


@contextmanager
def deciding(root: str, tables: Sequence[str]) -> Iterator[Turn]:
    """Give the right to decide the next act on these tables. An act that was begun is finished.

    Records commits that the ledger lacks. On a local disk, no other process decides an act or
    commits to these tables during the block. Raises Conflict if another act was recorded first.
    """
    acts = Acts(root)
    with writing(root, _DECIDING):
        _finish_begun(acts)
        with _locked(root, tables):
            recover_locked(Ledger(root), tables)
            newest = acts.newest()
            # In an object store, another process may have lost these locks, or this one.
            if newest and newest.stage in (Stage.RECORDED, Stage.COMMITTING):
                raise _changed("another act was recorded first")
            numbers = [newest.number] if newest else []
            # If the documents of acts were lost, the logs of the tables still have the numbers.
            for table in tables:
                log = open_table(Paths(root).table(table))
                numbers += [last_act(log, ACTS), last_act(log, FENCES)]
            yield Turn(acts, acts.documents.next_number(max(numbers, default=0)))


def finish(root: str, plan: str = "", *, is_repair: bool = False) -> Ended | None:
    """Finish the act that was begun and has not ended, if there is one.

    Return its result if it is an act of `plan` and was not aborted. A repair also ends an act that
    has committed something else than was decided.

    The caller must hold no lock of a table. Raises Conflict or ServiceUnavailable if the act cannot
    be finished now.
    """
    acts = Acts(root)
    if acts.unfinished():
        with writing(root, _DECIDING):
            return _finish_begun(acts, plan, is_repair=is_repair)
    return None


def _finish_begun(acts: Acts, plan: str = "", *, is_repair: bool = False) -> Ended | None:
    if begun := acts.unfinished():
        number, act = begun
        ended = Begun(acts, number, act, is_repair).finish()
        return ended if act.plan == plan else None
    return None


@dataclass(frozen=True)
class Turn:
    """The right to record an act under this number."""

    acts: Acts
    number: int

    def carry_out(self, act: Act) -> Ended:
        """Record and finish an act.

        Raises Conflict if another act, release or writer came first. Then nothing was committed.
        """
        try:
            if not self.acts.add(act, Stage.RECORDED, self.number):
                raise _Aborted("another act was recorded first")
            return Begun(self.acts, self.number, act).carry_out()
        except _Aborted as error:
            raise _changed(str(error)) from None


def _changed(why: str) -> Conflict:
    return Conflict(
        f"Live or the shadow was changed while this was decided: {why}.",
        unchanged=NOTHING_COMMITTED,
        next_step="Type the same again.",
    )


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
    """An act that was recorded under `number`.

    In an object store several processes may carry it out at once, and each may stop at any point.
    """

    acts: Acts
    number: int
    act: Act
    is_repair: bool = False

    @property
    def root(self) -> str:
        return self.acts.root

    def finish(self) -> Ended | None:
        """Carry the act out. Return None if it is aborted.

        The caller holds the lock of acts, and no lock of a table.
        """
        with _locked(self.root, self.act.tables), suppress(_Aborted):
            return self.carry_out()
        return None

    def carry_out(self) -> Ended:
        """Carry the act out to its end.

        The caller holds the locks of acts and of the tables. Raises _Aborted with the reason.
        """
        ledger = Ledger(self.root)
        with ExitStack() as marked:
            for change in self.act.changes:
                days = [build.day for build in change.builds]
                step = RunningStep(change.table, days, self.act.id, self.act.plan)
                marked.enter_context(mark_running(self.root, step))
            self._decide()
            # A commit declares that all commits before it are in the ledger.
            recover_locked(ledger, self.act.tables)
            versions: dict[str, TableVersion] = {}
            builds = [
                build for change in self.act.changes for build in self._commit(change, versions)
            ]
            record_missing(ledger, builds)
            foreign = self._written_below(versions) | self._read_again(versions)
            decided = None if foreign else self.act.release
            release = self._release(decided, versions) if decided else None
            if release and release.plans:
                ChannelHistory(self.root).end_preview(self.act.plan, self.act.who, release.reason)
            number = release.number if release else 0
            self.acts.add(self.act, Stage.ENDED, self.number, release=number, foreign=foreign)
        return Ended(builds, release, foreign)

    def _decide(self) -> None:
        """Decide whether the act is committed, unless another process did. Raises _Aborted."""
        outcome = self.acts.outcome(self.number)
        if outcome is None:
            why_not = self._why_not()
            stage = Stage.ABORTED if why_not else Stage.COMMITTING
            self.acts.add(self.act, stage, self.number, why_not)
            outcome = self.acts.outcome(self.number)
        if outcome is not None and outcome.stage == Stage.ABORTED:
            raise _Aborted(outcome.reason)
        # The process that decided may have been killed, or its disk may have refused, before this.
        put_on_disk(self.acts.documents.path)

    def _why_not(self) -> str:
        """The reason why the act cannot be committed; "" if it can.

        Puts the files in place, and fences the tables where locks can be lost.
        """
        for change in self.act.changes:
            if lost := put_files(self._source(change), self._folder(change), change.files):
                return f"{self._source(change)}/{lost[0]} was removed or changed"
        if not Paths(self.root).is_local:
            for change in self.act.changes:
                if change.committed:
                    self._once(change, FENCES, self._files(change).fence)
        newest = ChannelHistory(self.root).newest_release()
        if self.act.release and newest != self.act.release.after:
            return "another release came first"
        for change in self.act.changes:
            if not change.committed:
                continue
            try:
                table = open_table(self._folder(change))
                if change.before and table is None:
                    return f"{change.table} was deleted"
                if written := differing_days(open_version(self.root, change.before), table):
                    return f"{change.table} {ranges(written)} was written"
                days = [build.day for build in change.committed]
                self._files(change).refuse_unfit(table, days)
            except (UsageError, TableUnreadable) as error:
                return error.what.rstrip(".")
        return ""

    def _commit(self, change: TableChange, versions: dict[str, TableVersion]) -> list[Build]:
        """Commit a change once, and return its builds as committed.

        `versions` has the tables that the act committed before. This table is added.
        """
        # With the versions at which the act committed their inputs.
        builds = [
            replace(
                build,
                input_versions={
                    name: versions[name].version if name in versions else version
                    for name, version in build.input_versions.items()
                },
            )
            for build in change.builds
        ]
        committed = [build for build in builds if build.outcome in COMMITTED]
        if not committed:
            return builds
        files = self._files(change)
        days = [build.day for build in committed]
        metadata = commit_metadata(committed, complete=True)
        self._once(change, ACTS, lambda table: files(table, days, metadata))
        last = last_committed(self._folder(change), set(days)).values()
        # If another process has ended the act, later builds may have replaced these.
        there = [build for build in last if build.run == self.act.id]
        if there and (table := open_table(self._folder(change))):
            version = max(build.delta_version for build in there)
            versions[change.table] = TableVersion(change.table, version, str(table.metadata().id))
        return there + [build for build in builds if build not in committed]

    def _read_again(self, committed: Mapping[str, TableVersion]) -> set[Partition]:
        """Read what the act has committed. The partitions whose files were lost prevent a release.

        Raises NotAsWritten if a commit did something else. Then the act has not ended, so every
        later writer stops here too. A repair ends it without a release.
        """
        lost = set[Partition]()
        for change in self.act.changes:
            if version := committed.get(change.table):
                folder = self._folder(change)
                other = _other_files(folder, version.version, change.committed)
                if other and not self.is_repair:
                    raise NotAsWritten(
                        f"{self.act.id} committed other files to {folder} than decided, in version"
                        f" {version.version}: {ranges(other)}.",
                        unchanged="Readers get the same release as before.",
                        next_step="`backfill reconcile --repair` ends it without a release.",
                    )
                days = {build.day for build in change.committed}
                lost |= {
                    (change.table, day)
                    for day in other | damaged_files(folder, days, version.version).keys()
                }
        return lost

    def _written_below(self, committed: Mapping[str, TableVersion]) -> set[Partition]:
        """The partitions that others wrote after the decision and before the commits of the act."""
        found = set[Partition]()
        for change in self.act.changes:
            before = change.before
            version = committed.get(change.table, before)
            first = before.version + 1 if before and version and before.id == version.id else 0
            if version and first < version.version:
                state = read_state(self._folder(change), first, version.version - 1)
                for commits in state.foreign_commits:
                    found.update((change.table, day) for day in commits.days)
        return found

    def _once(
        self, change: TableChange, mark: str, commit: Callable[[DeltaTable | None], object]
    ) -> None:
        """Commit to a table, unless its log has the act under this mark.

        Starts again if another writer commits first. Raises Conflict if a change of the table
        prevents the commit.
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

        try:
            again_after(CommitFailedError, _COMMIT_ATTEMPTS, within=0.05)(attempt)
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
        """Add the release of the act with the `committed` tables, unless it exists."""
        releases = Releases(self.root)
        built = {build.table: build.at for build in self.act.builds}
        is_publication = self.act.kind == "publish"
        kind = PLAN_PUBLISHED if is_publication else PLAN_ROLLED_BACK
        # The preview of a plan that is published in part stays.
        plans = (self.act.plan,) if is_publication and not self.act.left else ()

        def attempt() -> Release:
            newest = releases.newest()
            # Until the act has ended, no other act adds a release.
            for later in releases.all(decided.after):
                if (later.kind, later.plans) == (kind, plans):
                    return later
            # A release that began before the act may have been added meanwhile, with older
            # versions.
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

        return again_after(Conflict, _RELEASE_ATTEMPTS)(attempt)

    def _folder(self, change: TableChange) -> str:
        return Paths(self.root).table(change.table)

    def _source(self, change: TableChange) -> str:
        return f"{self.root}/{change.source}" if change.source else self._folder(change)

    def _files(self, change: TableChange) -> FileCommit:
        folder = self._folder(change)
        return FileCommit(folder, change.column, change.files, change.columns, self.number)


def _later_versions(
    released: Mapping[str, TableVersion], decided: Mapping[str, TableVersion]
) -> dict[str, TableVersion]:
    """The released and decided tables at the later version. A recreated table is as `decided`."""
    later = {
        name: version
        for name, version in released.items()
        if name in decided
        and version.id == decided[name].id
        and version.version > decided[name].version
    }
    return {**released, **decided, **later}


def _other_files(folder: str, version: int, committed: Iterable[Build]) -> set[date]:
    """The days that have other files after a commit than before it, or than its builds say."""
    before = data_files(open_version_of(folder, version - 1)) if version else {}
    expected = before | {build.day: build.data_files for build in committed}
    after = data_files(open_version_of(folder, version))
    return {
        day for day in after.keys() | expected.keys() if after.get(day, "") != expected.get(day, "")
    }
