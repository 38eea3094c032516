"""`backfill export`: the rows of a released table as a Parquet or CSV file. No server, no Spark."""

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from backfill_assets.cli import exit_codes
from backfill_assets.cli.rendering import records
from backfill_assets.errors import UsageError
from backfill_assets.lake.documents import replacing
from backfill_assets.lake.release import STABLE
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases

WRITERS: dict[str, Callable[[Path, pa.Schema], AbstractContextManager[Any]]] = {
    ".parquet": lambda path, schema: pq.ParquetWriter(path, schema),
    ".csv": lambda path, schema: csv.CSVWriter(path, schema),
}


def run(table: str, file: Path, partitions: str, *, number: int | None, channel: str, overwrite: bool, as_json: bool) -> int:
    refuse_file(file, overwrite)
    if number is not None and channel != STABLE:
        raise UsageError("--release and --channel exclude each other. Nothing was written. Leave one out.")
    workspace = records()
    days = workspace.calendar.select(partitions) if partitions else None
    releases = Releases(workspace.lake.root)
    release = releases.of_channel(channel) if number is None else releases.readable(number)
    released = ReleasedTable(workspace.lake.root, release, table)
    key = next((each.key for each in workspace.tables if each.name == table), ())
    rows = write(released.dataset(days).schema, released.batches(key, days), file, overwrite=overwrite)
    if as_json:
        print(json.dumps({"file": str(file), "rows": rows, "table": table, "release": release.number}))
    else:
        print(f"{file}: {rows:,} rows of {table}, release {release.number}.")
    return exit_codes.DONE


def refuse_file(file: Path, overwrite: bool) -> None:
    """UsageError for a file of another kind, one that is there, or one in a folder that is not there."""
    if file.suffix not in WRITERS:
        raise UsageError(f"{file} does not end in {' or '.join(WRITERS)}. Nothing was written. Name such a file.")
    if file.is_dir() or (file.exists() and not overwrite):
        raise UsageError(f"{file} is there already. Nothing was written. Name another file, or type --overwrite.")
    if not file.parent.is_dir():
        raise UsageError(f"There is no folder {file.parent}. Nothing was written. Make it, or name another file.")


def write(schema: pa.Schema, batches: Iterable[pa.RecordBatch], file: Path, *, overwrite: bool) -> int:
    """Write the rows to `file` as they come; it appears when it is complete. How many they are."""
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if file.suffix == ".csv" and nested:
        raise UsageError(
            f"CSV has no lists and maps, which {', '.join(nested)} holds. Nothing was written. Name a .parquet file."
        )
    count = 0
    with replacing(file) as draft:
        with WRITERS[file.suffix](draft, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                count += batch.num_rows
        refuse_file(file, overwrite)  # another process may have written it meanwhile
    return count
