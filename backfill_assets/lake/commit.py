"""The one act by which anything is put into a table: lock it, commit the files of some days, record the builds.

The commit is a comparison and a swap: it holds only if no other came since the table was opened, before the decision;
`deltalake` by itself lets two writers both fill a day that was empty (measured), and its rows would be there twice. Whoever
comes second decides again, then commits.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from typing import Protocol

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from backfill_assets.errors import Conflict, NotRecorded, UsageError
from backfill_assets.lake.delta_table import one_line, open_table, version_of
from backfill_assets.lake.file_commit import Committed
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.locks import writing
from backfill_assets.lake.partitioning import refuse_other_partitioning
from backfill_assets.lake.record import COMMITTED, Build
from backfill_assets.lake.recovery import commit_metadata, recover_locked, version_with
from backfill_assets.lake.rewritten import data_files, hash_by_day, renamed_columns

# Where nothing is locked, everyone else at work on the table may come first, and several times.
COMMIT_RETRIES = 200


class Commit(Protocol):
    """Put accepted `days` into the table at `folder`, which is partitioned by `column`, in one commit that carries `metadata`.

    Returns the version they stand in, with their files.

    Raises CommitFailedError, and commits nothing, if the table has had another commit since it was opened as `table` (None: if
    there is one now).
    """

    @property
    def folder(self) -> str: ...

    @property
    def column(self) -> str: ...

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> Committed: ...


def commit_and_record(root: str, table: str, decide: Callable[[], Sequence[Build]], commit: Commit) -> list[Build]:
    """Record what `decide` comes to, once the accepted of its builds are committed. Both under the table's lock.

    Commits that the ledger lacks are recorded first: what is decided rests on all that was committed before.
    `decide` is asked under the lock, and again whenever another writer came first: what was judged before may no longer hold.
    Raises NotRecorded if the rows are in, and the ledger could not be written.
    """
    again = retry_if_exception_type(CommitFailedError)
    tries = Retrying(retry=again, stop=stop_after_attempt(COMMIT_RETRIES), wait=wait_random(0, 0.05))
    with writing(root, table):
        try:
            builds = tries(_decide_and_commit, Ledger(root), table, decide, commit)
        except RetryError as error:
            raise Conflict(
                f"Others committed to {table} {COMMIT_RETRIES} times first. Nothing was committed. Run again."
            ) from error
        try:
            Ledger(root).append(builds)
        except Exception as error:
            committed = [str(build.day) for build in builds if build.outcome in COMMITTED]
            if not committed:
                raise
            raise NotRecorded(
                f"{table}: {', '.join(committed)} are committed, but the ledger could not be written: {one_line(error)}. "
                "Nothing is lost: the commit has the record, and the next run brings it in. Mend what is named above, then run "
                "again."
            ) from error
    return builds


def _decide_and_commit(ledger: Ledger, name: str, decide: Callable[[], Sequence[Build]], commit: Commit) -> list[Build]:
    table = open_table(commit.folder)  # which a commit of files leaves as it was
    refuse_unfit(commit.folder, table, commit.column)
    recover_locked(ledger, name)
    builds = list(decide())
    accepted = [build for build in builds if build.outcome in COMMITTED]
    if not accepted:
        return builds
    before, metadata = int(table.version()) if table else -1, commit_metadata(accepted, complete=True)
    try:
        version, committed = commit(table, [build.day for build in accepted], metadata)
        files = hash_by_day((file.day, file.path) for file in committed)
    except Exception as error:
        made = version_with(commit.folder, metadata, after=before)  # only what comes after a commit failed: its checkpoint
        if made is None and isinstance(error, CommitFailedError) and version_of(commit.folder) == before:
            raise UsageError(
                f"{commit.folder} takes no commit: {one_line(error)}. Nothing was committed. Correct that table."
            ) from error
        if made is None:  # if another writer came first, decide again
            raise
        version, written = made, open_table(commit.folder, made)
        files = data_files(written, [build.day for build in accepted]) if written else {}
    return [
        replace(build, delta_version=version, data_files=files.get(build.day, "")) if build.outcome in COMMITTED else build
        for build in builds
    ]


# Of a column's metadata in the log: who writes it checks its values, or computes them.
ASK_FOR_VALUES = {"delta.invariants", "delta.generationExpression"}


def refuse_unfit(folder: str, table: DeltaTable | None, column: str) -> None:
    """UsageError for a table in which this project does not write days of `column`. Nothing is committed."""
    refuse_other_partitioning(folder, table, column)
    _refuse_other_features(folder, table)


def _refuse_other_features(folder: str, table: DeltaTable | None) -> None:
    """UsageError for what whoever computes rows must check or compute, and this project does not; renamed columns."""
    if table is None:
        return
    if renamed_columns(table):
        raise UsageError(
            f"{folder} has columns of other names than its files (delta.columnMapping.mode), which this project does not "
            "write. Nothing was committed. Restore the table as it was before (RESTORE TABLE ... TO VERSION AS OF), or "
            "remove its folder and rebuild all its days."
        )
    names = [name for name in table.metadata().configuration if name.startswith("delta.constraints.")]
    if names:
        raise UsageError(
            f"{folder} has constraints ({', '.join(names)}), which this project does not check. Nothing was committed. Drop "
            "them (ALTER TABLE ... DROP CONSTRAINT) and declare rules instead."
        )
    fields = json.loads(table.schema().to_json())["fields"]
    if names := [f["name"] for f in fields if not f["nullable"] or ASK_FOR_VALUES & f["metadata"].keys()]:
        raise UsageError(
            f"{folder} has columns that may not be null or are computed ({', '.join(names)}), which this project does not see "
            "to. Nothing was committed. Make them plain again (ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL) and declare "
            "rules instead, or restore the table as it was before (RESTORE TABLE ... TO VERSION AS OF)."
        )
