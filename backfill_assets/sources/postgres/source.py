"""A source that is a table or a view of a PostgreSQL database: a day is made from the rows that it
holds for it.

A look is one query for all days asked for, grouped by day: their rows are counted and hashed where
they lie, and only those figures leave the server. Rows are read by Spark, in a few ranges of days.
A day's fingerprint is made of its number of rows and

- the sum of a 64-bit hash of each row's text, which sees every change, whoever made it. It reads every row of the days: 2 to 3
  seconds per million rows of 100 bytes (measured), at each look of `status`, and twice in a step that builds them;
- or, with `changed_at`, the same of that column alone: 0.8 seconds per million rows where an index has the day and it. A change
  that leaves that column as it was is not seen.

The hash is PostgreSQL's own: another major version may have another, and makes every day outdated
once.

The query that reads a day sees it in one state. Whether that is the state which was looked at, the
step finds by looking again before it commits; where it is not, it starts anew. Even a change that
was taken back meanwhile shows, in the numbers of the transactions that wrote the rows (`xmin`); not
so in a view, which has none.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from annotated_types import Ge, Le

from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.spark.jars import needing
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.postgres.columns import Columns
from backfill_assets.sources.postgres.server import Server
from backfill_assets.sources.protocol import (
    Delivery,
    Source,
    error_of_day,
    refuse_mistyped,
    require_usable,
)

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame, SparkSession


# PostgreSQL's JDBC driver: from PostgreSQL 8.4 on.
DRIVER = "org.postgresql:postgresql:42.7.8"
# Rows that Spark's reader takes from the server at a time; without it, all of a range at once.
_ROWS_PER_FETCH = "10000"


@dataclass(frozen=True)
class PostgresTable(Source):
    """The rows of a PostgreSQL table or view, with `arrival_day DATE` before its own columns.

    name          under which builds record what they were made from
    day           the column that says which day a row is of: a DATE, or a TIMESTAMP with or without
                  time zone
    url           where the database is, without a password:
                  "postgresql://reader@db.example.com:5432/shop?sslmode=require"
    table         the table or view, with its schema: "sales.orders"; by itself `name`
    columns       the columns that are read and looked at; by itself all, and one that comes or goes
                  makes every day outdated
    time_zone     where a day begins at midnight, and of which timestamps are that have none:
                  "Europe/Berlin"
    changed_at    a column that gets a new value with every change of its row
    password_env  the environment variable with the password; by itself PGPASSWORD, or the pgpass
                  file, as for psql
    connections   the most that are open at once, 3 or more: one looks, one may just be closing, and
                  by the others rows are read
    fewest        the least share of the rows that a day was built from; fewer are refused, until
                  somebody accepts them

    `connections` bounds one step that reads, and one look beside it: all looks of a machine take
    turns. Steps that read at once, of several runs or tables, have as many each; those of tables in
    the pool "external" read one after the other.

    Types: boolean, integers, floats and text, arrays of these, date, timestamp with time zone,
    bytea and numeric(p, s) come as Spark's own; a timestamp without time zone as TIMESTAMP where
    `time_zone` is declared. All else comes as PostgreSQL writes it: uuid, json, enum, interval,
    other arrays, and numeric without precision, of which Spark would round what does not fit. A
    value that Spark has none for fails its day: an infinite date or timestamp, a numeric(p, s) that
    is NaN, an array of arrays.

    A day without a row is not delivered. Rows whose day is null or infinite are of none, and are
    not read. While no connection can be had, days stay as they were built. A table or a column that
    is not there fails every day. Raises ValueError for a `url` with a password, a time zone of
    nowhere, and fewer than 3 connections.
    """

    name: str
    day: str
    # The same table elsewhere is the same source: what it holds decides.
    url: str = field(compare=False)
    table: str = ""
    columns: Sequence[str] = ()
    time_zone: str = ""
    # How a delivery is looked at, waited for and judged decides on no row.
    changed_at: str = field(default="", compare=False)
    password_env: str = field(default="", compare=False)
    connections: Annotated[int, Ge(3)] = field(default=4, compare=False)
    fewest: Annotated[float, Ge(0), Le(1)] = field(default=0.5, compare=False)

    def __post_init__(self) -> None:
        refuse_mistyped(self)
        object.__setattr__(self, "columns", tuple(self.columns))
        self._server.refuse_unusable()
        try:
            ZoneInfo(self.time_zone or "UTC")
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(
                f"PostgresTable({self.name!r}): time_zone={self.time_zone!r} is not a time zone"
            ) from None

    @property
    def packages(self) -> tuple[str, ...]:
        """What Spark reads it by."""
        return (DRIVER,)

    @property
    def _server(self) -> Server:
        return Server(self.name, self.url, self.password_env)

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """The fingerprint and the number of each day's rows, or the SourceError that says why there
        are none.
        """
        try:
            with self._looking(area) as (connection, columns):
                held = {
                    day: figures for day, *figures in connection.execute(columns.looked_at(days))
                }
        except SourceError as error:
            return {day: error_of_day(error, day) for day in days}
        return {day: self._delivery(day, columns, held.get(day)) for day in days}

    def described(self, area: LandingArea, day: date) -> list[str]:
        """The day's rows and their columns, as a sentence."""
        delivery = require_usable(self.delivered(area, [day]))[day]
        return [
            f"{self.table or self.name} at {self._server}, {delivery.files[self.name]} rows,"
            f" {delivery.fingerprint[:12]}"
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """The bytes of the rows of `days`, as far as the database's statistics know their width."""
        with self._looking(area) as (connection, columns):
            return columns.width * sum(
                rows for _, rows in connection.execute(columns.counted(days))
            )

    def read(self, area: LandingArea, spark: "SparkSession", days: Sequence[date]) -> "DataFrame":
        """The rows of `days`: not more ranges of them than there are connections for reading, each
        by one query.
        """
        with self._looking(area) as (connection, columns):
            rows_of = dict(connection.execute(columns.counted(days)).fetchall())
            require_usable({day: rows_of.get(day) or self._missing(day) for day in days})
            url, properties = self._server.for_spark(connection)
        properties |= {"fetchsize": _ROWS_PER_FETCH}
        most = self.connections - 2
        asked = sorted(days)
        parts = [asked[n * len(asked) // most : (n + 1) * len(asked) // most] for n in range(most)]
        ranges = [columns.within(part) for part in parts if part]
        with needing(self.packages):
            rows = spark.read.jdbc(
                url, f"({columns.selected()}) AS r", predicates=ranges, properties=properties
            )
            read = [
                name for name in rows.columns if name not in columns.hidden
            ]  # asks Spark, which may lack the driver
        return rows.select(*[f"`{name}`" for name in read])

    @contextmanager
    def _looking(self, area: LandingArea) -> Iterator[tuple["Connection[Any]", Columns]]:
        """A connection, in one state of the database, and the columns of the table. SourceError if
        there is none.
        """
        with self._server.connected(area) as connection:
            yield connection, Columns.of(self, connection)

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
        fingerprint = hashlib.sha256(f"{rows} {hashed} {columns.signature}".encode()).hexdigest()[
            :32
        ]
        return Delivery(
            fingerprint,
            {self.name: rows},
            str(written),
            {self.name: fingerprint[:12]},
            fewest=self.fewest,
        )
