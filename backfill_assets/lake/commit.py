"""The only way into a table: lock it, commit the files of some days, record the builds.

A commit is a compare-and-swap. It succeeds only if no other commit came after the table was opened,
and the table is opened before the decision. If another commit came first, the decision is made
again. `deltalake` alone lets two writers both fill an empty day (measured): every row would be
there twice.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import NamedTuple, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from backfill_assets.errors import NOTHING_COMMITTED, Conflict, NotRecorded, UsageError
from backfill_assets.lake.columns import column_differences, delta_schema, merged_schema, undeclared
from backfill_assets.lake.delta import one_line, open_table, refuse_other_partitioning, version_of
from backfill_assets.lake.history import commit_metadata, recover_locked, version_with
from backfill_assets.lake.integrity import data_files, day_files, hash_by_day, renamed_columns
from backfill_assets.lake.ledger import COMMITTED, Build, Ledger
from backfill_assets.lake.slices import DataFile
from backfill_assets.lake.storage import files_in, writing

# Delta forgets commits after 30 days and vacuum drops files after 7. Rollback, releases and the
# audit trail reach back further: a year, after which a day is rebuilt from raw instead.
RETENTION = {
    "delta.logRetentionDuration": "interval 400 days",
    "delta.deletedFileRetentionDuration": "interval 400 days",
    # Commits carry their days' records; a checkpoint every 20 keeps opening a table short without
    # rewriting it often.
    "delta.checkpointInterval": "20",
    # Slices are found by their partition; bounds of every column would cost each write a second,
    # for files of one day.
    "delta.dataSkippingNumIndexedCols": "4",
}


class Committed(NamedTuple):
    """The version of a commit, and all files that its days have in it."""

    version: int
    files: Sequence[DataFile]


@dataclass(frozen=True)
class FileCommit:
    """Files in the folder of a table, ready to be committed.

    They replace all files of their days. `columns` are those of the DataFrame, as JSON
    (`rows.schema.json()`). `attempted` are the days whose files may be in a commit.
    """

    folder: str
    column: str
    files: Sequence[DataFile]
    columns: str
    attempted: set[date] = field(default_factory=set)

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> Committed:
        self.attempted.update(days)
        accepted = set(days)
        files = [file for file in self.files if file.day in accepted]
        adds = [_add(file, self.column) for file in files]
        if table is None:
            self._create(adds, metadata)
            return Committed(0, files)
        table.create_write_transaction(
            [*adds],
            "overwrite",
            self.schema_after(table, accepted),
            [self.column],
            [(self.column, "in", [day.isoformat() for day in days])],
            commit_properties=_properties(metadata),
            post_commithook_properties=PostCommitHookProperties(
                create_checkpoint=True, cleanup_expired_logs=False
            ),
        )
        # The handle stays at the version where it was opened.
        return Committed(int(table.version()) + 1, files)

    def schema_after(self, table: DeltaTable, days: set[date]) -> Schema:
        """The columns of the table after these days are committed.

        They are the declared ones once no other file is left. Until then they are the stored ones
        and the new ones, without undeclared columns that no remaining file has. Raises UsageError
        if these do not fit together.
        """
        if not column_differences(table, self.columns):
            return table.schema()
        files = [(day, name) for day, name, _ in day_files(table) if day not in days]
        kept = {day for day, _ in files}
        if not kept:
            return delta_schema(self.columns)
        merged = merged_schema(table, self.columns, self.folder, kept, days)
        gone = undeclared(table, self.columns)
        if gone and not any(self._may_have(name, gone) for _, name in files):
            return Schema([field for field in merged.fields if field.name not in gone])
        return merged

    def _may_have(self, name: str, columns: Collection[str]) -> bool:
        """True if a file has one of these columns, or cannot be read."""
        try:
            with files_in(self.folder).open_input_file(unquote(name)) as file:
                return not set(columns).isdisjoint(pq.read_schema(file).names)
        except (OSError, pa.ArrowException):
            return True

    def _create(self, adds: list[AddAction], metadata: str) -> None:
        try:
            create_table_with_add_actions(
                self.folder,
                delta_schema(self.columns),
                adds,
                mode="error",
                partition_by=[self.column],
                configuration=RETENTION,
                commit_properties=_properties(metadata),
            )
        except DeltaError as error:
            if open_table(self.folder) is None:
                raise
            raise CommitFailedError("another writer made the table") from error

    def uncommitted(self) -> list[DataFile]:
        """The files of days that no commit was tried with."""
        return [file for file in self.files if file.day not in self.attempted]


def _properties(metadata: str) -> CommitProperties:
    return CommitProperties({"userMetadata": metadata}, max_commit_retries=0)


def _add(file: DataFile, column: str) -> AddAction:
    figures = {
        "numRecords": file.rows,
        "minValues": file.lowest,
        "maxValues": file.highest,
        "nullCount": file.nulls,
    }
    stats = json.dumps(
        {name: value for name, value in figures.items() if value is not None}, ensure_ascii=False
    )
    return AddAction(
        file.path, file.size, {column: file.day.isoformat()}, file.modified_ms, True, stats
    )


# Object stores have no locks: other writers may commit first, several times.
COMMIT_RETRIES = 200


class Commit(Protocol):
    """Commit accepted `days` to the table at `folder`, in one commit that carries `metadata`.

    The table is partitioned by `column`. Returns the new version and the files of these days.
    Raises CommitFailedError, and commits nothing, if another commit came after `table` was opened
    (None: if the table exists now).
    """

    @property
    def folder(self) -> str: ...

    @property
    def column(self) -> str: ...

    def __call__(
        self, table: DeltaTable | None, days: Sequence[date], metadata: str
    ) -> Committed: ...


def commit_and_record(
    root: str, table: str, decide: Callable[[], Sequence[Build]], commit: Commit
) -> list[Build]:
    """Decide on builds, commit the accepted ones and record them all, under the table's lock.

    Commits that the ledger lacks are recorded first, because the decision depends on them.
    `decide` is called under the lock, and again whenever another writer committed first. Raises
    NotRecorded if the rows are committed but the ledger could not be written.
    """
    again = retry_if_exception_type(CommitFailedError)
    tries = Retrying(
        retry=again, stop=stop_after_attempt(COMMIT_RETRIES), wait=wait_random(0, 0.05)
    )
    ledger = Ledger(root)
    with writing(root, table):
        try:
            builds = tries(_decide_and_commit, ledger, table, decide, commit)
        except RetryError as error:
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
    ledger: Ledger, name: str, decide: Callable[[], Sequence[Build]], commit: Commit
) -> list[Build]:
    table = open_table(commit.folder)
    refuse_unfit(commit.folder, table, commit.column)
    recover_locked(ledger, name)
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
        if made is None:  # if another writer came first, decide again
            raise
        version = made
        written = open_table(commit.folder, made)
        files = data_files(written, [build.day for build in accepted]) if written else {}
    return [
        replace(build, delta_version=version, data_files=files.get(build.day, ""))
        if build.outcome in COMMITTED
        else build
        for build in builds
    ]


# Keys in a column's metadata. A writer must check or compute the values of such a column.
ASK_FOR_VALUES = {"delta.invariants", "delta.generationExpression"}


def refuse_unfit(folder: str, table: DeltaTable | None, column: str) -> None:
    """Raise UsageError if this package must not write days of `column` to the table.

    That is the case for another partitioning, and for Delta features that we do not enforce:
    constraints, NOT NULL, generated columns and column mapping.
    """
    refuse_other_partitioning(folder, table, column)
    if table is None:
        return
    constraints = [
        name for name in table.metadata().configuration if name.startswith("delta.constraints.")
    ]
    fields = json.loads(table.schema().to_json())["fields"]
    of_columns = [
        field["name"]
        for field in fields
        if not field["nullable"] or ASK_FOR_VALUES & field["metadata"].keys()
    ]
    restore = "restore the table as it was before (RESTORE TABLE ... TO VERSION AS OF)"
    if renamed_columns(table):
        feature = "columns of other names than its files (delta.columnMapping.mode)"
        next_step = f"To go on, {restore}, or remove its folder and rebuild all its days."
    elif constraints:
        feature = f"constraints ({', '.join(constraints)})"
        next_step = "Drop them (ALTER TABLE ... DROP CONSTRAINT) and declare rules instead."
    elif of_columns:
        feature = f"columns that may not be null or are computed ({', '.join(of_columns)})"
        next_step = (
            "Make them plain again (ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL) and declare"
            f" rules instead, or {restore}."
        )
    else:
        return
    raise UsageError(
        f"{folder} has {feature}, which this project does not support.",
        unchanged=NOTHING_COMMITTED,
        next_step=next_step,
    )
