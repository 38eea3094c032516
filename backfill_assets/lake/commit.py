"""The only way into a table: lock it, commit the files of some days, and record the builds.

The table is opened before the decision. If another commit came first, the decision is made again.
An act on several tables that was begun is finished before anything else is committed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from deltalake.exceptions import CommitFailedError

from backfill_assets.errors import NOTHING_COMMITTED, Conflict, NotRecorded, UsageError
from backfill_assets.lake.acts import finish
from backfill_assets.lake.delta import one_line, open_table, version_of
from backfill_assets.lake.durable import put_log_on_disk
from backfill_assets.lake.file_commit import FileCommit, refuse_unfit
from backfill_assets.lake.history import commit_metadata, recover_locked, version_with
from backfill_assets.lake.ledger import COMMITTED, Build, Ledger
from backfill_assets.lake.listed_files import data_files, hash_by_day
from backfill_assets.lake.locks import writing
from backfill_assets.lake.moves import RestoreCommit
from backfill_assets.lake.recorded_acts import Acts
from backfill_assets.lake.running import announced
from backfill_assets.tries import Sleep, again_after

# In an object store a lock can be lost, so other writers may commit first, several times.
COMMIT_RETRIES = 200


AnyCommit = FileCommit | RestoreCommit
# The longest wait for announced acts before a run's first commit. An act gives up earlier.
_WAITS_FOR_ACTS_S = 900
_LOOKS_EVERY_S = 0.2


class _ActBegun(Exception):
    """An act was begun, and must be finished before another commit."""


class _ActAnnounced(Exception):
    """An act was announced, and the run of this commit has written nothing yet."""


def commit_and_record(
    root: str,
    table: str,
    decide: Callable[[], Sequence[Build]],
    commit: AnyCommit,
    run: str = "",
    sleep: Sleep = time.sleep,
) -> list[Build]:
    """Decide on builds, commit the accepted ones and record them all, under the table's lock.

    `commit` commits the accepted days at once. It fails, and commits nothing, if another commit
    came after the table was opened.

    An act that was begun is finished first. The first commit of a `run` waits for announced acts:
    these wait for runs that have written something. `sleep` waits between two checks. Commits that
    the ledger lacks are recorded first, because the decision depends on them. `decide` is called
    under the lock, and again whenever another writer committed first. Raises NotRecorded if the
    rows are committed but the ledger could not be written.
    """
    give_up = time.monotonic() + _WAITS_FOR_ACTS_S
    while True:
        finish(root)
        try:
            with writing(root, table):
                waits = run and time.monotonic() < give_up and announced(root)
                if waits and not Ledger(root).has_committed(run):
                    raise _ActAnnounced
                return _commit_locked(Ledger(root), table, decide, commit)
        except _ActAnnounced:
            sleep(_LOOKS_EVERY_S)
        except _ActBegun:
            continue


def _commit_locked(
    ledger: Ledger,
    table: str,
    decide: Callable[[], Sequence[Build]],
    commit: AnyCommit,
) -> list[Build]:
    tries = again_after(CommitFailedError, COMMIT_RETRIES, within=0.05)
    try:
        builds = tries(_decide_and_commit, ledger, table, decide, commit)
    except CommitFailedError as error:
        raise Conflict(
            f"Others committed to {table} {COMMIT_RETRIES} times first.",
            unchanged=NOTHING_COMMITTED,
            next_step="Run again.",
        ) from error
    try:
        ledger.append(builds)
    except Exception as error:
        committed = [str(build.day) for build in builds if build.outcome in COMMITTED]
        if not committed:
            raise
        raise NotRecorded(
            f"{table}: {', '.join(committed)} are committed, but the ledger could not be"
            f" written: {one_line(error)}.",
            unchanged="Nothing is lost: the commit has the record, and the next run adds it.",
            next_step="Fix the cause, then run again.",
        ) from error
    return builds


def _decide_and_commit(
    ledger: Ledger,
    name: str,
    decide: Callable[[], Sequence[Build]],
    commit: AnyCommit,
) -> list[Build]:
    table = open_table(commit.folder)
    # Checked after the table was opened: the commit of a later act makes this commit fail.
    if Acts(ledger.root).unfinished():
        raise _ActBegun
    refuse_unfit(commit.folder, table, commit.column)
    recover_locked(ledger, [name])
    builds = list(decide())
    accepted = [build for build in builds if build.outcome in COMMITTED]
    if not accepted:
        return builds
    before = int(table.version()) if table else -1
    metadata = commit_metadata(accepted, complete=True)
    try:
        version, committed = commit(table, [build.day for build in accepted], metadata)
        files = hash_by_day((file.day, file.path) for file in committed)
    except Exception as error:
        # The commit may have succeeded, and only its checkpoint failed.
        made = version_with(commit.folder, metadata, after=before)
        if (
            made is None
            and isinstance(error, CommitFailedError)
            and version_of(commit.folder) == before
        ):
            raise UsageError(
                f"Delta rejected the commit to {commit.folder}: {one_line(error)}.",
                unchanged=NOTHING_COMMITTED,
                next_step="Correct that table.",
            ) from error
        if made is None:  # another writer came first: decide again
            raise
        put_log_on_disk(commit.folder)
        version = made
        written = open_table(commit.folder, made)
        files = data_files(written, [build.day for build in accepted]) if written else {}
    return [
        replace(build, delta_version=version, data_files=files.get(build.day, ""))
        if build.outcome in COMMITTED
        else build
        for build in builds
    ]
