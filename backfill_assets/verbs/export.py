"""Write the rows of a released table to a file. No server is needed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from backfill_assets.errors import UsageError
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import STABLE, Releases
from backfill_assets.lake.storage import replacing
from backfill_assets.verbs.report import Line, Report, refuse_file
from backfill_assets.workspace import Workspace

UNCHANGED = "Nothing was written."
WRITERS: dict[str, Callable[[Path, pa.Schema], AbstractContextManager[Any]]] = {
    ".parquet": pq.ParquetWriter,
    ".csv": csv.CSVWriter,
}


@dataclass(frozen=True)
class ExportReport(Report):
    file: Path
    rows: int
    table: str
    release: int

    def lines(self) -> Iterator[Line]:
        yield f"{self.file}: {self.rows:,} rows of {self.table}, release {self.release}."


def refuse_request(file: Path, number: int | None, channel: str, *, overwrite: bool) -> None:
    """Raise UsageError for a file that cannot be written, or a release that is named twice."""
    refuse_file(file, list(WRITERS), UNCHANGED)
    _refuse_existing(file, overwrite)
    if number is not None and channel != STABLE:
        raise UsageError(
            "--release and --channel exclude each other.",
            unchanged=UNCHANGED,
            next_step="Leave one out.",
        )


def export_table(
    workspace: Workspace,
    table: str,
    file: Path,
    days: Sequence[date] | None,
    *,
    number: int | None,
    channel: str,
    overwrite: bool,
) -> ExportReport:
    """Write the rows of a released table to a file."""
    root = workspace.lake.root
    release = open_channel(root, channel) if number is None else Releases(root).readable(number)
    released = ReleasedTable(root, release, table)
    key = next((declared.key for declared in workspace.tables if declared.name == table), ())
    schema = released.dataset(days).schema
    rows = write(schema, released.batches(key, days), file, overwrite=overwrite)
    return ExportReport(file, rows, table, release.number)


def write(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], file: Path, *, overwrite: bool
) -> int:
    """Write the rows to `file`, which appears when it is complete. Return how many there are."""
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if file.suffix == ".csv" and nested:
        raise UsageError(
            f"CSV has no lists and maps, as in {', '.join(nested)}.",
            unchanged=UNCHANGED,
            next_step="Name a .parquet file.",
        )
    count = 0
    with replacing(file) as draft:
        with WRITERS[file.suffix](draft, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                count += batch.num_rows
        _refuse_existing(file, overwrite)  # another process may have written it meanwhile
    return count


def _refuse_existing(file: Path, overwrite: bool) -> None:
    if file.exists() and not overwrite:
        raise UsageError(
            f"{file} exists already.",
            unchanged=UNCHANGED,
            next_step="Name another file, or type --overwrite.",
        )
