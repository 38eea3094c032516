"""Committing data files that lie in a table's folder already, with `deltalake`, in place of what their days hold."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from backfill_assets.lake.columns import delta_schema, differing, merged_schema, undeclared
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.paths import files_in
from backfill_assets.lake.slice import DataFile
from backfill_assets.lake.table_state import day_files

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


class Committed(NamedTuple):
    """The version in which a commit stands, and all files that its days have there."""

    version: int
    files: Sequence[DataFile]


@dataclass(frozen=True)
class FileCommit:
    """Files of a table that lie in `folder`, ready to be committed.

    They replace whatever the days hold. `columns` are those of the DataFrame, as JSON (`rows.schema.json()`). `attempted` are
    the days of which files may be committed.
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
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
        )
        # The handle stays at the version where it was opened.
        return Committed(int(table.version()) + 1, files)

    def schema_after(self, table: DeltaTable, days: set[date]) -> Schema:
        """The columns of the table after these days: the declared ones, once no file of others is left; until then the stored
        ones and the new. UsageError if these do not go together."""
        if not differing(table, self.columns):
            return table.schema()
        files = [(day, name) for day, name, _ in day_files(table) if day not in days]
        kept = {day for day, _ in files}
        if not kept:
            return delta_schema(self.columns)
        merged, gone = merged_schema(table, self.columns, self.folder, kept, days), undeclared(table, self.columns)
        if gone and not any(self._may_have(name, gone) for _, name in files):
            return Schema([field for field in merged.fields if field.name not in gone])
        return merged

    def _may_have(self, name: str, columns: Collection[str]) -> bool:
        """Whether a file has one of these columns, or cannot be asked."""
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
    figures = {"numRecords": file.rows, "minValues": file.lowest, "maxValues": file.highest, "nullCount": file.nulls}
    stats = json.dumps({name: value for name, value in figures.items() if value is not None}, ensure_ascii=False)
    return AddAction(file.path, file.size, {column: file.day.isoformat()}, file.modified_ms, True, stats)
