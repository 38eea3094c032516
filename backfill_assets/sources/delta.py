"""A source that is a Delta table of another team: a day is the files with its rows.

Rewriting a day's rows into other files (OPTIMIZE) counts as a change: the rows are read again and
found equal. A DELETE or UPDATE with deletion vectors keeps the files and marks rows in them. The
marks of a day are part of its fingerprint, and marked rows do not count.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from datetime import date, timedelta

import duckdb
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, TimestampType

from backfill_assets.digest import digest
from backfill_assets.errors import (
    IncompleteDelivery,
    NotDelivered,
    ServiceUnavailable,
    SourceError,
    TableUnreadable,
)
from backfill_assets.lake.delta import CachedTable, LogRemedy, open_table
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.delta_days import DaysOfFiles, RowsInFile, columns_pattern
from backfill_assets.sources.protocol import (
    DAYS_UNCHANGED,
    Delivery,
    Share,
    Source,
    TimeZone,
    error_of_day,
    require_usable,
    uncompared,
    validate,
)

_DAY = "arrival_day"
_ONE_DAY = timedelta(days=1)
# Names of columns that Delta allows.
_COLUMN = re.compile(r"[^ ,;{}()\n\t=]+")
_ORDERED = re.compile(r"(?i)\s*(?:cast\s*\(\s*)?`?(\w+)`?(?:\s+as\s+date\s*\))?\s*")


@dataclass(frozen=True)
class DeltaSource(Source):
    """The rows of a Delta table, with `arrival_day DATE` before its own columns.

    name       the name of the source in builds
    day        the day of a row: a column, or an expression of SQL that both Spark and DuckDB know.
               It is a DATE, or a text as YYYY-MM-DD
    path       a URI or a folder. Default: the folder `name` of the landing area
    fewest     the smallest share (0 to 1) of the rows that a day was built from. A delivery with
               fewer rows is refused until someone accepts it
    time_zone  where days begin at midnight: timestamps in `day` are what clocks show there. By
               default the zone of the project

        DeltaSource("orders", day="ordered_on")
        DeltaSource("sales", day="CAST(sold_at AS DATE)", time_zone="Europe/Madrid")
        DeltaSource("clicks", day="make_date(year, month, day)", path="s3://lake/clicks")

    The table may be partitioned by any columns or none. Where its log does not tell the days of a
    file or their number of rows, the file is read once. A table without the columns of the day, or
    with a column `arrival_day` that is not its day, fails every day. While its store does not
    answer, days keep their rows. These days are special:

    - A day without rows is not delivered.
    - Rows without a day, or with a text that is no day, are not read; `status` lists these texts.
    - A TIMESTAMP is no day and fails every day: declare `CAST(sold_at AS DATE)`.
    - Of a table with renamed columns (column mapping), a day must be made from partition columns.
    - If the rows of a file cannot be counted, every day fails.
    - If Spark and DuckDB find different rows for an expression, the days are not read.

    Raises ValueError for an expression or a time zone that is not valid.
    """

    name: str
    day: str
    # The same table at another address is the same source: its rows decide.
    path: str = uncompared("")
    # This option changes no row, so it is not part of the code version.
    fewest: Share = uncompared(0.5)
    _: KW_ONLY
    time_zone: TimeZone = ""

    def __post_init__(self) -> None:
        validate(self)
        try:
            (_,) = duckdb.extract_statements(f"SELECT ({self._in_duckdb})")
        except (duckdb.Error, ValueError):
            raise ValueError(
                f"DeltaSource({self.name!r}): day={self.day!r} is neither a column nor an"
                " expression of SQL. Reserved words need backticks"
            ) from None

    @property
    def _is_column(self) -> bool:
        return bool(_COLUMN.fullmatch(self.day))

    @property
    def _in_spark(self) -> str:
        return f"`{self.day}`" if self._is_column else self.day

    @property
    def _in_duckdb(self) -> str:
        return self._in_spark.replace("`", '"')

    @property
    def _ordered_by(self) -> str:
        """The column that orders rows in the same way as their days. "" if there is none."""
        found = _ORDERED.fullmatch(self._in_spark)
        return found[1] if found else ""

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return the fingerprint and number of rows of each day's files, or the error."""
        try:
            files = self._files(area)[1]
        except SourceError as error:
            return {day: error_of_day(error, day) for day in days}
        return {day: self._delivery(area, day, files.get(str(day), [])) for day in days}

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
        sizes = {file.path: file.size for day in days for file in files.get(str(day), [])}
        return sum(sizes.values())

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """Read the rows of `days` at one version of the table."""
        version, files = self._usable(area, days)
        rows = spark.read.format("delta").option("versionAsOf", version).load(self._place(area))
        types = {column.name: column.dataType for column in rows.schema}
        times = [name for name, kind in types.items() if isinstance(kind, TimestampType)]
        local = rf"from_utc_timestamp(`\1`, '{self.time_zone or area.zone}')"
        of_row = F.expr(re.sub(columns_pattern(times, "`"), local, self._in_spark))
        # Compared as texts, as they are listed: Spark casts other texts to dates too, or fails.
        text = of_row.cast("string")
        counted = {str(day): sum(file.rows for file in of_day) for day, of_day in files.items()}
        if isinstance(types.get(self._ordered_by), DateType | TimestampType):
            # This lets Delta skip files. The clocks of any time zone are less than a day away from
            # UTC.
            column = F.col(f"`{self._ordered_by}`")
            rows = rows.where(column >= F.lit(min(days) - _ONE_DAY))
            rows = rows.where(column < F.lit(max(days) + 2 * _ONE_DAY))
        wanted = rows.where(text.isin([*counted]))
        found = [] if self._is_column else wanted.groupBy(text).count().collect()
        # A day may have no rows any more.
        if not self._is_column and Counter(counted) != Counter(dict(found)):
            raise SourceError(
                f"Spark and DuckDB find other rows of {min(days)} to {max(days)} by {self.day} in"
                f" the Delta table {self._place(area)}.",
                next_step="Declare `day` with functions that are the same in both.",
            )
        own = [F.col(f"`{name}`") for name in rows.columns if name != _DAY]
        return wanted.select(of_row.try_cast("date").alias(_DAY), *own)

    def unmatched(self, area: LandingArea) -> list[str]:
        """List the values of the day that are not days."""
        try:
            files = self._files(area)[1]
        except NotDelivered:
            return []
        return sorted(f"{self.name}/{self.day}={text}" for text in files if not _is_day(text))

    def _place(self, area: LandingArea) -> str:
        return (
            self.path
            if "://" in self.path or self.path.startswith("/")
            else area.place(self.path or self.name)
        )

    def _usable(
        self, area: LandingArea, days: Sequence[date]
    ) -> tuple[int, dict[date, Sequence[RowsInFile]]]:
        """Return the table's version and the files of each of `days`.

        Raises NotDelivered for the first day without files.
        """
        version, files = self._files(area)
        return version, require_usable(
            {day: files.get(str(day)) or self._missing(area, day) for day in days}
        )

    def _files(self, area: LandingArea) -> tuple[int, Mapping[str, Sequence[RowsInFile]]]:
        """Return the table's version and its files by day. Raises as `_opened` does."""
        table = self._opened(area)
        place = self._place(area)
        zone = self.time_zone or area.zone
        days = DaysOfFiles(table, place, self._in_duckdb, self._ordered_by, zone)
        saved_at = area.manifest(f"{self.name}.days", (place, self.day, zone))
        with _source_errors():
            return table.version(), days.files(saved_at)

    def _opened(self, area: LandingArea) -> CachedTable:
        """Open the table.

        Raises NotDelivered if there is no table, IncompleteDelivery if its store does not answer,
        and SourceError if the table cannot be used.
        """
        place = self._place(area)
        setting = f"`path` of {self.name}" if self.path else "BACKFILL_LANDING"
        with _source_errors():
            table = open_table(
                place,
                remedy=LogRemedy("Fix it there.", f"Correct {setting} or the store's credentials."),
            )
        if table is None:
            raise NotDelivered(f"there is no Delta table at {place}")
        names = [column.name for column in table.schema().fields]
        others = [name for name in names if name.lower() == _DAY and not name == self.day == _DAY]
        if others:
            raise SourceError(
                f"the Delta table {place} has a column {others[0]} that is not its day.",
                next_step="Rename it there.",
            )
        return table

    def _missing(self, area: LandingArea, day: date) -> NotDelivered:
        return NotDelivered(f"no source for {day} in {self._place(area)}")

    def _delivery(
        self, area: LandingArea, day: date, files: Sequence[RowsInFile]
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


def _is_day(text: str) -> bool:
    """Only texts as YYYY-MM-DD are days."""
    with suppress(ValueError):
        return str(date.fromisoformat(text)) == text
    return False
