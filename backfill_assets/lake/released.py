"""The rows of a table in a release or in live, as a pyarrow dataset or as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileType, PyFileSystem

from backfill_assets.calendar import ranges
from backfill_assets.errors import BrokenFile, TableUnreadable, UsageError, counted, first_line
from backfill_assets.lake.delta import one_line, open_table
from backfill_assets.lake.history import latest
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.object_store import delta_options
from backfill_assets.lake.releases import Release, TableVersion
from backfill_assets.lake.slices import condition, is_in_folder
from backfill_assets.lake.storage import SHADOWS, Paths, files_in, infos_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The days to read; None for every day.
DaysRead = Collection[date] | None


@dataclass(frozen=True)
class ReleasedTable:
    """The table `name` of a release in the lake at `root`, at its version in the release.

    In a preview, some days are from the shadow of a plan, and all others from the release.
    """

    root: str
    release: Release
    name: str

    def dataset(self, days: DaysRead = None) -> ds.Dataset:
        """The rows of these days.

        Raises UsageError for a table that the release does not have, and TableUnreadable for a
        version that is gone or that only Spark can read, and for a preview with other types.
        """
        released, previewed = self._parts
        if previewed is None:
            return released.dataset(days)
        own = previewed.dataset(days)
        if not released.days():
            return own
        rows = released.dataset(days)
        try:
            # As after the publication: columns of other days stay.
            schema = pa.unify_schemas([rows.schema, own.schema])
        except pa.ArrowTypeError as error:
            raise TableUnreadable(
                f"{previewed.which} has columns of other types than release {self.release.number}:"
                f" {one_line(error)}",
                unchanged="Nothing was read.",
                next_step="A type changes only for all days of a table: plan all of them.",
            ) from None
        return ds.UnionDataset(schema, [part.replace_schema(schema) for part in (rows, own)])

    def batches(self, key: Sequence[str] = (), days: DaysRead = None) -> Iterator[pa.RecordBatch]:
        """The rows of `dataset`, by day and within a day by `key`. Reads one day at a time.

        Without a key, all columns that have an order decide.
        """
        rows = self.dataset(days)
        columns = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
        by = key if key and set(key) <= set(columns) else columns
        order = [(name, "ascending") for name in by]
        column = pc.field(self._parts[0].column)
        for day in self._filled(days):
            is_day = column.is_null() if day is None else column == pa.scalar(day)
            try:
                rows_of_day = rows.to_table(filter=is_day)
            except (OSError, pa.ArrowException, DeltaError) as error:
                raise self._parts[0].gone(f"{first_line(error, 300)}.") from None
            yield from rows_of_day.sort_by(order).to_batches()

    def frame(self, spark: SparkSession, days: DaysRead = None) -> DataFrame:
        """The rows of `dataset` as a DataFrame of `spark`. Raises the same errors."""
        released, previewed = self._parts
        rows = released.frame(spark, days)
        if previewed is None:
            return rows
        own = previewed.frame(spark, days)
        return rows.unionByName(own, allowMissingColumns=True) if released.days() else own

    def days(self) -> list[date]:
        """The days that have rows, in order."""
        return [day for day in self._filled(None) if day]

    def outside(self, days: Collection[date]) -> str:
        """A sentence if all of `days` are before the first or after the last day; else ""."""
        filled = self.days()
        if not filled or any(filled[0] <= day <= filled[-1] for day in days):
            return ""
        return (
            f"{self._parts[0].which} has rows of {filled[0]} to {filled[-1]}, and none of the days"
            " that were named."
        )

    def refuse_missing(
        self,
        days: Collection[date],
        next_step: str = "Leave these days out, or name a range, as in A..B.",
    ) -> None:
        """Raise UsageError if the release lacks one of `days`. A day built empty counts."""
        missing = set(days).difference(self.days())
        if own := self.release.previewed_days(self.name):
            missing -= own.days
        if not missing:
            return
        version = self._version
        until = {version.path: version.version}
        accepted = latest(Ledger(self.root), {version.path: missing}, until=until).accepted
        empty = {day for (_, day), build in accepted.items() if not build.rows}
        if lacking := sorted(missing - empty):
            raise UsageError(
                f"{self._parts[0].which} does not have {counted(len(lacking), 'day')}:"
                f" {ranges(lacking)}.",
                unchanged="Nothing was read.",
                next_step=next_step,
            )

    def _filled(self, days: DaysRead) -> list[date | None]:
        """The days that have files, in order. A last None stands for rows without a day."""
        filled = {day for part in self._parts if part for day in part.days(days)}
        return sorted(filled, key=lambda day: (day is None, day or date.min))

    @cached_property
    def _parts(self) -> tuple[_Part, _Part | None]:
        """The part of the release; in a preview also the part of the shadow."""
        version = self._version
        number = self.release.number
        own = self.release.previewed_days(self.name)
        which = f"Version {version.version} of {version.path}"
        if number:
            which = f"{which}, which release {number} has as {self.name},"
        if own is None:
            return _Part(self.root, version, which), None
        of_plan = f"The preview of plan {self.release.preview} of {self.name}"
        return (
            _Part(self.root, version, which, without=own.days),
            _Part(self.root, own.version, of_plan, only=own.days),
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
                    " them, and `backfill status` says why live is not released."
                ),
            )
        return version


@dataclass(frozen=True)
class _Part:
    """Days of one Delta table at a version: the days in `only` (None: all), except `without`.

    `which` names the part in errors.
    """

    root: str
    version: TableVersion
    which: str
    only: frozenset[date] | None = None
    without: frozenset[date] = frozenset()

    def dataset(self, days: DaysRead) -> ds.Dataset:
        days = self._selected(days)
        self._refuse_gone_files(days)
        try:
            if days is not None and not days:
                schema = pa.schema(self._log.schema().to_arrow())
                return ds.FileSystemDataset(
                    [], schema, ds.ParquetFileFormat(), files_in(self.folder)
                )
            wanted = None if days is None else [(self.column, "in", sorted(map(str, days)))]
            files = None
            if self.version.path.startswith(SHADOWS):
                files = PyFileSystem(_FilesOfPreview(self))
            elif Paths(self.root).is_local:
                # With a file system in Python, pyarrow's `Scanner.to_reader`, which DuckDB calls,
                # can wait for ever for a missing file: it keeps the lock that the file's error
                # needs.
                files = files_in(self.folder)
            rows = self._log.to_pyarrow_dataset(filesystem=files, file_pruning_predicate=wanted)
        except DeltaProtocolError as error:
            raise TableUnreadable(
                f"{self.which} is stored in a way that pyarrow does not read: {first_line(error)}",
                unchanged="Nothing was read.",
                next_step="Read it with a Spark session, `read(..., spark=spark)`.",
            ) from None
        if days is not None or not self.without:
            return rows
        files = [
            file
            for file in rows.get_fragments()
            if ds.get_partition_keys(file.partition_expression).get(self.column) not in self.without
        ]
        return ds.FileSystemDataset(files, rows.schema, rows.format, rows.filesystem)

    def frame(self, spark: SparkSession, days: DaysRead) -> DataFrame:
        days = self._selected(days)
        self._refuse_gone_files(days)
        reader = spark.read.format("delta").option("versionAsOf", self.version.version)
        frame = reader.load(self.folder)
        if days is not None:
            return frame.where(condition(self.column, days))
        if self.without:
            others = condition(self.column, self.without)
            return frame.where(f"{self.column} IS NULL OR NOT ({others})")
        return frame

    def days(self, days: DaysRead = None) -> set[date | None]:
        """The days that have files. None stands for rows without a day."""
        listed = pa.table(self._log.get_add_actions(flatten=True))
        filled = set(listed[f"partition.{self.column}"].to_pylist()) if listed.num_rows else set()
        wanted = self._selected(days)
        return (filled if wanted is None else filled & set(wanted)) - self.without

    @cached_property
    def column(self) -> str:
        columns = self._log.metadata().partition_columns
        if len(columns) != 1:
            raise TableUnreadable(
                f"{self.which} is not partitioned by its day.",
                unchanged="Nothing was read.",
                next_step="Leave out the days.",
            )
        return str(columns[0])

    def gone(self, why: str, next_step: str = "") -> TableUnreadable:
        return TableUnreadable(
            f"{self.which} cannot be read any more. {why}",
            unchanged="Nothing was changed, and other releases can still be read.",
            next_step=next_step
            or (
                "See `backfill releases`. A preview ends with its plan, and Delta's vacuum must"
                " keep the files of releases."
            ),
        )

    def _selected(self, days: DaysRead) -> DaysRead:
        """The `days` that this part has; None for all days, if it has no list."""
        if days is None:
            return self.only
        own = days if self.only is None else self.only.intersection(days)
        return {day for day in own if day not in self.without}

    @property
    def folder(self) -> str:
        return Paths(self.root).table(self.version.path)

    @cached_property
    def _log(self) -> DeltaTable:
        try:
            table = open_version(self.root, self.version)
        except TableUnreadable as error:
            raise self.gone(str(error)) from None
        if table is None:
            raise self.gone(f"There is no table in {self.folder}.")
        return table

    def _refuse_gone_files(self, days: DaysRead) -> None:
        """Raise TableUnreadable if data files of these days are gone, or on a disk not whole."""
        newest = None
        # On a disk, the newest commit may be broken.
        with suppress(BrokenFile):
            newest = open_table(self.folder)
            if newest is None:
                raise self.gone(f"There is no table in {self.folder}.")
        sizes = self._sizes(self._log, days)
        # A vacuum never removes files of the newest version.
        suspected = sizes.keys() - (self._sizes(newest, days) if newest else {}).keys()
        paths = sorted(suspected if "://" in self.folder else sizes)
        for path, info in zip(paths, infos_of(self.folder, map(unquote, paths)), strict=True):
            if info.type == FileType.NotFound and path in suspected:
                raise self.gone(
                    f"Data files are not in {self.folder}, for example {info.path}: they were"
                    " vacuumed."
                )
            if info.type != FileType.NotFound and info.size != sizes[path]:
                raise self.gone(
                    f"Its file {info.path} has {info.size:,} bytes, and {sizes[path]:,} were"
                    " written.",
                    "Restore that file from a backup. Or write its day again, `backfill run"
                    " --partitions DAY --force`, and read the next release.",
                )

    def _sizes(self, table: DeltaTable, days: DaysRead) -> dict[str, int]:
        """The data files of these days with their bytes."""
        files = pa.table(table.get_add_actions(flatten=True))
        if days is not None:
            wanted = pa.array(sorted(days), pa.date32())
            files = files.filter(pc.is_in(files[f"partition.{self.column}"], value_set=wanted))
        sizes = dict(zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True))
        return {path: size for path, size in sizes.items() if is_in_folder(path)}


class _FilesOfPreview(DeltaStorageHandler):
    """Files that end with a plan, even while a reader has them open. The error says so."""

    def __init__(self, part: _Part) -> None:
        super().__init__(part.folder, delta_options(part.folder))
        self.part = part

    def open_input_file(self, path: str) -> pa.PythonFile:
        try:
            return super().open_input_file(path)
        except FileNotFoundError:
            raise self.part.gone("Its plan was published or discarded.") from None


def live_table(root: str, name: str) -> ReleasedTable:
    """The current table `name` in live: the committed rows, released or not."""
    table = open_table(Paths(root).table(name))
    if table is None:
        raise UsageError(
            f"There is no table {name} in {root} yet.",
            unchanged="Nothing was read.",
            next_step="Build days of it first, or correct its name.",
        )
    version = TableVersion(name, table.version(), str(table.metadata().id))
    live = Release(0, datetime.now(UTC), "", "", "live", {name: version})
    return ReleasedTable(root, live, name)


def open_version(root: str, version: TableVersion | None) -> DeltaTable | None:
    """Open a version of a table in the lake at `root`, for reading. None if there is no table.

    None also without a `version`. Raises as `open_table` does, and TableUnreadable if the table was
    recreated.
    """
    if version is None:
        return None
    folder = Paths(root).table(version.path)
    table = open_table(folder, version.version)
    if table and version.id and str(table.metadata().id) != version.id:
        raise TableUnreadable(
            f"Another table was made in {folder} since, and its version {version.version} has other"
            " rows."
        )
    return table
