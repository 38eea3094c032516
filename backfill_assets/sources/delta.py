"""A source that is a Delta table of somebody else: a day is made from the files that the table's log lists for it.

Rewriting a day's rows into other files (OPTIMIZE) counts as a change of the day: its rows are read again, and found the same.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.errors import NotDelivered, ServiceUnavailable, SourceError, TableUnreadable
from backfill_assets.lake.delta_table import open_table
from backfill_assets.sources.protocol import Delivery, LandingArea


class Listed(NamedTuple):
    """A data file of a day: its path, its size in bytes, its rows."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class DeltaSource:
    """The rows of a Delta table, with `arrival_day DATE` before its own columns.

    name  under which builds record what they were made from
    day   the table's partition column that says which day a row is of: a DATE, or a text as YYYY-MM-DD
    path  where the table is: a URI or a folder, by itself the folder `name` of the landing area

    A day without a file is not delivered. A table that is not partitioned by `day` alone fails every day, and says so.
    """

    name: str
    day: str
    # The same table elsewhere is the same source: what it holds decides.
    path: str = field(default="", compare=False)

    def delivered(self, area: LandingArea, days: Sequence[date]) -> dict[date, Delivery | SourceError]:
        """The fingerprint of each day's files and their rows by name, or the SourceError that says why there are none."""
        try:
            files = self._files(self._opened(area))
        except SourceError as error:
            return {day: type(error)(f"no source for {day}: {error}") for day in days}
        return {day: self._delivery(area, day, files.get(day, [])) for day in days}

    def described(self, area: LandingArea, day: date) -> list[str]:
        """The day's files, each as a sentence, and the table's version."""
        delivery = self.delivered(area, [day])[day]
        if isinstance(delivery, SourceError):
            raise delivery
        table = self._opened(area)
        files = self._files(table).get(day, [])
        return [f"{self.name} at version {table.version()}", *(f"{f.path}, {f.size} bytes, {f.rows} rows" for f in files)]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """The bytes of the files of `days`."""
        files = self._files(self._opened(area))
        return sum(file.size for day in days for file in files.get(day, []))

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The rows of `days`, at one version of the table."""
        version = self._opened(area).version()
        rows = spark.read.format("delta").option("versionAsOf", version).load(self._place(area))
        arrival_day = F.col(f"`{self.day}`").cast("date")
        return rows.where(arrival_day.isin(list(days))).select(arrival_day.alias("arrival_day"), "*")

    def _place(self, area: LandingArea) -> str:
        return self.path if "://" in self.path or self.path.startswith("/") else area.place(self.path or self.name)

    def _opened(self, area: LandingArea) -> DeltaTable:
        place = self._place(area)
        try:
            table = open_table(place)
        except (TableUnreadable, ServiceUnavailable) as error:
            raise SourceError(str(error)) from None
        if table is None:
            raise NotDelivered(f"there is no Delta table at {place}")
        by = table.metadata().partition_columns
        if by != [self.day]:
            raise SourceError(f"the Delta table {place} is partitioned by {', '.join(by) or 'nothing'}, not by {self.day}")
        return table

    def _files(self, table: DeltaTable) -> Mapping[date, list[Listed]]:
        listed = pa.table(table.get_add_actions(flatten=True))
        names = ("path", "size_bytes", "num_records", f"partition.{self.day}")
        files: dict[date, list[Listed]] = {}
        for path, size, rows, value in zip(*(listed[name].to_pylist() for name in names), strict=True):
            if day := _day(value):
                files.setdefault(day, []).append(Listed(path, size, rows or 0))
        return {day: sorted(of_day) for day, of_day in files.items()}

    def _delivery(self, area: LandingArea, day: date, files: Sequence[Listed]) -> Delivery | SourceError:
        if not files:
            return NotDelivered(f"no source for {day} in {self._place(area)}")
        fingerprint = hashlib.sha256("\n".join(f"{file.path} {file.size}" for file in files).encode()).hexdigest()[:32]
        return Delivery(fingerprint, {f"{self.name}/{file.path}": file.rows for file in files})


def _day(value: Any) -> date | None:
    try:
        return value if isinstance(value, date) else date.fromisoformat(str(value))
    except ValueError:
        return None
