"""The one act by which anything is put into a table: lock it, commit the files of some days, record the builds.

The commit is a comparison and a swap: it holds only if no other came since the table was opened, before the decision;
`deltalake` by itself lets two writers both fill a day that was empty (measured), and its rows would be there twice. Whoever
comes second decides again, then commits.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Protocol

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from backfill_assets.errors import Conflict, NotRecorded, UsageError
from backfill_assets.lake.columns import delta_schema, merged_schema
from backfill_assets.lake.ledger import Ledger, open_table, version_of
from backfill_assets.lake.locks import writing
from backfill_assets.lake.record import COMMITTED, Build
from backfill_assets.lake.recovery import commit_metadata, version_with
from backfill_assets.lake.slice import DataFile

# Delta forgets commits after 30 days and vacuum drops files after 7. Rollback, releases and the audit trail reach back
# further: a year, after which a day is rebuilt from raw instead.
RETENTION = {
    "delta.logRetentionDuration": "interval 400 days",
    "delta.deletedFileRetentionDuration": "interval 400 days",
    # Commits carry their days' records; a checkpoint every 20 keeps opening a table short without rewriting it often.
    "delta.checkpointInterval": "20",
    # Slices are found by their partition; bounds of every column would cost each write a second, for files of one day.
    "delta.dataSkippingNumIndexedCols": "4",
}
# Where nothing is locked, everyone else at work on the table may come first, and several times.
COMMIT_RETRIES = 200


class Commit(Protocol):
    """Put accepted `days` into the table at `folder` in one commit that carries `metadata`; the version they stand in.

    Raises CommitFailedError, and commits nothing, if the table has had another commit since it was opened as `table` (None: if
    there is one now).
    """

    @property
    def folder(self) -> str: ...

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> int: ...


def commit_and_record(root: str, table: str, decide: Callable[[], Sequence[Build]], commit: Commit) -> list[Build]:
    """Record what `decide` comes to, once the accepted of its builds are committed. Both under the table's lock.

    `decide` is asked under the lock, and again whenever another writer came first: what was judged before may no longer hold.
    Raises NotRecorded if the rows are in, and the ledger could not be written.
    """
    again = retry_if_exception_type(CommitFailedError)
    tries = Retrying(retry=again, stop=stop_after_attempt(COMMIT_RETRIES), wait=wait_random(0, 0.05))
    with writing(root, table):
        try:
            builds = tries(_decide_and_commit, decide, commit)
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
                f"{table}: {', '.join(committed)} are committed, but the ledger could not be written: {error}. Nothing is "
                "lost: the commit has the record, and the next run brings it in. Mend what is named above, then run again."
            ) from error
    return builds


def _decide_and_commit(decide: Callable[[], Sequence[Build]], commit: Commit) -> list[Build]:
    table = open_table(commit.folder)
    _refuse_constraints(commit.folder, table)
    builds = list(decide())
    accepted = [build for build in builds if build.outcome in COMMITTED]
    if not accepted:
        return builds
    before, metadata = int(table.version()) if table else -1, commit_metadata(accepted)
    try:
        version = commit(table, [build.day for build in accepted], metadata)
    except Exception as error:
        made = version_with(commit.folder, metadata, after=before)  # only what comes after a commit failed: its checkpoint
        if made is None and isinstance(error, CommitFailedError) and version_of(commit.folder) == before:
            raise UsageError(f"{commit.folder} takes no commit: {error}. Nothing was committed. Correct that table.") from error
        if made is None:  # if another writer came first, decide again
            raise
        version = made
    return [replace(build, delta_version=version) if build.outcome in COMMITTED else build for build in builds]


def _refuse_constraints(folder: str, table: DeltaTable | None) -> None:
    """UsageError for a table with CHECK constraints, which are checked by whoever computes rows, and are not here."""
    names = [name for name in table.metadata().configuration if name.startswith("delta.constraints.")] if table else []
    if names:
        raise UsageError(
            f"{folder} has constraints ({', '.join(names)}), which this project does not check. Nothing was committed. Drop "
            "them (ALTER TABLE ... DROP CONSTRAINT) and declare rules instead."
        )


@dataclass(frozen=True)
class FileCommit:
    """Files of a table that lie in `folder`, ready to be committed.

    They replace whatever the days hold, or, with an `append_as`, are added to it, once for each such name and days. `columns`
    are those of the DataFrame, as JSON (`rows.schema.json()`). `attempted` are the days of which files may be committed.
    """

    folder: str
    column: str
    files: Sequence[DataFile]
    columns: str
    append_as: str = ""
    attempted: set[date] = field(default_factory=set)

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> int:
        self.attempted.update(days)
        accepted = set(days)
        adds = [_add(file, self.column) for file in self.files if file.day in accepted]
        if table is None:
            return self._create(adds, days, metadata)
        if self.append_as and table.transaction_version(self._transaction(days)) is not None:
            return int(table.version())
        replaced = [] if self.append_as else [day.isoformat() for day in days]
        table.create_write_transaction(
            [*adds],
            "overwrite",  # of no day, where files are only added: so that a new column comes in the same commit
            merged_schema(table, self.columns, self.folder),
            [self.column],
            [(self.column, "in", replaced)],
            commit_properties=self._properties(days, metadata),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
        )
        return int(table.version()) + 1  # the handle stays at the version where it was opened

    def _create(self, adds: list[AddAction], days: Sequence[date], metadata: str) -> int:
        try:
            create_table_with_add_actions(
                self.folder,
                delta_schema(self.columns),
                adds,
                mode="error",
                partition_by=[self.column],
                configuration=RETENTION,
                commit_properties=self._properties(days, metadata),
            )
        except DeltaError as error:
            if open_table(self.folder) is None:
                raise
            raise CommitFailedError("another writer made the table") from error
        return 0

    def uncommitted(self) -> list[DataFile]:
        """The files of days that no commit was tried with."""
        return [file for file in self.files if file.day not in self.attempted]

    def _transaction(self, days: Sequence[date]) -> str:
        return f"{self.append_as}/{hashlib.sha256(' '.join(map(str, days)).encode()).hexdigest()[:16]}"

    def _properties(self, days: Sequence[date], metadata: str) -> CommitProperties:
        transactions = [Transaction(self._transaction(days), 1)] if self.append_as else None
        return CommitProperties({"userMetadata": metadata}, max_commit_retries=0, app_transactions=transactions)


def _add(file: DataFile, column: str) -> AddAction:
    figures = {"numRecords": file.rows, "minValues": file.lowest, "maxValues": file.highest, "nullCount": file.nulls}
    stats = json.dumps({name: value for name, value in figures.items() if value is not None}, ensure_ascii=False)
    return AddAction(file.path, file.size, {column: file.day.isoformat()}, file.modified_ms, True, stats)
