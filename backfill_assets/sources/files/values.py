"""Conversion of a file's cells to values of the declared types.

A value is read only if its text has exactly one meaning as declared, and if the type holds it
exactly. Otherwise it is null, and its text is in `unparsed`.

Spark compiles the code of all columns together, and stops if it becomes long. So each type has one
pattern, without rare forms.
"""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DateType,
    DoubleType,
    FloatType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from backfill_assets.quality.rules import MALFORMED
from backfill_assets.sources.files.fields import (
    UNKNOWN_FIELDS,
    UNPARSED,
    Field,
    has_zone,
)

TEXT = StringType()
# Columns of rows: the values in the names of a file's folders, and the place of a row in its file.
IN_FOLDERS = "in_folders"
LINE = "__line"
_BLANKS = " \t\r\n\u00a0\u202f"
_TIMES = ("date", "timestamp", "timestamp_ntz")
# Spark would read "12:00" as today, "2020" as a year, and BST as the time of Bangladesh. It would
# leave out a blank at the end, and cut off the digits after microseconds.
_ZONE = r"Z|UTC|GMT|[A-Z]\w+/[\w/+-]+|(UTC|GMT)?[+-][\d:]+"
_ISO = rf"^\d{{4}}-\d\d-\d\d([T ][\d:.]+( ?({_ZONE}))?)?\z"
_LONGEST_ISO = len("2024-06-01T12:00:00.000000")
_NANOSECONDS = r"\.\d{6,}[1-9]"
_WHOLE = r"^[+-]?\d+(\.0+)?\z"
# A decimal in the form that programs use for small ones. A double is exact up to 15 digits.
_SMALL = r"^[+-]?\d(\.\d{1,14})?[eE]-\d+\z"
# Java would read more texts: "12d", and "0x1p3" as 8.
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\z"
_NOT_FINITE = r"(?i)^(nan|[+-]?inf(inity)?)\z"
# The digits of a number that a floating type always has, and the bits of its whole numbers.
_DIGITS = {"float": 6, "double": 15}
_BITS = {"float": 24, "double": 53}
_INFINITY = float("inf")


def conformed(
    rows: DataFrame,
    cells: Mapping[str, Column],
    fields: Sequence[Field],
    unknown: Column,
    in_folders: bool,
    types: Mapping[str, DataType] = MappingProxyType({}),
) -> DataFrame:
    """Convert the cells of files to the declared columns with their types, and add `unparsed`.

    `types` are the types that cells have in the files. By default they are text in UTF-8. With
    `in_folders`, the rows have a column for the names of folders.
    """
    if in_folders:
        cells = dict(cells) | {
            column.name: F.coalesce(cells.get(column.name, F.lit(None)), _in_folders(column))
            for column in fields
            if types.get(column.name, TEXT) == TEXT
        }
    present = [column for column in fields if column.name in cells]
    absent = [column for column in fields if column.name not in cells]
    kinds = {column.name: types.get(column.name, TEXT) for column in present}
    local = [
        column
        for column in present
        if column.zone and not isinstance(kinds[column.name], TimestampType)
    ]
    by_order = [column for column in local if column.ambiguous == "by order"]
    # In several steps, so that Spark converts each value only once.
    cleaned = rows.select(
        "arrival_day",
        "source_file",
        *(
            _cleaned(cells[column.name], column, kinds[column.name]).alias(_cell_of(column))
            for column in present
        ),
        unknown,
        MALFORMED,
        *([LINE] if by_order else []),
    )
    values = cleaned.select(
        "*",
        *(_value(column, types.get(column.name)).alias(column.name) for column in present),
        *(F.lit(None).cast(column.type).alias(column.name) for column in absent),
    )
    if local:
        values = values.withColumns({_moment_of(column): _earlier(column) for column in local})
        moments = {name: at for column in local for name, at in _moments(column).items()}
        values = values.withColumns(moments)
    values = reduce(_in_order, by_order, values)
    times = [column.name for column in present if column.kind in _TIMES]
    for name in times:
        # Python has no other years, and could not read the rows.
        values = values.withColumn(name, F.when(F.year(name).between(1, 9999), F.col(name)))
    entries = [
        F.when(
            F.col(column.name).isNull() & (F.trim(text) != ""),
            F.struct(F.lit(column.name).alias("key"), text.alias("value")),
        )
        for column in present
        if column.type != "STRING" or column.name in types
        for text in [F.make_valid_utf8(F.col(_cell_of(column)).cast("string"))]
    ]
    unparsed = map_of(entries) if entries else F.create_map()
    return values.select(
        "arrival_day",
        "source_file",
        *(column.name for column in fields),
        unparsed.cast("MAP<STRING, STRING>").alias(UNPARSED),
        UNKNOWN_FIELDS,
        MALFORMED,
    )


