"""Read a slice with Spark: the parquet files that the table's log lists for its days.

Delta's reader for Spark reads large slices, and files whose form differs from our writes.

Spark asks an object store three times about each file before it reads it. So a step copies small
slices to this machine, by one request for each file, if the executors are here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from pathlib import Path

from deltalake import DeltaTable
from obstore.exceptions import BaseError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from backfill_assets.digest import digest
from backfill_assets.lake.delta import open_version_of, refuse_other_partitioning
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.object_store import read_object, store_at
from backfill_assets.lake.slices import DataFile, Slice, files_of
from backfill_assets.lake.spark.session import MOST_FILES
from backfill_assets.lake.storage import at_once

# Names of Spark's files need no escaping. If names of another writer do, Delta reads the files.
PLAIN_PATH = re.compile(r"(?!.*\.\.)[\w=./-]+", re.ASCII)
# Larger slices (in compressed bytes) are read in the object store, by many tasks at once.
MOST_COPIED = 32 * 2**20


@dataclass(frozen=True)
class SliceRows:
    """The rows of a slice, and the number of bytes in which they are stored."""

    parts: Sequence[SliceReader]

    @classmethod
    def of(cls, lake: Lake, rows: Slice, columns: str, near: Path | None = None) -> SliceRows:
        """The rows of a slice in the declared `columns`. `near`: the folder for copies of files."""
        parts = [
            SliceReader(folder, part, columns, near=near) for folder, part in lake.slices(rows)
        ]
        return cls([part for part in parts if part.slice.days] or parts[:1])

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def rows(self, spark: SparkSession) -> DataFrame:
        return reduce(DataFrame.unionByName, [part.rows(spark) for part in self.parts])


@dataclass(frozen=True)
class SliceReader:
    """The rows of a slice of the table in `folder`, in the declared `columns`.

    The columns of the table itself are not used, because they depend on the days that were rebuilt.
    Columns that the table lacks are null. Delta reads slices of more than `max_paths` files. The
    files of a small slice in an object store are copied to the folder `near`, if there is one.
    """

    folder: str
    slice: Slice
    columns: str
    max_paths: int = MOST_FILES
    near: Path | None = None

    @cached_property
    def _table(self) -> DeltaTable | None:
        if self.slice.version < 0 or not self.slice.days:
            return None
        table = open_version_of(self.folder, self.slice.version)
        refuse_other_partitioning(self.folder, table, self.slice.column)
        return table

    @cached_property
    def _files(self) -> list[DataFile]:
        return files_of(self._table, self.slice.column, self.slice.days) if self._table else []

    @property
    def size(self) -> int:
        """The bytes of the slice's files."""
        return sum(file.size for file in self._files)

    def rows(self, spark: SparkSession) -> DataFrame:
        """The rows. Empty if there is no table yet."""
        declared = schema_of(spark, self.columns)
        if self._table is None:
            return spark.createDataFrame([], declared)
        stored = StructType.fromJson(json.loads(self._table.schema().to_json()))
        if self._table.protocol().min_reader_version > 1 or not self._are_plain():
            reader = spark.read.format("delta").option("versionAsOf", self.slice.version)
            frame = reader.load(self.folder).where(self.slice.condition)
        else:
            folder = copied(self.folder, self._files, self.near) if self.near else self.folder
            frame = read_files(spark, folder, self._files, self.slice.column, stored)
        # Neither Spark nor Delta tells upper and lower case apart.
        names = {name.lower() for name in stored.names}
        return frame.select(
            *(
                (
                    F.col(f"`{f.name}`")
                    if f.name.lower() in names
                    else F.lit(None).cast(f.dataType)
                ).alias(f.name)
                for f in declared
            )
        )

    def _are_plain(self) -> bool:
        """True if there are few files, and each path names its day as our writes and Delta's do."""
        return len(self._files) <= self.max_paths and all(
            PLAIN_PATH.fullmatch(file.path)
            and file.path.split("/")[-2:-1] == [f"{self.slice.column}={file.day}"]
            for file in self._files
        )


def copied(folder: str, files: Sequence[DataFile], near: Path) -> str:
    """The folder to read data files from: `folder`, or one below `near` with copies.

    The files of a small slice in an object store are copied.
    """
    if "://" not in folder or sum(file.size for file in files) > MOST_COPIED:
        return folder
    place = near / digest(folder)
    try:
        at_once(folder, partial(_copy, folder, place), files)
    except (BaseError, OSError):
        # Spark then reads the files in the store, or says why it cannot.
        return folder
    return f"file://{place}"


def _copy(folder: str, place: Path, file: DataFile) -> None:
    """Copy a data file. Raises OSError if it is gone, or differs from the log."""
    copy = place / file.path
    if copy.exists() and copy.stat().st_size == file.size:
        return
    found = read_object(store_at(folder), file.path)
    if found is None or len(found.contents) != file.size:
        raise OSError(f"{folder}/{file.path} is not as the log says")
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(found.contents)


def read_files(
    spark: SparkSession, folder: str, files: Sequence[DataFile], column: str, schema: StructType
) -> DataFrame:
    """The rows of data files of the table in `folder`, with their day.

    Columns that older files lack are null.
    """
    if not files:
        return spark.createDataFrame([], schema)
    within = StructType([f for f in schema.fields if f.name != column])
    # The paths are names, not patterns.
    frame = (
        spark.read.schema(within)
        .option("__globPaths__", "false")
        .parquet(*[f"{folder}/{file.path}" for file in files])
    )
    # Rows are many: a regular expression would take longer.
    after = F.substring_index("_metadata.file_path", f"/{column}=", -1)
    day = F.substring_index(after, "/", 1).cast("date")
    return frame.select(
        *[day.alias(column) if name == column else F.col(f"`{name}`") for name in schema.names]
    )


# A request to the engine, which a step repeats for each of its inputs.
@lru_cache(maxsize=256)
def schema_of(spark: SparkSession, columns: str) -> StructType:
    """Parse the declared columns into a schema, with Spark's own parser."""
    return spark.createDataFrame([], columns).schema
