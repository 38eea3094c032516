"""Read a slice with Spark: the parquet files that the table's log lists for its days.

Spark's own Delta reads large slices, and files that our writes do not leave that way.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Protocol

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from backfill_assets.lake.delta import refuse_other_partitioning
from backfill_assets.lake.slices import DataFile, Slice, files_of

# Spark looks at each path it is given; a table's own log is quicker from here on.
MAX_PATHS = 500
# The file names Spark gives need no escaping; where another writer's do, Delta reads them.
PLAIN_PATH = re.compile(r"[\w=./-]+", re.ASCII)


class Rows(Protocol):
    """Rows that can be read: how many bytes they are stored in, and the rows themselves."""

    @property
    def size(self) -> int: ...

    def rows(self, spark: SparkSession) -> DataFrame: ...


@dataclass(frozen=True)
class RowsOfSeveral:
    """The rows of all `parts`, which have the same columns."""

    parts: Sequence[Rows]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def rows(self, spark: SparkSession) -> DataFrame:
        frames = [part.rows(spark) for part in self.parts]
        return reduce(lambda all_, frame: all_.unionByName(frame), frames)


@dataclass(frozen=True)
class SliceReader:
    """The rows of a slice of the table in `folder`, in the declared `columns`, whatever columns the
    table has: those are of all its days, and which of its days were built again must not show in
    what is computed from one. Columns that it lacks are null. Delta reads more than `max_paths`.
    """

    folder: str
    slice: Slice
    columns: str
    max_paths: int = MAX_PATHS

    @cached_property
    def _table(self) -> DeltaTable | None:
        if self.slice.version < 0 or not self.slice.days:
            return None
        table = DeltaTable(self.folder, version=self.slice.version)
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
        """No rows where there is no table yet."""
        declared = schema_of(spark, self.columns)
        if self._table is None:
            return spark.createDataFrame([], declared)
        stored = StructType.fromJson(json.loads(self._table.schema().to_json()))
        if self._table.protocol().min_reader_version > 1 or not self._are_plain():
            frame = (
                spark.read.format("delta")
                .option("versionAsOf", self.slice.version)
                .load(self.folder)
            )
            return _declared(frame.where(self.slice.condition), stored, declared)
        return _declared(
            read_files(spark, self.folder, self._files, self.slice.column, stored), stored, declared
        )

    def _are_plain(self) -> bool:
        """Whether there are few files, and each path lies in the table and names its day, as our
        writes and Delta's do.
        """
        return len(self._files) <= self.max_paths and all(
            _names_its_day(self._files, self.slice.column)
        )


def _declared(rows: DataFrame, stored: StructType, declared: StructType) -> DataFrame:
    has = {
        name.lower() for name in stored.names
    }  # neither Spark nor Delta tells upper and lower case apart
    return rows.select(
        *[
            (
                F.col(f"`{each.name}`")
                if each.name.lower() in has
                else F.lit(None).cast(each.dataType)
            ).alias(each.name)
            for each in declared
        ]
    )


def _names_its_day(files: Iterable[DataFile], column: str) -> Iterable[bool]:
    return (
        bool(PLAIN_PATH.fullmatch(f.path)) and f.path.split("/")[-2:-1] == [f"{column}={f.day}"]
        for f in files
    )


def read_files(
    spark: SparkSession, folder: str, files: Sequence[DataFile], column: str, schema: StructType
) -> DataFrame:
    """The rows of data files of the table in `folder`, each with its day. Columns that older files
    lack are null.
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
    day = F.regexp_extract(
        F.col("_metadata.file_path"), f"/{re.escape(column)}=([^/]*)/[^/]*$", 1
    ).cast("date")
    return frame.select(
        *[day.alias(column) if name == column else F.col(f"`{name}`") for name in schema.names]
    )


def schema_of(spark: SparkSession, columns: str) -> StructType:
    """Parse the declared columns into a schema, with Spark's own parser."""
    return spark.createDataFrame([], columns).schema
