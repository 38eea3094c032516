"""The as-of join: to each request the latest row that had happened, and was known, before it.

A history has two clocks: when a row happened, and when we knew. A training set that looks at the
first alone holds what nobody could know at the time, and is another one whenever the past is
corrected.

Requests and rows that become visible are one stream, ordered by time within each entity, and a
running maximum over it is the answer: one shuffle and one sort, as a sort-merge join has, whatever
the number of rows of an entity. There is no such order where requests name two times of their own
(`known_by` a column other than `at`): an equi-join on `on` and a maximum then.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

Instant = date | datetime
ORDER = "__order"
ROW = "__row"
REQUEST = "__request"


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
) -> DataFrame:
    """Each row of `left` with the latest row of `right` of the same `on` that happened before `at`
    and was known by then.

        # as known when asked
        as_of(requests, prices, on="shop", at="asked_at")
        # as known on 1 June at 0:00
        as_of(requests, prices, on="shop", at="asked_at", known_by=date(2024, 6, 1))
        # as known when reviewed, and at most a week old
        week = timedelta(days=7)
        as_of(requests, prices, on="shop", at="asked_at", known_by="reviewed_at", max_age=week)

    left      requests: one row each, in any order, of any columns
    right     the history: rows of an entity, with the columns `happened_at` and `known_at`
    on        the columns of both sides that name the entity
    at        the column of `left` that says when
    known_by  until when it must have been known: a column of `left`, or one time for all; if not
              given, `at`. A time without a zone is UTC, a date its beginning
    max_age   how long before `at` a row may have happened and still count
    prefix    put before the names of the columns that come from `right`

    Returns every row of `left` once, also where two are equal, with its columns, followed by those
    of `right` without `on`. These are null where `right` has no such row: none of the entity, none
    early enough, or the latest is older than `max_age`; where `on` or a time of the request is
    null, too.

    Strictly before: a row that happened at the very time `at`, or was known at the very time
    `known_by`, is not seen, for it may be the outcome that is asked for. A row that is exactly
    `max_age` old is seen. Of rows that happened at one time the one known latest counts, however
    many there are; of rows equal in both, the greatest by the other columns in their order (null is
    least), so that no order of rows shows: a column that is to decide stands first. A row of
    `right` without an entity or without one of its times is never seen.

    The clocks are columns of type DATE, whose beginning counts, or TIMESTAMP; one may be both.
    Raises ValueError for other types, for columns that a side lacks or the result would have twice,
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
        raise ValueError(f"max_age={max_age}: of no age would any row be; write timedelta(days=7)")
    happened = F.col(happened_at).cast("timestamp")
    known = F.col(known_at).cast("timestamp")
    rows = right.where(F.lit(True) if by_column else known < instant(known_by))  # type: ignore[arg-type]
    for needed in (*keys, happened_at, known_at):
        rows = rows.where(F.col(needed).isNotNull())
    first = dict.fromkeys([happened_at, known_at])  # one column may be both clocks
    row = F.struct(*first, *[name for name in right.columns if name not in (*keys, *first)])
    if by_column in (None, at):
        joined = _by_window(
            left,
            rows,
            keys,
            at,
            row,
            happened if by_column is None else F.greatest(happened, known),
        )
    else:
        joined = _by_join(left, rows, keys, [at, by_column], row, [happened, known])
    if max_age is not None:
        oldest = F.col(f"{REQUEST}.{at}").cast("timestamp") - F.lit(max_age)
        joined = joined.withColumn(
            ROW, F.when(F.col(ROW)[happened_at].cast("timestamp") >= oldest, F.col(ROW))
        )
    values = [
        F.col(ROW)[name].alias(f"{prefix}{name}") for name in right.columns if name not in keys
    ]
    return joined.select(f"{REQUEST}.*", *values)


def instant(at: Instant) -> Column:
    """A time for all rows. Python's own zone has no part in it."""
    of_day = at if isinstance(at, datetime) else datetime(at.year, at.month, at.day)
    return F.lit(
        (of_day if of_day.tzinfo else of_day.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    ).cast("timestamp")


def _by_window(
    left: DataFrame, rows: DataFrame, keys: Sequence[str], at: str, row: Column, visible: Column
) -> DataFrame:
    """The greatest row that became visible before each request."""
    entity = [F.col(name).alias(f"__on{n}") for n, name in enumerate(keys)]
    # One number to sort by. At one time, requests come before rows: they do not see them.
    asked = left.select(
        *entity, _order(F.col(at).cast("timestamp"), 0), F.struct(*left.columns).alias(REQUEST)
    )
    seen = rows.select(*entity, _order(visible, 1), row.alias(ROW))
    both = asked.unionByName(seen, allowMissingColumns=True)
    of_entity = Window.partitionBy(*[f"__on{n}" for n in range(len(keys))]).orderBy(ORDER)
    so_far = of_entity.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    answered = both.withColumn(ROW, F.max(ROW).over(so_far))
    return answered.where(F.col(REQUEST).isNotNull()).select(REQUEST, ROW)


def _order(time: Column, last: int) -> Column:
    return (2 * F.unix_micros(time) + last).alias(ORDER)


def _by_join(
    left: DataFrame,
    rows: DataFrame,
    keys: Sequence[str],
    times: Sequence[str],
    row: Column,
    clocks: Sequence[Column],
) -> DataFrame:
    """The greatest row before both times of each request. Equal requests are answered once, and
    each gets the answer.
    """
    asked = [F.col(name).alias(f"__asked{n}") for n, name in enumerate([*keys, *times])]
    entity = [f"__asked{n}" for n in range(len(keys))]
    two_times = [f"__asked{n}" for n in range(len(keys), len(asked))]
    seen = rows.select(
        *[F.col(name).alias(f"__asked{n}") for n, name in enumerate(keys)],
        row.alias(ROW),
        *[clock.alias(f"__clock{n}") for n, clock in enumerate(clocks)],
    )
    pairs = left.select(*asked).distinct().join(seen, entity)
    for n, time in enumerate(two_times):
        pairs = pairs.where(F.col(f"__clock{n}") < F.col(time).cast("timestamp"))
    answers = pairs.groupBy(*entity, *two_times).agg(F.max(ROW).alias(ROW))
    requests = left.select(F.struct(*left.columns).alias(REQUEST), *asked)
    return requests.join(answers, [*entity, *two_times], "left").select(REQUEST, ROW)


def _refuse(
    left: DataFrame,
    right: DataFrame,
    keys: Sequence[str],
    times: Sequence[str],
    clocks: Sequence[str],
    prefix: str,
) -> None:
    """ValueError for what cannot be joined."""
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
