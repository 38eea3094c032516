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
from backfill_assets.lake.slices import condition
from backfill_assets.lake.storage import Paths, files_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The days to read; None for every day.
Days = Collection[date] | None


@dataclass(frozen=True)
class ReleasedTable:
    """The table `name` of a release in the lake at `root`, at the version that the release has,
    whatever was written since.
    """

    root: str
    release: Release
    name: str

    def dataset(self, days: Days = None) -> ds.Dataset:
        """The rows of these days. Raises UsageError for a table that the release does not have, and
        TableUnreadable for a version that is not there any more, or that only Spark can read.
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
                f" {str(error).splitlines()[0]} Nothing was read. Read it with a Spark session,"
                " `read(..., spark=spark)`."
            ) from None

    def batches(self, key: Sequence[str] = (), days: Days = None) -> Iterator[pa.RecordBatch]:
        """The same rows in order, by day and within it by `key` (without one, by all columns that
        have an order), a day at a time in memory.
        """
        rows = self.dataset(days)
        columns = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
        order = [
            (name, "ascending") for name in (key if set(key) <= set(columns) else ()) or columns
        ]
        for day in self._days(days):
            of_day = (
                pc.field(self._column).is_null()
                if day is None
                else pc.field(self._column) == pa.scalar(day)
            )
            try:
                of_rows = rows.to_table(filter=of_day)
            except (OSError, pa.ArrowException, DeltaError) as error:
                raise TableUnreadable(
                    self._gone(f"{str(error).strip().splitlines()[0][:300]}.")
                ) from None
            yield from of_rows.sort_by(order).to_batches()

    def frame(self, spark: SparkSession, days: Days = None) -> DataFrame:
        """The same rows in `spark`; the same errors, but Spark reads deletion vectors and renamed
        columns too.
        """
        self._refuse_gone_files(days)
        frame = (
            spark.read.format("delta")
            .option("versionAsOf", self._version.version)
            .load(self._folder)
        )
        return frame if days is None else frame.where(condition(self._column, days))

    def days(self) -> list[date]:
        """The days that the version has rows of, in order."""
        return [day for day in self._days(None) if day]

    def outside(self, days: Collection[date]) -> str:
        """Which days the version has rows of, as a sentence, if all of `days` are before or after
        these; else "".
        """
        there = self.days()
        if not there or any(there[0] <= day <= there[-1] for day in days):
            return ""
        return (
            f"{self._which} has rows of {there[0]} to {there[-1]}, and of none of the days that"
            " were named."
        )

    @property
    def _version(self) -> TableVersion:
        version = self.release.version(self.name)
        if version is None:
            raise UsageError(
                f"Release {self.release.number} has no table {self.name}. Nothing was read. Its"
                f" tables are {', '.join(self.release.tables)}. One that was built since is in a"
                " later release, or in none yet: `backfill releases` lists them, and `backfill"
                " status` says what keeps a channel behind."
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
            raise TableUnreadable(self._gone(str(error))) from None
        if table is None:
            raise TableUnreadable(self._gone(f"There is no table in {self._folder}."))
        return table

    @cached_property
    def _column(self) -> str:
        columns = self._log.metadata().partition_columns
        if len(columns) != 1:
            raise TableUnreadable(
                f"{self._which} is not partitioned by its day. Nothing was read. Leave out the"
                " days."
            )
        return str(columns[0])

    def _days(self, days: Days) -> list[date | None]:
        """The days that have files, those without a day last."""
        listed = pa.table(self._log.get_add_actions(flatten=True))
        there = set(listed[f"partition.{self._column}"].to_pylist()) if listed.num_rows else set()
        wanted = there if days is None else there & set(days)
        return sorted(wanted, key=lambda day: (day is None, day or date.min))

    def _refuse_gone_files(self, days: Days) -> None:
        """TableUnreadable if data files of these days are gone. Vacuum never removes those of the
        newest version.
        """
        newest = open_table(self._folder)
        if newest is None or newest.version() == self._log.version():
            return
        suspected = sorted(self._paths(self._log, days) - self._paths(newest, days))
        infos = files_in(self._folder).get_file_info([unquote(path) for path in suspected])
        gone = [info.path for info in infos if info.type == FileType.NotFound]
        if gone:
            raise TableUnreadable(
                self._gone(
                    f"{len(gone)} of its data files are not in {self._folder}, for example"
                    f" {gone[0]}: they were vacuumed."
                )
            )

    def _paths(self, table: DeltaTable, days: Days) -> set[str]:
        files = pa.table(table.get_add_actions(flatten=True))
        if days is not None:
            wanted = pa.array(sorted(days), pa.date32())
            files = files.filter(pc.is_in(files[f"partition.{self._column}"], value_set=wanted))
        return {
            path
            for path in files["path"].to_pylist()
            if not path.startswith("/") and "://" not in path
        }

    def _gone(self, why: str) -> str:
        return (
            f"{self._which} cannot be read any more. {why} Nothing was changed, and other releases"
            " are read as before: see `backfill releases`. Delta's vacuum must keep what releases"
            " have."
        )


def open_version(root: str, version: TableVersion) -> DeltaTable | None:
    """A version of a table in the lake at `root`, for reading; None if there is no table.

    Raises as `open_table` does, and TableUnreadable if another table lies there by now, whose
    versions are others.
    """
    folder = Paths(root).table(version.path)
    table = open_table(folder, version.version)
    if table and version.id and str(table.metadata().id) != version.id:
        raise TableUnreadable(
            f"Another table was made in {folder} since, and its version {version.version} has other"
            " rows."
        )
    return table