def map_of(entries: Sequence[Column]) -> Column:
    """A map of the entries that are not null. Most rows have none, and building one takes long."""
    made = F.map_from_entries(F.array_compact(F.array(*entries)))
    empty = F.create_map().cast("MAP<STRING, STRING>")
    return F.when(F.coalesce(*entries).isNotNull(), made).otherwise(empty)


def _in_folders(column: Field) -> Column:
    """The text of a column in the names of the folders of a well-formed row's file."""
    texts = (F.col(IN_FOLDERS)[name] for name in column.names)
    return F.when(F.col(MALFORMED).isNull(), F.coalesce(*texts))


def _cell_of(column: Field) -> str:
    # No declared column has such a name.
    return f"__{column.name}"


def _moment_of(column: Field) -> str:
    return f"__moment_{column.name}"


def _cleaned(cell: Column, column: Field, kind: DataType) -> Column:
    """The cell without blanks around it, and null for a text that means null."""
    if not isinstance(kind, StringType):
        return cell
    if column.trim:
        cell = F.nullif(F.trim(cell, F.lit(_BLANKS)), F.lit(""))
    return F.when(~cell.isin(*column.nulls), cell) if column.nulls else cell


def _value(column: Field, kind: DataType | None) -> Column:
    """The value of the declared type, or null; a local time is read as UTC.

    `kind` is the type that the cell has. None is text in UTF-8.
    """
    cell = F.col(_cell_of(column))
    text = cell.cast("string")
    if column.type == "STRING":
        return F.when(F.is_valid_utf8(text), text) if kind else text
    kind = kind or TEXT
    if column.formats or column.kind in _TIMES:
        return _time(cell, column, kind)
    if not isinstance(kind, StringType | DateType):
        return _converted(cell, column, kind)
    if column.type == "BOOLEAN":
        # To lower a text, Java first loads names of all characters, for seconds.
        true, false = (
            text.rlike(rf"(?i)^{re.escape(value)}\z")
            if value.isascii()
            else F.lower(text) == value.lower()
            for value in column.booleans
        )
        return F.when(true, True).when(false, False)
    if not column.is_number:
        return text.try_cast(column.type)
    text = _with_point(text, column)
    if column.is_floating:
        return _floating(text, column)
    if not column.scale:
        return F.when(text.rlike(_WHOLE), F.substring_index(text, ".", 1).try_cast(column.type))
    value = text.try_cast(column.type)
    fits = text.rlike(rf"^[+-]?\d*\.?\d{{0,{column.scale}}}0*\z")
    is_same = value.cast("DOUBLE") == text.try_cast("DOUBLE")
    return F.when(fits | (text.rlike(_SMALL) & is_same), value)


def _converted(cell: Column, column: Field, kind: DataType) -> Column:
    """The value of a cell that is not text. Spark would cut off fractions, or round."""
    value = cell.try_cast(column.type)
    is_same = value.try_cast(kind) == cell
    if not isinstance(kind, DoubleType | FloatType):
        return F.when(is_same, value) if column.is_number or column.type == "BOOLEAN" else value
    if column.is_floating:
        return value if column.not_finite else F.when(F.abs(value) < _INFINITY, value)
    if not column.is_number:
        return F.when(is_same, value)
    # A double has more digits than its number had if the number was rounded before.
    name = kind.simpleString()
    is_whole = (F.abs(cell) < 2 ** _BITS[name]) & (F.floor(cell) == cell)
    if not column.scale:
        return F.when(is_whole, value)
    text = cell.cast("string")
    value = text.try_cast(column.type)
    is_short = text.rlike(rf"^-?[0.]*+(\d\.?){{0,{_DIGITS[name]}}}0*(\.0)?(E-?\d+)?\z")
    return F.when((is_whole | is_short) & (value.try_cast(kind) == cell), value)


def _with_point(text: Column, column: Field) -> Column:
    """The text of a number with the declared signs, as Spark reads it."""
    thousands = column.thousands
    if thousands:
        sign = re.escape(thousands)
        point = re.escape(column.decimal or ".")
        # "0,250" is more likely a fraction in another convention.
        is_grouped = text.rlike(rf"^[+-]?[1-9]\d{{0,2}}({sign}\d{{3}})+({point}\d+)?\z")
        text = F.when(is_grouped, F.replace(text, F.lit(thousands), F.lit(""))).otherwise(text)
    return F.translate(text, ",.", ".~") if column.decimal == "," else text


def _floating(text: Column, column: Field) -> Column:
    """The floating point number of a text. Fractions are rounded, but whole digits are not."""
    value = text.try_cast(column.type)
    is_short = text.rlike(rf"^[+-]?0*\d{{0,{_DIGITS[column.kind]}}}0*(\.|[eE]|\z)")
    size = F.abs(value)
    has_digits = (size < 2 ** _BITS[column.kind]) | ((size < _INFINITY) & is_short)
    is_number = text.rlike(_NUMBER) & has_digits
    return F.when(is_number | text.rlike(_NOT_FINITE) if column.not_finite else is_number, value)


