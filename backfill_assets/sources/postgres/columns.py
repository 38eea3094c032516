"""The columns of a PostgreSQL table: their types in Spark, and the queries with them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from backfill_assets.calendar import consecutive

# Types that Spark has too.
_SAME_TYPES = {
    "boolean",
    "smallint",
    "integer",
    "bigint",
    "real",
    "double precision",
    "text",
    "bytea",
}
_SAME_ARRAYS = {f"{kind}[]" for kind in _SAME_TYPES} - {"bytea[]"}
_WITH_ZONE = "timestamp with time zone"
_WITHOUT_ZONE = "timestamp without time zone"


def _quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def plain_type(kind: str) -> str:
    """Return a type without its precision."""
    return re.sub(r"\([\d,]+\)", "", kind)


def _is_decimal(kind: str) -> bool:
    """Tell whether Spark has a decimal of this precision and scale."""
    match = re.fullmatch(r"numeric\((\d+),(\d+)\)", kind)
    return bool(match and int(match[2]) <= int(match[1]) <= 38)


CATALOG = """
    SELECT format('%%I.%%I', n.nspname, c.relname), c.relkind::text, a.attname,
        format_type(a.atttypid, a.atttypmod),
        coalesce((SELECT max(s.avg_width) FROM pg_stats s
            WHERE (s.schemaname, s.tablename, s.attname) = (n.nspname, c.relname, a.attname)), 32)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.oid = to_regclass(%s::text) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# The kinds of relations that have the transaction of each row: tables, partitioned tables and
# materialized views.
KINDS_WITH_XMIN = "rpm"
DAY = "arrival_day"
_TIME = "backfill_at"


@dataclass(frozen=True)
class Columns:
    """The columns of `relation` to read, by name, with their types.

    `day` is a column of the table, even if it is not read. Changes of a row are detected by
    `hashed`. Days are of `time_zone`, and with `local_times` also timestamps without a zone.
    `width` is the average size of a row in bytes.
    """

    relation: str
    types: Mapping[str, str]
    day: str
    day_type: str
    time_zone: str
    local_times: bool
    hashed: Sequence[str]
    has_xmin: bool
    width: int

    @property
    def signature(self) -> str:
        """The columns with their types as text. If the text changes, rows change."""
        return ", ".join(f"{_quoted(name)} {kind}" for name, kind in self.types.items())

    @property
    def hidden(self) -> Sequence[str]:
        """Selected columns that are not columns of the table."""
        return [] if self.day_type == "date" else [_TIME]

    def compared(self, days: Sequence[date]) -> bytes:
        """Return the query for each day's rows: their number, hash, and the sum of `xmin`."""
        row = f"ROW({', '.join(f't.{_quoted(name)}' for name in self.hashed)})::text"
        written = "t.xmin::text::bigint" if self.has_xmin else "0"
        return self._by_day(
            days,
            "count(*), sum(hashtextextended(row, 0)), sum(written)",
            f", {row} AS row, {written} AS written",
        )

    def counted(self, days: Sequence[date]) -> bytes:
        """Return the query for each day's number of rows."""
        return self._by_day(days, "count(*)", "")

    def _by_day(self, days: Sequence[date], figures: str, columns: str) -> bytes:
        rows = f"SELECT {self._day}{columns} FROM {self.relation} t"
        return (
            f"SELECT {DAY}, {figures} FROM ({rows}) r WHERE {self.within(days)} GROUP BY {DAY}"
        ).encode()

    def selected(self) -> str:
        """Return the query for all rows, in types that Spark has."""
        columns = [
            f"{self._as_read(name, kind)} AS {_quoted(name)}"
            for name, kind in self.types.items()
            if name != DAY
        ]
        return f"SELECT {', '.join([self._day, *columns])} FROM {self.relation} t"

    def within(self, days: Sequence[date]) -> str:
        """Return the condition for the rows of `days`. It can use an index on the day."""
        return (
            " OR ".join(self._between(part[0], part[-1]) for part in consecutive(days)) or "false"
        )

    @property
    def _day(self) -> str:
        at = f"t.{_quoted(self.day)}"
        if self.day_type == "date":
            return f"{at} AS {DAY}"
        local = (
            f"({at} AT TIME ZONE {_literal(self.time_zone)})" if self.day_type == _WITH_ZONE else at
        )
        return f"{local}::date AS {DAY}, {at} AS {_TIME}"

    def _between(self, first: date, last: date) -> str:
        days = f"{DAY} BETWEEN '{first}' AND '{last}'"
        if self.day_type == "date":
            return f"({days})"
        # A day in any zone begins less than a day before or after the day in UTC.
        off = timedelta(days=self.day_type == _WITH_ZONE and self.time_zone != "UTC")
        return (
            f"({_TIME} >= '{first - off} 00:00'"
            f" AND {_TIME} < '{last + off + timedelta(days=1)} 00:00'"
            f" AND {days})"
        )

    def _as_read(self, name: str, kind: str) -> str:
        column = f"t.{_quoted(name)}"
        plain = plain_type(kind)
        if kind in _SAME_TYPES:
            return column
        if plain == _WITHOUT_ZONE and self.local_times:
            column = f"({column} AT TIME ZONE {_literal(self.time_zone)})"
            kind = _WITH_ZONE
            plain = _WITH_ZONE
        # Spark would silently turn infinite dates into other dates. PostgreSQL raises when it casts
        # such a text.
        why = (
            f"{name} has a value that Spark cannot hold. Leave the column out, or read a view that"
            " has it as text: "
        )
        refused = f"({_literal(why)} || {column}::text)::{kind}"
        if plain in ("date", _WITH_ZONE):
            return f"CASE WHEN isfinite({column}) THEN {column} ELSE {refused} END"
        if _is_decimal(kind):
            return f"CASE WHEN {column} <> 'NaN' THEN {column} ELSE {refused} END"
        if kind in _SAME_ARRAYS:
            return f"CASE WHEN array_ndims({column}) > 1 THEN {refused} ELSE {column} END"
        return f"{column}::text"
