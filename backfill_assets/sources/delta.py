"""A source that is a Delta table of another team: a day is the files in its log.

Rewriting a day's rows into other files (OPTIMIZE) counts as a change: they are read again and found
equal. A DELETE or UPDATE with deletion vectors keeps the files and marks rows in them. The marks
are part of the fingerprint, and marked rows do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.schema import PrimitiveType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.digest import digest
from backfill_assets.errors import (
    IncompleteDelivery,
    NotDelivered,
    ServiceUnavailable,
    SourceError,
    TableUnreadable,
)
from backfill_assets.lake.delta import NO_DELETED_ROWS, Remedy, deleted_rows_by_file, open_table
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import (
    DAYS_UNCHANGED,
    Delivery,
    Source,
    error_of_day,
    require_usable,
)

_DAY = "arrival_day"
# Types that a partition column of the day may have.
_DAY_TYPES = [PrimitiveType("date"), PrimitiveType("string")]


@dataclass(frozen=True)
class DeltaSource(Source):
    """The rows of a Delta table, with `arrival_day DATE` before its own columns.

    name    the name of the source in builds
    day     the table's only partition column: a DATE, or a text as YYYY-MM-DD. Rows with other
            texts are not read; `status` lists these texts
    path    a URI or a folder. Default: the folder `name` of the landing area
    fewest  the smallest share (0 to 1) of the rows that a day was built from. A delivery with fewer
            rows is refused until someone accepts it

    A day without files is not delivered. A table with other partition columns, or with a column
    `arrival_day` that is not its day, fails every day. While its store does not answer, days keep
    their rows.
    """

    name: str
    day: str
    # The same table at another address is the same source: its rows decide.
    path: str = field(default="", compare=False)
    # This changes no row, so it is not part of the code version.
    fewest: float = field(default=0.5, compare=False)

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return the fingerprint and number of rows of each day's files, or the error."""
        try:
            files = self._files(area)[1]
        except SourceError as error:
            return {day: error_of_day(error, day) for day in days}
        return {day: self._delivery(area, day, files.get(day, [])) for day in days}

    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe the table's version and each file of the day."""
        version, files = self._usable(area, [day])
        return [
            f"{self.name} at version {version}",
            *(f"{f.path}, {f.size} bytes, {f.rows} rows" for f in files[day]),
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """Sum the bytes of the files of `days`."""
        files = self._files(area)[1]
        return sum(file.size for day in days for file in files.get(day, []))

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """Read the rows of `days` at one version of the table."""
        version, _ = self._usable(area, days)
        rows = spark.read.format("delta").option("versionAsOf", version).load(self._place(area))
        of_row = F.col(f"`{self.day}`")
        own = [F.col(f"`{name}`") for name in rows.columns if name != _DAY]
        # Compared as texts, as they are listed: Spark casts other texts to dates too, or fails.
        wanted = rows.where(of_row.cast("string").isin([str(day) for day in days]))
        return wanted.select(of_row.try_cast("date").alias(_DAY), *own)

    def unmatched(self, area: LandingArea) -> list[str]:
        """List the table's partitions that match no day."""
        try:
            table = self._opened(area)
        except NotDelivered:
            return []
        return [f"{self.name}/{self.day}={value}" for value in _values_without_day(table, self.day)]

    def _place(self, area: LandingArea) -> str:
        return (
            self.path
            if "://" in self.path or self.path.startswith("/")
            else area.place(self.path or self.name)
        )

    def _usable(
        self, area: LandingArea, days: Sequence[date]
    ) -> tuple[int, dict[date, Sequence[_DataFile]]]:
        """Return the table's version and the files of each of `days`.

        Raises NotDelivered for the first day without files.
        """
        version, files = self._files(area)
        return version, require_usable(
            {day: files.get(day) or self._missing(area, day) for day in days}
        )

    def _files(self, area: LandingArea) -> tuple[int, Mapping[date, Sequence[_DataFile]]]:
        """Return the table's version and its files by day. Raises as `_opened` does."""
        table = self._opened(area)
        with _source_errors():
            return table.version(), _files_of_days(table, self.day)

    def _opened(self, area: LandingArea) -> DeltaTable:
        """Open the table.

        Raises NotDelivered if there is none, IncompleteDelivery if its store does not answer,
        SourceError if it cannot be used.
        """
        place = self._place(area)
        setting = f"`path` of {self.name}" if self.path else "BACKFILL_LANDING"
        with _source_errors():
            table = open_table(
                place,
                remedy=Remedy("Fix it there.", f"Correct {setting} or the store's credentials."),
            )
        if table is None:
            raise NotDelivered(f"there is no Delta table at {place}")
        self._refuse_unusable(place, table)
        return table

    def _refuse_unusable(self, place: str, table: DeltaTable) -> None:
        columns = table.metadata().partition_columns
        if columns != [self.day]:
            names = ", ".join(columns) or "nothing"
            raise SourceError(
                f"the Delta table {place} is partitioned by {names}, not by {self.day}"
            )
        types = {column.name: column.type for column in table.schema().fields}
        if types[self.day] not in _DAY_TYPES:
            kind = types[self.day].type
            raise SourceError(
                f"{self.day} of the Delta table {place} has the type {kind}. A day must be a DATE"
                " or a text"
            )
        others = [name for name in types if name.lower() == _DAY and not name == self.day == _DAY]
        if others:
            raise SourceError(
                f"the Delta table {place} has a column {others[0]} that is not its day.",
                next_step="Rename it there.",
            )

    def _missing(self, area: LandingArea, day: date) -> NotDelivered:
        return NotDelivered(f"no source for {day} in {self._place(area)}")

    def _delivery(
        self, area: LandingArea, day: date, files: Sequence[_DataFile]
    ) -> Delivery | SourceError:
        if not files:
            return self._missing(area, day)
        fingerprint = digest(*map(str, files))
        # One name for all files, because OPTIMIZE renames files.
        rows = sum(file.rows for file in files)
        return Delivery(
            fingerprint, {self.name: rows}, hashes={self.name: fingerprint[:12]}, fewest=self.fewest
        )


@contextmanager
def _source_errors() -> Iterator[None]:
    """Turn errors about the table into errors of a source."""
    try:
        yield
    except ServiceUnavailable as error:
        raise IncompleteDelivery(
            error.what, unchanged=DAYS_UNCHANGED, next_step=error.next_step
        ) from None
    except TableUnreadable as error:
        raise SourceError(
            error.what, unchanged=error.unchanged, next_step=error.next_step
        ) from None


class _DataFile(NamedTuple):
    """A data file of a day: its path, bytes, remaining rows, and a hash of its deleted rows."""

    path: str
    size: int
    rows: int
    deleted: str

    def __str__(self) -> str:
        return f"{self.path} {self.size}{self.deleted and f' {self.deleted}'}"


def _files_of_days(table: DeltaTable, by: str) -> Mapping[date, Sequence[_DataFile]]:
    """Return the files of each day."""
    added = pa.table(table.get_add_actions(flatten=True))
    deleted = deleted_rows_by_file(table)
    names = ("path", "size_bytes", "num_records", f"partition.{by}")
    files: dict[date, list[_DataFile]] = {}
    for path, size, rows, value in zip(*(added[name].to_pylist() for name in names), strict=True):
        if day := _day(value):
            deletion = deleted.get(unquote(path), NO_DELETED_ROWS)
            files.setdefault(day, []).append(
                _DataFile(path, size, (rows or 0) - deletion.rows, deletion.hash)
            )
    return {day: sorted(of_day) for day, of_day in files.items()}


def _values_without_day(table: DeltaTable, by: str) -> list[str]:
    """Return the partition values that match no day."""
    values = pa.table(table.get_add_actions(flatten=True))[f"partition.{by}"].unique().to_pylist()
    return sorted(str(value) for value in values if not _day(value))


def _day(value: Any) -> date | None:
    """Return the day of a partition. Only texts as YYYY-MM-DD are days."""
    with suppress(ValueError):
        day = date.fromisoformat(str(value))
        return day if str(day) == str(value) else None
    return None
