"""Write the rows of a released table to a file. No server is needed."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from backfill_assets.errors import UsageError, first_line
from backfill_assets.lake.channels import STABLE
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.storage import replacing
from backfill_assets.verbs.report import Line, Report, refuse_file
from backfill_assets.workspace import Workspace

UNCHANGED = "Nothing was written."


def json_text(value: object) -> str:
    """Return JSON that keeps every digit: a decimal becomes text, unless its type is whole."""
    return json.dumps(value, ensure_ascii=False, default=_exact)


def _exact(value: object) -> object:
    is_whole = isinstance(value, Decimal) and value.as_tuple().exponent == 0
    return int(value) if is_whole else str(value)  # type: ignore[call-overload]


class JsonWriter:
    """Writes an array with an object for each row. A map in it is a list of pairs."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self.file = file
        self.before = b"[\n"

    def __enter__(self) -> "JsonWriter":
        return self

    def write_batch(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self.file.write(self.before + json_text(row).encode())
            self.before = b",\n"

    def __exit__(self, *_: object) -> None:
        self.file.write(b"[]\n" if self.before == b"[\n" else b"\n]\n")


WRITERS: dict[str, Callable[[BinaryIO, pa.Schema], AbstractContextManager[Any]]] = {
    ".parquet": pq.ParquetWriter,
    ".csv": csv.CSVWriter,
    ".json": JsonWriter,
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
    """Raise UsageError for a file that cannot be written, or for two names of a release."""
    refuse_file(file, list(WRITERS), UNCHANGED)
    refuse_existing(file, overwrite)
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
    """Write the rows to `file`, which appears when it is complete. Return their number."""
    with replacing(file) as draft:
        with draft.open("wb") as out:
            count = write_to(out, file.suffix, schema, batches)
        refuse_existing(file, overwrite)  # another process may have written the file meanwhile
    return count


def write_to(
    out: BinaryIO, ending: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> int:
    """Write the rows in the format of files with this ending. Return their number.

    Raises UsageError for a type that the format does not have.
    """
    count = 0
    try:
        with WRITERS[ending](out, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                count += batch.num_rows
    except pa.ArrowException as error:  # errors of reading have other types
        raise UsageError(
            f"Rows cannot be written as {ending[1:]}: {first_line(error)}.",
            unchanged=UNCHANGED,
            next_step="Choose another format.",
        ) from None
    return count


def refuse_existing(file: Path, overwrite: bool) -> None:
    if file.exists() and not overwrite:
        raise UsageError(
            f"{file} exists already.",
            unchanged=UNCHANGED,
            next_step="Name another file, or type --overwrite.",
        )
