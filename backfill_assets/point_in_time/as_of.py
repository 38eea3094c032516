"""The as-of join: for each request the latest row that happened and was known before it.

A history has two clocks: the time at which a row happened, and the time at which we knew it. A
training set that uses only the first clock holds values that could not be known at the time, and it
changes whenever the past is corrected.

Requests and visible rows are one stream, ordered by time within each entity, and a running maximum
gives the answers: one shuffle and one sort, as in a sort-merge join, however many rows an entity
has. Requests with two times (`known_by` is a column other than `at`) have no such order. For them
the join is an equi-join on `on` and a maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from backfill_assets.calendar import UTC

Instant = date | datetime
_ORDER = "__order"
_ROW = "__row"
_REQUEST = "__request"


def as_of(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    at: str,
    known_by: str | Instant | None = None,
    *,
    happened_at: str = "happened_at",
    known_at: str = "known_at",
    max_age: timedelta | None = None,
    prefix: str = "",
    zone: str = UTC,
) -> DataFrame:
    """Join each row of `left` to the latest row of `right` that happened and was known before.

        # as known at the time of the request
        as_of(requests, prices, on="shop", at="asked_at")
        # as known on 1 June at 0:00
        as_of(requests, prices, on="shop", at="asked_at", known_by=date(2024, 6, 1))
        # as known at the time of the review, and at most a week old
        week = timedelta(days=7)
        as_of(requests, prices, on="shop", at="asked_at", known_by="reviewed_at", max_age=week)

    left      the requests: one row each, in any order, with any columns
    right     the history: rows of an entity, with the columns `happened_at` and `known_at`
    on        the columns of both sides that name the entity
    at        the column of `left` with the time of the request
    known_by  the time before which a row must have been known: a column of `left`, or one time for
              all; by default `at`
    max_age   the greatest age of a row at the time `at`
    prefix    put before the names of the columns from `right`
    zone      the zone of times without one, and of days: a date is its beginning there

    Returns every row of `left` once, also where two are equal, with its columns, followed by those
    of `right` without `on`. These are null if `right` has no such row: there is none for the
    entity, none is early enough, the latest is older than `max_age`, or `on` or a time of the
    request is null.

    Times are compared strictly. A row that happened at exactly `at`, or was known at exactly
    `known_by`, is not used, because it may be the outcome to predict. A row that is exactly
    `max_age` old is used. If rows happened at the same time, the one that was known last is used;
    if both times are equal, the greatest by the other columns in their order (null is least). So
    the order of rows does not matter. Rows of `right` without an entity or one of the times are
    never used.

    The clocks are columns of type DATE or TIMESTAMP; one column may be both. Raises
    ValueError for other types, for missing columns, for columns that the result would have twice,
    and for a column of `right` that Spark cannot order (a map).
    """
    keys = [on] if isinstance(on, str) else list(on)
    known_by = at if known_by is None else known_by
    by_column = known_by if isinstance(known_by, str) else None
    _refuse(
        left,
        right,
        keys,
        [at, *([by_column] if by_column else [])],
        [happened_at, known_at],
        prefix,
    )
    if max_age is not None and max_age <= timedelta(0):
        raise ValueError(f"max_age={max_age}: no row has such an age. Write timedelta(days=7).")

    def moment(column: Column) -> Column:
        time = column.cast("timestamp")
        has_zone = F.typeof(column) == "timestamp"
        return F.when(has_zone, time).otherwise(F.to_utc_timestamp(time, zone))

    happened = moment(F.col(happened_at))
    known = moment(F.col(known_at))
    rows = right.where(F.lit(True) if by_column else known < instant(known_by, zone))  # type: ignore[arg-type]
    for needed in (*keys, happened_at, known_at):
        rows = rows.where(F.col(needed).isNotNull())
    first = dict.fromkeys([happened_at, known_at])  # One column may be both clocks.
    row = F.struct(*first, *[name for name in right.columns if name not in (*keys, *first)])
    if by_column in (None, at):
        visible = F.greatest(happened, known) if by_column else happened
        joined = _by_window(left, rows, keys, moment(F.col(at)), row, visible)
    else:
        clocks = {at: happened, by_column: known}
        joined = _by_join(left, rows, keys, clocks, row, moment)
    if max_age is not None:
        oldest = moment(F.col(f"{_REQUEST}.{at}")) - F.lit(max_age)
        joined = joined.withColumn(
            _ROW, F.when(moment(F.col(_ROW)[happened_at]) >= oldest, F.col(_ROW))
        )
    values = [
        F.col(_ROW)[name].alias(f"{prefix}{name}") for name in right.columns if name not in keys
    ]
    return joined.select(f"{_REQUEST}.*", *values)


def instant(at: Instant, zone: str = UTC) -> Column:
    """A time for all rows. A time without a zone is in `zone`, and a date is its beginning."""
    time = at if isinstance(at, datetime) else datetime(at.year, at.month, at.day)
    moment = time if time.tzinfo else time.replace(tzinfo=ZoneInfo(zone))
    return F.lit(moment.isoformat()).cast("timestamp")


def _by_window(
    left: DataFrame, rows: DataFrame, keys: Sequence[str], at: Column, row: Column, visible: Column
) -> DataFrame:
    """The greatest row that became visible before each request."""
    entity = [F.col(name).alias(f"__on{n}") for n, name in enumerate(keys)]
    # One number to sort by. Requests come before rows with the same time, and do not see them.
    requests = left.select(*entity, _order(at, 0), F.struct(*left.columns).alias(_REQUEST))
    visible_rows = rows.select(*entity, _order(visible, 1), row.alias(_ROW))
    stream = requests.unionByName(visible_rows, allowMissingColumns=True)
    of_entity = Window.partitionBy(*[f"__on{n}" for n in range(len(keys))]).orderBy(_ORDER)
    so_far = of_entity.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    answered = stream.withColumn(_ROW, F.max(_ROW).over(so_far))
    return answered.where(F.col(_REQUEST).isNotNull()).select(_REQUEST, _ROW)


def _order(time: Column, last: int) -> Column:
    return (2 * F.unix_micros(time) + last).alias(_ORDER)


def _by_join(
    left: DataFrame,
    rows: DataFrame,
    keys: Sequence[str],
    clocks: Mapping[str, Column],
    row: Column,
    moment: Callable[[Column], Column],
) -> DataFrame:
    """The greatest row before both times of each request. Equal requests share one answer.

    `clocks` has, by the name of each time, the clock of a row that is compared with it.
    """
    columns = [F.col(name).alias(f"__asked{n}") for n, name in enumerate([*keys, *clocks])]
    entity = [f"__asked{n}" for n in range(len(keys))]
    two_times = [f"__asked{n}" for n in range(len(keys), len(columns))]
    seen = rows.select(
        *[F.col(name).alias(f"__asked{n}") for n, name in enumerate(keys)],
        row.alias(_ROW),
        *[clock.alias(f"__clock{n}") for n, clock in enumerate(clocks.values())],
    )
    pairs = left.select(*columns).distinct().join(seen, entity)
    for n, time in enumerate(two_times):
        pairs = pairs.where(F.col(f"__clock{n}") < moment(F.col(time)))
    answers = pairs.groupBy(*entity, *two_times).agg(F.max(_ROW).alias(_ROW))
    requests = left.select(F.struct(*left.columns).alias(_REQUEST), *columns)
    return requests.join(answers, [*entity, *two_times], "left").select(_REQUEST, _ROW)


def _refuse(
    left: DataFrame,
    right: DataFrame,
    keys: Sequence[str],
    times: Sequence[str],
    clocks: Sequence[str],
    prefix: str,
) -> None:
    """Raise ValueError for arguments that cannot be joined."""
    if not keys:
        raise ValueError(
            "on=[] names no column: without an entity, every request would be compared with"
            " every row"
        )
    for side, frame, needed in (
        ("left", left, [*keys, *times]),
        ("right", right, [*keys, *clocks]),
    ):
        fields = {field.name: field.dataType for field in frame.schema.fields}
        if missing := [name for name in needed if name not in fields]:
            raise ValueError(
                f"{side} has no column {', '.join(missing)}; it has {', '.join(fields)}"
            )
        for name in needed[len(keys) :]:
            if not isinstance(fields[name], DateType | TimestampType | TimestampNTZType):
                raise ValueError(
                    f"{side}.{name} is {fields[name].simpleString()}, and no DATE or TIMESTAMP"
                )
    if maps := [
        f.name
        for f in right.schema.fields
        if "map<" in f.dataType.simpleString() and f.name not in keys
    ]:
        raise ValueError(
            f"right.{maps[0]} holds a map, and Spark cannot order maps: leave it out, or take"
            " values out of it"
        )
    new = [f"{prefix}{name}" for name in right.columns if name not in keys]
    if twice := [name for name in new if name.lower() in map(str.lower, left.columns)]:
        raise ValueError(f"both sides have {', '.join(twice)}: give a prefix for those of right")