def _time(cell: Column, column: Field, kind: DataType) -> Column:
    """The day or time of a cell by the declared patterns, or in ISO 8601.

    A text must have a time after its day, if any.
    """
    text = cell.cast("string")
    if column.formats:
        times = [F.try_to_timestamp(text, F.lit(pattern)) for pattern in column.formats]
        time = F.coalesce(*times).cast(column.type)
        has_nanoseconds = any("SSSSSSS" in pattern for pattern in column.formats)
        return F.when(~text.rlike(_NANOSECONDS), time) if has_nanoseconds else time
    is_time = isinstance(kind, DateType | TimestampType | TimestampNTZType)
    if not is_time:
        cell = text
    moment = cell.try_cast("TIMESTAMP")
    # Spark would ignore text after a day, and the zone of a time.
    value = cell.try_cast("DATE") if column.type == "DATE" else moment.cast(column.type)
    if column.type == "DATE" and isinstance(kind, TimestampType):
        # The day of a moment depends on the zone.
        return F.when(value.try_cast(kind) == cell, value)
    if is_time:
        return value
    has_microseconds = (F.octet_length(text) <= _LONGEST_ISO) | ~text.rlike(_NANOSECONDS)
    return F.when(text.rlike(_ISO) & has_microseconds & moment.isNotNull(), value)


def _is_local(column: Field) -> Column:
    """Tell whether a time in text has no zone."""
    text = F.col(_cell_of(column)).cast("string")
    if not column.formats:
        # After the date, only a zone has letters or signs.
        return ~F.substring(text, 12, 64).rlike("[A-Za-z+-]")
    if len({*map(has_zone, column.formats)}) == 1:
        return F.lit(not has_zone(column.formats[0]))
    return F.coalesce(
        *(
            F.when(F.try_to_timestamp(text, F.lit(pattern)).isNotNull(), not has_zone(pattern))
            for pattern in column.formats
        )
    )


def _earlier(column: Field) -> Column:
    """The first moment of a local time; null for a time that is written with a zone."""
    return F.when(_is_local(column), F.to_utc_timestamp(column.name, column.zone))


def _moments(column: Field) -> dict[str, Column]:
    """The moments of a column of local times that were read as UTC, by name.

    A time that the clock skips is null. If the order of rows decides on repeated times, a separate
    column has the second moment.
    """
    local = F.col(column.name)
    first = F.col(_moment_of(column))
    exists = F.from_utc_timestamp(first, column.zone) == local
    if column.ambiguous == "first":
        moment = first
        later = F.lit(None)
    else:
        day = F.expr("INTERVAL 1 DAY")
        tomorrow = F.from_utc_timestamp(first + day, column.zone)
        # If the clock is set back by an hour until tomorrow, its time is an hour less.
        second = first + (local + day - tomorrow)
        is_repeated = F.from_utc_timestamp(second, column.zone) == local
        later = F.when((tomorrow != local + day) & is_repeated, second)
        by_choice = {"second": F.coalesce(later, first), "by order": first}
        moment = by_choice.get(column.ambiguous, F.when(later.isNull(), first))
    value = F.when(first.isNull(), local).otherwise(F.when(exists, moment))
    return {column.name: value} | (
        {_moment_of(column): later} if column.ambiguous == "by order" else {}
    )


def _in_order(rows: DataFrame, column: Field) -> DataFrame:
    """Choose between the moments of repeated times, by the order of the lines of a file.

    As in pandas: among consecutive lines with such times, the second hour begins where the times
    stop increasing. If they never stop, or more than once, the hours are not clear.
    """
    first = F.col(column.name)
    second = F.col(_moment_of(column))
    if LINE not in rows.columns:
        return rows.withColumn(column.name, F.when(second.isNull(), first))
    lines = Window.partitionBy("source_file").orderBy(LINE)
    before = F.lag(first).over(lines)
    # In descending order, the line before repeated times has a later time.
    backs = F.when(F.lag(second).over(lines).isNotNull(), 1).otherwise(2)
    run = F.count(F.when(second.isNull(), 1)).over(lines)
    back = F.when(second.isNotNull() & (first <= before), backs).otherwise(0)
    rows = rows.withColumns({"__run": run, "__back": back})
    of_run = Window.partitionBy("source_file", "__run")
    is_second = F.sum("__back").over(of_run.orderBy(LINE)) == 1
    moment = F.when(second.isNull(), first).when(
        F.sum("__back").over(of_run) == 1, F.when(is_second, second).otherwise(first)
    )
    return rows.withColumn(column.name, moment)
