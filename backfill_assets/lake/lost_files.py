"""Data files that are not there any more as they were written, which the log does not show: gone, or of another size. No Spark.

The log keeps each file's size. One look a file tells what a disk, a vacuum or a hand has done to it, unless its size stayed:
then only reading it does.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import date
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileInfo, FileSystem, FileType

from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.partitioning import other_partitioning
from backfill_assets.lake.paths import files_in
from backfill_assets.lake.slice import DataFile, files_of


def lost_files(folder: str, column: str, days: Collection[date], version: int | None = None) -> dict[date, str]:
    """Those of `days` of the table at `folder` whose files are not as they were written, each with what is the matter.

    The table is looked at as it is listed at `version` (None: now; -1: there is none).
    """
    files = _listed(folder, column, days, version)
    looks = files_in(folder).get_file_info([unquote(file.path) for file in files]) if files else []
    return {file.day: why for file, look in zip(files, looks, strict=True) if (why := _difference(file, look))}


def unreadable_files(folder: str, column: str, days: Collection[date], version: int | None = None) -> dict[date, str]:
    """The same for files that cannot be read to their end. Reads all of them: for when something failed to."""
    store = files_in(folder)
    return {
        file.day: f"its file {file.path} cannot be read: {error}"
        for file in _listed(folder, column, days, version)
        if (error := _error_in(store, unquote(file.path)))
    }


def _listed(folder: str, column: str, days: Collection[date], version: int | None) -> Sequence[DataFile]:
    table = open_table(folder, version) if days and version != -1 else None
    return list(_below(table, column, days)) if table and not other_partitioning(table, column) else []


def _below(table: DeltaTable, column: str, days: Collection[date]) -> Iterator[DataFile]:
    # Others may have added files that lie elsewhere: that is seen by the log.
    return (file for file in files_of(table, column, days) if "://" not in file.path and not file.path.startswith("/"))


def _difference(file: DataFile, look: FileInfo) -> str:
    if look.type == FileType.NotFound:
        return f"its file {file.path} is missing"
    return "" if look.size == file.size else f"its file {file.path} has {look.size:,} bytes, and {file.size:,} were written"


def _error_in(store: FileSystem, path: str) -> str:
    try:
        with store.open_input_file(path) as opened:
            for _ in pq.ParquetFile(opened).iter_batches():
                pass
    except (OSError, pa.ArrowException) as error:
        return str(error).partition("\n")[0][:200] or type(error).__name__
    return ""
