"""Parquet files that are written before they are committed.

Files are at `<table>/<unique name>/<day column>=YYYY-MM-DD/part-*.parquet`. Each write has its own
folder: writers do not collide, and listing the folder gives the files of one write. The name does
not begin with an underscore, so that a vacuum removes files that were never committed.
"""

import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileInfo, FileSelector, FileSystem
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.errors import NOTHING_COMMITTED, UsageError
from backfill_assets.lake.durable import put_on_disk
from backfill_assets.lake.slices import DataFile
from backfill_assets.lake.spark.session import observe
from backfill_assets.lake.storage import at_once, files_in, write_file

# The number of columns with bounds (delta.dataSkippingNumIndexedCols), and the longest text for a
# bound: Delta cuts longer texts off, and such a bound must be rounded up.
BOUNDED_COLUMNS = 4
MAX_TEXT = 32


def write_table(rows: pa.Table, folder: str, column: str) -> list[DataFile]:
    """Write `rows` as one file per day in the folder of a table.

    Readers do not see the files before the commit. All rows must have a day.
    """
    name = uuid.uuid4().hex
    others = [name for name in rows.column_names if name != column]

    def write(day: date) -> DataFile:
        is_day = pc.equal(rows[column], pa.scalar(day, pa.date32()))
        out = pa.BufferOutputStream()
        pq.write_table(rows.filter(is_day).select(others), out, compression="snappy")
        path = f"{name}/{column}={day}/part-0.parquet"
        contents = out.getvalue()
        write_file(folder, path, contents)
        footer = pq.read_metadata(pa.BufferReader(contents))
        now = time.time_ns() // 1_000_000
        return _data_file(footer, path, contents.size, now, day)

    files = at_once(folder, write, pc.unique(rows[column]).to_pylist())
    return _complete(folder, files, rows.num_rows)


def write_frame(rows: DataFrame, folder: str, column: str) -> list[DataFile]:
    """Write `rows` with Spark, as one or more files per day.

    Otherwise as `write_table`.
    """
    name = uuid.uuid4().hex
    # The tasks that write also count the rows.
    counted = Observation()
    observed = observe(rows, counted, F.count(F.lit(1)).alias("rows"))
    writer = observed.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    writer.partitionBy(column).parquet(f"{folder}/{name}")
    return _complete(folder, _written(folder, name, column), counted.get.get("rows", 0))


def _complete(folder: str, files: list[DataFile], rows: int) -> list[DataFile]:
    """The files of a write, on the disk. Raises UsageError unless their footers count `rows`."""
    in_files = sum(file.rows or 0 for file in files)
    if in_files == rows:
        put_on_disk(folder, [file.path for file in files])
        return files
    remove_files(folder, files)
    raise UsageError(
        f"{rows:,} rows were written to {folder}, and the files there have {in_files:,}.",
        unchanged=NOTHING_COMMITTED,
        next_step=(
            "If Spark runs on several hosts, each must have this folder at this path: use a shared"
            " disk or an object store. Otherwise check the disk. Then run again."
        ),
    )


def _written(folder: str, name: str, column: str) -> list[DataFile]:
    store = files_in(folder)
    prefix = f"{name}/{column}="

    def read(info: FileInfo) -> DataFile:
        value = info.path[len(prefix) :].partition("/")[0]
        return data_file_of(store, info, date.fromisoformat(value))

    infos = store.get_file_info(FileSelector(name, allow_not_found=True, recursive=True))
    files = [
        info
        for info in infos
        if info.is_file and info.path.startswith(prefix) and info.base_name.endswith(".parquet")
    ]
    return at_once(folder, read, files)


def data_file_of(store: FileSystem, info: FileInfo, day: date) -> DataFile:
    """A data file with the statistics from its footer."""
    with store.open_input_file(info.path) as opened:
        footer = pq.read_metadata(opened)
    modified_ms = info.mtime_ns // 1_000_000 if info.mtime_ns else 0
    return _data_file(footer, info.path, info.size, modified_ms, day)


def _data_file(
    footer: pq.FileMetaData, path: str, size: int, modified_ms: int, day: date
) -> DataFile:
    columns = [_column(footer, n) for n in range(min(footer.num_columns, BOUNDED_COLUMNS))]
    return DataFile(
        path=path,
        day=day,
        size=size,
        rows=footer.num_rows,
        modified_ms=modified_ms,
        nulls={name: nulls for name, nulls, _, _ in columns if nulls is not None},
        lowest={name: low for name, _, low, _ in columns if low is not None},
        highest={name: high for name, _, _, high in columns if high is not None},
    )


def _column(footer: pq.FileMetaData, n: int) -> tuple[str, int | None, Any, Any]:
    """The name, nulls and bounds of one column. None where the footer has no exact value."""
    parts = [footer.row_group(g).column(n) for g in range(footer.num_row_groups)]
    name = parts[0].path_in_schema if parts else ""
    figures = [part.statistics for part in parts]
    if not figures or "." in name or any(not part or not part.has_null_count for part in figures):
        return name, None, None, None
    nulls = sum(part.null_count for part in figures)
    bounded = [part for part in figures if part.has_min_max]
    if bounded and all(part.has_min_max or part.num_values == 0 for part in figures):
        # Text may not be UTF-8, and Python has no dates after the year 9999.
        with suppress(UnicodeDecodeError, OverflowError):
            low = _bound(min(part.min for part in bounded))
            return name, nulls, low, _bound(max(part.max for part in bounded))
    return name, nulls, None, None


def _bound(value: Any) -> Any:
    if type(value) is date:
        return value.isoformat()
    return value if type(value) is int or (type(value) is str and len(value) <= MAX_TEXT) else None


def remove_files(folder: str, files: Iterable[DataFile]) -> None:
    """Delete data files that were never committed. A vacuum deletes any that remain."""
    store = files_in(folder)
    for file in files:
        with suppress(OSError):
            store.delete_file(file.path)
