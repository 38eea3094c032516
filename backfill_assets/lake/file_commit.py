"""A commit of data files: the files of some days replace the files of these days in a table.

A commit is a compare-and-swap. It succeeds only if no other commit came after the table was opened.
`deltalake` alone lets two writers both fill an empty day (measured): the table would have every row
twice.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from backfill_assets.errors import NOTHING_COMMITTED, TableUnreadable, UsageError
from backfill_assets.lake.broken_files import ENDS, refuse_broken_log
from backfill_assets.lake.columns import (
    changes_by,
    delta_schema,
    fields_of,
    merged_schema,
)
from backfill_assets.lake.delta import open_table, refuse_other_partitioning
from backfill_assets.lake.durable import put_log_on_disk
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.listed_files import day_files, renamed_columns
from backfill_assets.lake.object_store import delta_options
from backfill_assets.lake.releases import Releases, newest_of
from backfill_assets.lake.slices import DataFile, files_of
from backfill_assets.lake.storage import files_in, lake_and_table

# Delta forgets commits after 30 days and vacuum drops files after 7. Rollback, releases and the
# audit trail need a year; later a day is rebuilt from raw instead.
RETENTION = {
    "delta.logRetentionDuration": "interval 400 days",
    "delta.deletedFileRetentionDuration": "interval 400 days",
    # Commits carry their days' records. With a checkpoint every 20 commits, opening a table is fast
    # and the checkpoint is rewritten rarely.
    "delta.checkpointInterval": "20",
    # Slices are found by their partition. Bounds of every column would cost each write a second,
    # for files of one day.
    "delta.dataSkippingNumIndexedCols": "4",
}
_DURATIONS = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")


class Committed(NamedTuple):
    """The version of a commit, and all files of its days in it."""

    version: int
    files: Sequence[DataFile]


@dataclass(frozen=True)
class FileCommit:
    """Files in the folder of a table, ready to be committed.

    They replace all files of their days. `columns` are the columns of the DataFrame, as JSON
    (`rows.schema.json()`). `act` is the number of the act that commits them, 0 for none.
    `attempted` are the days of attempted commits.
    """

    folder: str
    column: str
    files: Sequence[DataFile]
    columns: str
    act: int = 0
    attempted: set[date] = field(default_factory=set)

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> Committed:
        self.attempted.update(days)
        accepted = set(days)
        files = [file for file in self.files if file.day in accepted]
        adds = [_add(file, self.column) for file in files]
        if table is None:
            self._create(adds, _properties(metadata, self.act))
            return Committed(0, files)
        self._prepare()
        table.create_write_transaction(
            [*adds],
            "overwrite",
            self.schema_after(table, accepted),
            [self.column],
            [(self.column, "in", [day.isoformat() for day in days])],
            commit_properties=_properties(metadata, self.act),
            post_commithook_properties=PostCommitHookProperties(
                create_checkpoint=True, cleanup_expired_logs=False
            ),
        )
        put_log_on_disk(self.folder)
        # The handle stays at the version at which it was opened.
        return Committed(int(table.version()) + 1, files)

    def fence(self, table: DeltaTable | None) -> None:
        """Add an empty commit, so that writers that opened the table earlier start again.

        Creates a missing table. Raises CommitFailedError as a commit does.
        """
        if table is None:
            self._create([], _properties("", self.act, FENCES))
            return
        self._prepare()
        table.create_write_transaction(
            [],
            "append",
            table.schema(),
            [self.column],
            commit_properties=_properties("", self.act, FENCES),
        )
        put_log_on_disk(self.folder)

    def _prepare(self) -> None:
        """Make sure that the commits on which another is built are whole and on the disk."""
        refuse_broken_log(self.folder)
        put_log_on_disk(self.folder)

    def refuse_unfit(self, table: DeltaTable | None, days: Collection[date]) -> None:
        """Raise UsageError if the files cannot replace these days of the current table."""
        refuse_unfit(self.folder, table, self.column)
        if table:
            self.schema_after(table, set(days))

    def schema_after(self, table: DeltaTable, days: set[date]) -> Schema:
        """The columns of the table after these days are committed.

        These are the declared columns once no other file is left. Until then they are the stored
        and the new columns, without undeclared columns that no remaining file has. Raises
        UsageError if the columns do not fit together, and for a table of another program if none of
        its days is replaced.
        """
        if not (changes := changes_by(table, self.columns)):
            return table.schema()
        listed = day_files(table)
        files = [(day, name) for day, name, _ in listed if day not in days]
        if len(files) == len(listed):
            self._refuse_foreign(table, changes.names)
        kept_days = {day for day, _ in files}
        if not kept_days:
            return delta_schema(self.columns)
        merged = merged_schema(table, self.columns, self.folder, kept_days, days)
        gone = changes.gone
        if gone and not any(self._may_have(name, gone) for _, name in files):
            return Schema([field for field in merged.fields if field.name not in gone])
        return merged

    def _refuse_foreign(self, table: DeltaTable, columns: Sequence[str]) -> None:
        """Raise UsageError if the table has files, but no build of this project."""
        root, name = lake_and_table(self.folder)
        [recorded] = Ledger(root).newest([name]).values()
        if recorded.version < 0 and table.file_uris():
            raise UsageError(
                f"{self.folder} is a table of another program, with other columns than declared:"
                f" {', '.join(columns)}.",
                unchanged=NOTHING_COMMITTED,
                next_step=(
                    "Declare its columns, or move its folder away. Or build days that it has:"
                    " `--replace-foreign-rows` with a reason replaces their rows."
                ),
            )

    def _may_have(self, name: str, columns: Collection[str]) -> bool:
        """True if a file has one of these columns, or cannot be read."""
        try:
            with files_in(self.folder).open_input_file(unquote(name)) as file:
                return not set(columns).isdisjoint(pq.read_schema(file).names)
        except (OSError, pa.ArrowException):
            return True

    def _create(self, adds: list[AddAction], properties: CommitProperties) -> None:
        try:
            create_table_with_add_actions(
                self.folder,
                delta_schema(self.columns),
                adds,
                mode="error",
                partition_by=[self.column],
                storage_options=delta_options(self.folder),
                configuration=RETENTION,
                commit_properties=properties,
            )
        except DeltaError as error:
            if open_table(self.folder) is None:
                raise
            raise CommitFailedError("another writer made the table") from error
        put_log_on_disk(self.folder)

    def uncommitted(self) -> list[DataFile]:
        """The files of the days without an attempted commit."""
        return [file for file in self.files if file.day not in self.attempted]


@dataclass(frozen=True)
class AdoptCommit(FileCommit):
    """A commit that has only builds, for days whose files stay as they are.

    The table keeps removed files and commits for as long as tables of this project, if it does not
    say how long.
    """

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> Committed:
        assert table is not None
        self._prepare()
        version = int(table.version())
        own = DeltaTable(self.folder, version, storage_options=delta_options(self.folder))
        configuration = table.metadata().configuration
        own.alter.set_table_properties(
            {name: configuration.get(name, RETENTION[name]) for name in _DURATIONS},
            commit_properties=_properties(metadata, 0),
            post_commithook_properties=PostCommitHookProperties(
                create_checkpoint=False, cleanup_expired_logs=False
            ),
        )
        put_log_on_disk(self.folder)
        return Committed(version + 1, files_of(table, self.column, days))


# Delta's transaction ids of acts and of fences. In a table's log, the version of such a transaction
# is the number of the last act.
ACTS = "backfill_assets.acts"
FENCES = "backfill_assets.fences"


def last_act(table: DeltaTable | None, mark: str = ACTS) -> int:
    """The number of the last act in a table's log under this mark; 0 without an act."""
    return (table.transaction_version(mark) or 0) if table else 0


