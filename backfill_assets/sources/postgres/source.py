"""A source that is a table or view of a PostgreSQL database.

One query counts and hashes the rows of all requested days in the database; only these figures leave
the database. Spark reads the rows, in a few ranges of days. A day's fingerprint consists of its
number of rows and one of two sums:

- the sum of a 64-bit hash of each row's text, which detects every change. It reads all rows of the
  days: 2 to 3 s per million rows of 100 bytes (measured), for each `status` and twice per step
- with `changed_at`, the same sum over only that column: 0.8 seconds per million rows if an index
  has the day and that column. A change that does not change the column is not detected

The hash is PostgreSQL's own. Another major version may have another hash, which makes every day
outdated once.

The query that reads a day sees one state of it. The step compares the figures again before it
commits, and starts again if they changed. The transaction numbers of the rows (`xmin`) show even a
change that was reverted; a view has none.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from backfill_assets.digest import digest
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.spark.jars import needing
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.postgres.columns import (
    CATALOG,
    DAY,
    KINDS_WITH_XMIN,
    Columns,
    plain_type,
)
from backfill_assets.sources.postgres.server import Server
from backfill_assets.sources.protocol import (
    Delivery,
    Several,
    Share,
    Source,
    TimeZone,
    error_of_day,
    require_usable,
    uncompared,
    validate,
)

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession


# PostgreSQL's JDBC driver: from PostgreSQL 8.4 on.
DRIVER = "org.postgresql:postgresql:42.7.8"
# Rows per fetch. Without it, Spark's reader fetches all rows of a range at once.
_ROWS_PER_FETCH = "10000"


@dataclass(frozen=True)
class PostgresTable(Source):
    """The rows of a PostgreSQL table or view, with `arrival_day DATE` before its own columns.

    name          the name of the source in builds
    day           the column with the day of a row: a DATE, or a TIMESTAMP with or without time zone
    url           the database, without a password:
                  "postgresql://reader@db.example.com:5432/shop?sslmode=require"
    table         the table or view with its schema: "sales.orders". Default: `name`
    columns       the columns to read and to compare. Default: all; then a new or removed column
                  makes every day outdated
    time_zone     the zone in which days begin at midnight, and that of timestamps without one:
                  "Europe/Berlin". By default days are those of the project, and timestamps without
                  a zone are text
    changed_at    a column whose value changes with every change of its row
    password_env  the environment variable with the password. Default: PGPASSWORD or the pgpass
                  file, as for psql
    connections   the most open connections, at least 4: one compares, one may be closing, and the
                  others read rows
    fewest        the smallest share (0 to 1) of the rows that a day was built from. A delivery with
                  fewer rows is refused until someone accepts it

    `connections` limits one step and one other process that compares; these take turns on a
    machine. Steps that run at the same time have as many each. Tables in the pool "external" are
    read one after the other.

    Types: boolean, integers, floats, text, arrays of these, date, timestamp with time zone, bytea
    and numeric(p, s) become Spark's types. A timestamp without time zone becomes TIMESTAMP if
    `time_zone` is given. Everything else becomes text as PostgreSQL writes it: uuid, json, enum,
    interval, other arrays, and numeric without precision. A value that Spark does not have fails
    its day: an infinite date or timestamp, NaN in numeric(p, s), an array of arrays.

    A day without rows is not delivered. Rows whose day is null or infinite are not read. While the
    server does not answer, days keep their rows. A missing table or column fails every day.

    Raises ValueError for a `url` with a password, an unknown time zone, and fewer than 4
    connections.
    """

    packages = (DRIVER,)
    name: str
    day: str
    # The same table at another address is the same source: its rows decide.
    url: str = field(compare=False)
    table: str = ""
    columns: Several[str] = ()
    time_zone: TimeZone = ""
    # These options change no row, so they are not part of the code version.
    changed_at: str = uncompared("")
    password_env: str = uncompared("")
    connections: Annotated[int, Ge(4)] = uncompared(4)
    fewest: Share = uncompared(0.5)

    def __post_init__(self) -> None:
        validate(self)
        self._server.refuse_unusable()

    @property
    def _server(self) -> Server:
        return Server(self.name, self.url, self.password_env)

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return the fingerprint and number of each day's rows, or the error."""
        try:
            with self._looking(area) as (connection, columns):
                rows = connection.execute(columns.compared(days))
                figures = {day: figures_of_day for day, *figures_of_day in rows}
        except SourceError as error:
            return {day: error_of_day(error, day) for day in days}
        return {day: self._delivery(day, columns, figures.get(day)) for day in days}

    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe the day's rows in one sentence."""
        delivery = require_usable(self.delivered(area, [day]))[day]
        return [
            f"{self.table or self.name} at {self._server}, {delivery.files[self.name]} rows,"
            f" {delivery.fingerprint[:12]}"
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """Estimate the bytes of the rows of `days` from the database's statistics."""
        with self._looking(area) as (connection, columns):
            return columns.width * sum(
                rows for _, rows in connection.execute(columns.counted(days))
            )

    def read(self, area: LandingArea, spark: "SparkSession", days: Sequence[date]) -> "DataFrame":
        """Read the rows of `days`, one query per range of days and connection."""
        with self._looking(area) as (connection, columns):
            rows_of = dict(connection.execute(columns.counted(days)).fetchall())
            require_usable({day: rows_of.get(day) or self._missing(day) for day in days})
            url, properties = self._server.for_spark(connection)
        properties |= {"fetchsize": _ROWS_PER_FETCH}
        # A step reads neighbouring days with two calls, whose queries may run at the same time.
        readers = (self.connections - 2) // 2
        ordered = sorted(days)
        parts = [
            ordered[n * len(ordered) // readers : (n + 1) * len(ordered) // readers]
            for n in range(readers)
        ]
        ranges = [columns.within(part) for part in parts if part]
        with needing(self.packages):
            rows = spark.read.jdbc(
                url, f"({columns.selected()}) AS r", predicates=ranges, properties=properties
            )
            # Needs the driver, which the engine may lack.
            names = [name for name in rows.columns if name not in columns.hidden]
        return rows.select(*[f"`{name}`" for name in names])

    @contextmanager
    def _looking(self, area: LandingArea) -> Iterator[tuple["Connection[Any]", Columns]]:
        """Connect to one state of the database and read the table's columns.

        Raises SourceError if the table cannot be read.
        """
        with self._server.connected(area) as connection:
            yield connection, self._columns(connection, area.zone)

    def _columns(self, connection: "Connection[Any]", zone: str) -> Columns:
        """Read the table's current columns. Raises SourceError if they do not fit this source."""
        table = self.table or self.name
        listed = connection.execute(CATALOG, [table]).fetchall()
        info = connection.info
        where = f"the database {info.dbname} at {info.host}:{info.port}"
        if not listed:
            raise SourceError(
                f"{where} has no table or view {table} that {info.user} may see.",
                next_step=f"Correct `table` of {self.name}.",
            )
        types = {name: kind for _, _, name, kind, _ in listed}
        wanted = self.columns or tuple(types)
        missing = [
            name for name in (self.day, *wanted, self.changed_at) if name and name not in types
        ]
        if missing:
            raise SourceError(
                f"{table} in {where} has no column {', '.join(missing)}. It has {', '.join(types)}"
            )
        day_type = types[self.day]
        if not day_type.startswith(("timestamp", "date")):
            raise SourceError(
                f"{self.day} of {table} has the type {day_type}. A day must be a date or a"
                " timestamp"
            )
        if DAY in {name.lower() for name in wanted} and (self.day, day_type) != (DAY, "date"):
            raise SourceError(
                f"{table} has a column {DAY} that is not its day.",
                next_step="Leave it out: name the other columns in `columns`.",
            )
        return Columns(
            relation=listed[0][0],
            types={name: types[name] for name in wanted},
            day=self.day,
            day_type=plain_type(day_type),
            time_zone=self.time_zone or zone,
            local_times=bool(self.time_zone),
            hashed=[self.changed_at] if self.changed_at else [self.day, *wanted],
            has_xmin=listed[0][1] in KINDS_WITH_XMIN and not self.changed_at,
            width=sum(width for *_, name, _, width in listed if name in wanted),
        )

    def _missing(self, day: date) -> NotDelivered:
        return NotDelivered(
            f"no source for {day} in {self.table or self.name} at {self._server}: it has no row of"
            " the day"
        )

    def _delivery(
        self, day: date, columns: Columns, figures: Sequence[Any] | None
    ) -> Delivery | SourceError:
        if not figures:
            return self._missing(day)
        rows, hashed, written = figures
        fingerprint = digest(f"{rows} {hashed} {columns.signature}")
        return Delivery(
            fingerprint,
            {self.name: rows},
            str(written),
            {self.name: fingerprint[:12]},
            fewest=self.fewest,
        )
