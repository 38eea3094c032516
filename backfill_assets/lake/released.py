"""The rows of a table in a release, as a pyarrow dataset or as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError
from pyarrow.fs import FileType

from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.releases import Release, TableVersion
from backfill_assets.lake.slices import condition, is_in_folder
from backfill_assets.lake.storage import Paths, files_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The days to read; None for every day.
DaysRead = Collection[date] | None


@dataclass(frozen=True)
class ReleasedTable:
    """The table `name` of a release in the lake at `root`, at the version that the release has."""

    root: str
    release: Release
    name: str

    def dataset(self, days: DaysRead = None) -> ds.Dataset:
        """The rows of these days.

        Raises UsageError for a table that the release does not have, and TableUnreadable for a
        version that is gone or that only Spark can read.
        """
        self._refuse_gone_files(days)
        try:
            if days is not None and not days:
                schema = pa.schema(self._log.schema().to_arrow())
                return ds.FileSystemDataset(
                    [], schema, ds.ParquetFileFormat(), files_in(self._folder)
                )
            wanted = None if days is None else [(self._column, "in", sorted(map(str, days)))]
            return self._log.to_pyarrow_dataset(file_pruning_predicate=wanted)
        except DeltaProtocolError as error:
            raise TableUnreadable(
                f"{self._which} is stored in a way that pyarrow does not read:"
                f" {str(error).splitlines()[0]}",
                unchanged="Nothing was read.",
                next_step="Read it with a Spark session, `read(..., spark=spark)`.",
            ) from None

    def batches(self, key: Sequence[str] = (), days: DaysRead = None) -> Iterator[pa.RecordBatch]:
        """The same rows, ordered by day, and within a day by `key`. One day is in memory at a time.

        Without a key, all columns that have an order decide.
        """
        rows = self.dataset(days)
        columns = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
        by = key if key and set(key) <= set(columns) else columns
        order = [(name, "ascending") for name in by]
        column = pc.field(self._column)
        for day in self._days(days):
            is_day = column.is_null() if day is None else column == pa.scalar(day)
            try:
                rows_of_day = rows.to_table(filter=is_day)
            except (OSError, pa.ArrowException, DeltaError) as error:
                raise self._gone(f"{str(error).strip().splitlines()[0][:300]}.") from None
            yield from rows_of_day.sort_by(order).to_batches()

    def frame(self, spark: SparkSession, days: DaysRead = None) -> DataFrame:
        """The same rows in `spark`. Raises the same errors.

        Spark also reads deletion vectors and renamed columns.
        """
        self._refuse_gone_files(days)
        reader = spark.read.format("delta").option("versionAsOf", self._version.version)
        frame = reader.load(self._folder)
        return frame if days is None else frame.where(condition(self._column, days))

    def days(self) -> list[date]:
        """The days that have rows, in order."""
        return [day for day in self._days(None) if day]

    def outside(self, days: Collection[date]) -> str:
        """A sentence, if all of `days` are before the first or after the last day; else ""."""
        filled = self.days()
        if not filled or any(filled[0] <= day <= filled[-1] for day in days):
            return ""
        return (
            f"{self._which} has rows of {filled[0]} to {filled[-1]}, and none of the days that were"
            " named."
        )

    @property
    def _version(self) -> TableVersion:
        version = self.release.version(self.name)
        if version is None:
            raise UsageError(
                f"Release {self.release.number} has no table {self.name}. Its tables are"
                f" {', '.join(self.release.tables)}.",
                unchanged="Nothing was read.",
                next_step=(
                    "A table that was built later is in a later release: `backfill releases` lists"
                    " them, and `backfill status` says why a channel has none."
                ),
            )
        return version

    @property
    def _folder(self) -> str:
        return Paths(self.root).table(self._version.path)

    @property
    def _which(self) -> str:
        return (
            f"Version {self._version.version} of {self._version.path}, which release"
            f" {self.release.number} has as {self.name},"
        )

    @cached_property
    def _log(self) -> DeltaTable:
        try:
            table = open_version(self.root, self._version)
        except TableUnreadable as error:
            raise self._gone(str(error)) from None
        if table is None:
            raise self._gone(f"There is no table in {self._folder}.")
        return table

    @cached_property
    def _column(self) -> str:
        columns = self._log.metadata().partition_columns
        if len(columns) != 1:
            raise TableUnreadable(
                f"{self._which} is not partitioned by its day.",
                unchanged="Nothing was read.",
                next_step="Leave out the days.",
            )
        return str(columns[0])

    def _days(self, days: DaysRead) -> list[date | None]:
        """The days that have files, in order. None, the last one, is of rows without a day."""
        listed = pa.table(self._log.get_add_actions(flatten=True))
        filled = set(listed[f"partition.{self._column}"].to_pylist()) if listed.num_rows else set()
        wanted = filled if days is None else filled & set(days)
        return sorted(wanted, key=lambda day: (day is None, day or date.min))

    def _refuse_gone_files(self, days: DaysRead) -> None:
        """Raise TableUnreadable if data files of these days are gone.

        Vacuum never removes files of the newest version.
        """
        newest = open_table(self._folder)
        if newest is None or newest.version() == self._log.version():
            return
        suspected = sorted(self._paths(self._log, days) - self._paths(newest, days))
        infos = files_in(self._folder).get_file_info([unquote(path) for path in suspected])
        gone = [info.path for info in infos if info.type == FileType.NotFound]
        if gone:
            raise self._gone(
                f"{len(gone)} of its data files are not in {self._folder}, for example {gone[0]}:"
                " they were vacuumed."
            )

    def _paths(self, table: DeltaTable, days: DaysRead) -> set[str]:
        files = pa.table(table.get_add_actions(flatten=True))
        if days is not None:
            wanted = pa.array(sorted(days), pa.date32())
            files = files.filter(pc.is_in(files[f"partition.{self._column}"], value_set=wanted))
        return set(filter(is_in_folder, files["path"].to_pylist()))

    def _gone(self, why: str) -> TableUnreadable:
        return TableUnreadable(
            f"{self._which} cannot be read any more. {why}",
            unchanged="Nothing was changed, and other releases can still be read.",
            next_step="See `backfill releases`. Delta's vacuum must keep the files of releases.",
        )


def open_version(root: str, version: TableVersion) -> DeltaTable | None:
    """Open a version of a table in the lake at `root`, for reading. None if there is no table.

    Raises as `open_table` does, and TableUnreadable if the table was recreated since.
    """
    folder = Paths(root).table(version.path)
    table = open_table(folder, version.version)
    if table and version.id and str(table.metadata().id) != version.id:
        raise TableUnreadable(
            f"Another table was made in {folder} since, and its version {version.version} has other"
            " rows."
        )
    return table