def _properties(metadata: str, act: int, mark: str = ACTS) -> CommitProperties:
    return CommitProperties(
        {"userMetadata": metadata, ENDS: "here"} if metadata else None,
        max_commit_retries=0,
        app_transactions=[*([Transaction(mark, act)] if act else []), Transaction(ENDS, 0)],
    )


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


# In the JSON of a column, also of a nested part: a writer must check or compute its values.
_CONSTRAINED = re.compile(
    '"delta.(invariants|generationExpression)": |"(nullable|(value)?[Cc]ontainsNull)": false'
)


def constrained_columns(schema: Schema) -> list[str]:
    """The columns that may not be null or are checked or computed, as a whole or in a part."""
    return [field["name"] for field in fields_of(schema) if _CONSTRAINED.search(json.dumps(field))]


def refuse_unfit(folder: str, table: DeltaTable | None, column: str) -> None:
    """Raise UsageError if this package must not write days of `column` to the table.

    It must not with another partitioning, and with Delta features that we do not enforce:
    constraints, NOT NULL, generated columns and column mapping.
    """
    refuse_other_partitioning(folder, table, column)
    if table is None:
        return
    _refuse_lost_commits(folder)
    constraints = [
        name for name in table.metadata().configuration if name.startswith("delta.constraints.")
    ]
    of_columns = constrained_columns(table.schema())
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


def _refuse_lost_commits(folder: str) -> None:
    """Raise TableUnreadable if the newest release has a later version of the table than its log.

    Another commit of that version would give other rows to the readers of that release.
    """
    root, name = lake_and_table(folder)
    newest = Releases(root).newest() if "://" not in root else None
    released = newest.tables.get(name) if newest else None
    if newest is None or released is None:
        return
    last = newest_of(root, released.path, released.id)
    if last is not None and last < released.version:
        raise TableUnreadable(
            f"{folder} lost version {released.version}, which release {newest.number} has.",
            unchanged=NOTHING_COMMITTED,
            next_step="Type `backfill reconcile --repair`: it moves that release aside.",
        )
