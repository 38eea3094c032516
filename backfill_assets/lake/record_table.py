"""The Delta table of the ledger.

Rows are added and never changed. They are written with `deltalake`: no JVM, and atomic across
processes. Pyarrow reads the files that the log lists. Reading with `deltalake` takes several times
as long for these small files: it builds a filter from the statistics of each file and column.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError

from backfill_assets.calendar import UTC
from backfill_assets.lake.broken_files import refuse_broken
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.durable import put_log_on_disk
from backfill_assets.lake.locks import writing
from backfill_assets.lake.object_store import contents_of, delta_options
from backfill_assets.lake.record_log import RecordLog, form_of, newest_log, opened_to_write
from backfill_assets.lake.storage import (
    LEDGER,
    ZONE_PROPERTY,
    at_once,
    files_in,
    refuse_other_form,
    refuse_other_zone,
)

# Every writer adds a small file. Reading a hundred of them took 0.15 s, ten 0.02 s.
COMPACT_EVERY = 10
# Files of an object store up to this size are cached in memory.
_KEPT_BYTES = 2**18


# Runs that finish together all append here. With four writers, the default of 15 was too low.
APPEND_RETRIES = 200
# Readers of a few days skip groups of rows by their bounds.
GROUP_ROWS = 1000
_WRITTEN = WriterProperties(max_row_group_size=GROUP_ROWS)
# Ten years of nightly builds of a table are three files of this size. Larger files are not
# compacted again.
_COMPACTED_BYTES = 2**20
PARTITION_BY = "table"


@dataclass(frozen=True)
class RecordTable:
    """The table of builds in the lake at `root`, whose days are of `zone` ("": of any)."""

    root: str
    schema: pa.Schema
    zone: str = ""

    @property
    def path(self) -> str:
        return f"{self.root}/{LEDGER}"

    @contextmanager
    def to_write(self) -> Iterator[DeltaTable]:
        """The current table, exclusive to the block. Created if there is none."""
        with opened_to_write(self.path) as table:
            if table:
                refuse_other_form(self.path, form_of(table))
            yield table or self.create()

    def create(self) -> DeltaTable:
        # Under a lock, because the library lets two writers create a table. The metadata of the
        # second makes commits of others fail.
        with writing(self.root, LEDGER):
            try:
                DeltaTable.create(
                    self.path,
                    self.schema,
                    mode="ignore",
                    partition_by=[PARTITION_BY],
                    storage_options=delta_options(self.path),
                    configuration={
                        "delta.logRetentionDuration": "interval 36500 days",
                        "delta.checkpointInterval": str(COMPACT_EVERY),
                        # Bounds of other columns, which are JSON, would make the log large.
                        "delta.dataSkippingStatsColumns": "day,delta_version,at",
                        ZONE_PROPERTY: self.zone or UTC,
                    },
                    raise_if_key_not_exists=False,  # it is our own property
                )
            except DeltaError:
                if open_table(self.path) is None:
                    raise
            put_log_on_disk(self.path)
        return DeltaTable(self.path, storage_options=delta_options(self.path))

    def append(self, table: DeltaTable, rows: pa.Table) -> None:
        """Add rows in one commit to the table that `to_write` gives."""
        put_log_on_disk(self.path, with_files=True)
        write_deltalake(
            table,
            rows,
            mode="append",
            schema_mode="merge",  # a later version may have written more columns
            commit_properties=CommitProperties(max_commit_retries=APPEND_RETRIES),
            writer_properties=_WRITTEN,
            post_commithook_properties=PostCommitHookProperties(
                create_checkpoint=True, cleanup_expired_logs=False
            ),
        )
        put_log_on_disk(self.path, with_files=True)

    def compact(self, table: DeltaTable) -> None:
        """Merge small files at every tenth version. If that fails, nothing is lost."""
        if table.version() % COMPACT_EVERY == COMPACT_EVERY - 1:
            with suppress(DeltaError):
                table.optimize.compact(
                    target_size=_COMPACTED_BYTES,
                    commit_properties=CommitProperties(max_commit_retries=APPEND_RETRIES),
                    writer_properties=_WRITTEN,
                )
                put_log_on_disk(self.path, with_files=True)

    def files(self) -> "RecordFiles":
        """The files of the newest version, for reading. Empty before the first record."""
        log = newest_log(self.path)
        if log:
            refuse_other_form(self.path, log.form)
            refuse_other_zone(self.root, self.zone, log.zone)
        return RecordFiles(self, log)


# The facts about a data file in the log, by name.
RecordFile = Mapping[str, Any]


@dataclass(frozen=True)
class RecordFiles:
    """The files of a record table that `log` lists. Empty without a log."""

    table: RecordTable
    log: RecordLog | None

    @property
    def listed(self) -> Sequence[RecordFile]:
        return self.log.files if self.log else ()

    def _rows(self, file: RecordFile) -> ds.Fragment:
        path = unquote(file["path"])
        form = ds.ParquetFileFormat()
        # The condition for all rows of the file.
        partition = ds.field(PARTITION_BY) == file[f"partition.{PARTITION_BY}"]
        if "://" in self.table.path and file["size_bytes"] <= _KEPT_BYTES:
            # A file of a record table never changes.
            contents = pa.py_buffer(contents_of(self.table.path, path))
            return form.make_fragment(contents, partition_expression=partition)
        return form.make_fragment(path, files_in(self.table.path), partition)

    def read(
        self,
        files: Iterable[RecordFile],
        columns: Sequence[str] | None = None,
        condition: ds.Expression | None = None,
    ) -> pa.Table:
        """The rows of these files."""
        schema = self.table.schema
        fragments = at_once(self.table.path, self._rows, files)
        if not fragments:
            return pa.schema([schema.field(name) for name in columns or schema.names]).empty_table()
        first = fragments[0]
        dataset = ds.FileSystemDataset(fragments, schema, first.format, first.filesystem)
        try:
            return dataset.to_table(columns=list(columns) if columns else None, filter=condition)
        except (OSError, pa.ArrowException):
            if "://" not in self.table.path:
                for file in files:
                    refuse_broken(Path(self.table.path, unquote(file["path"])), of=self.table.path)
            raise
