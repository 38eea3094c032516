"""The profile: the figures of each day, from one pass over the computed rows.

A fingerprint does not depend on the order of rows, on files, or on how days were split into runs.
It is the row count and the sums of the two halves of every row's 64-bit hash (xxHash64,
https://xxhash.com). Equal rows give equal fingerprints; about one pair of different days in 10^19
would.

Rows that broke a rule are shown in messages, commits, the ledger and the event log.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, FractionalType, MapType, StructType

from backfill_assets.quality.rule import DayProfile

SAMPLE_SIZE = 20


TEXTS = "array<string>"  # of samples: dates and numbers are kept as texts too


LONGEST_SHOWN = 300  # characters of one value


ROWS_SHOWN = 5


COLUMNS_SHOWN = 60


_COUNT = "__count"  # a name that no declared column has: Spark's own, `count`, may be one


# By itself Spark writes times as JSON to the millisecond only.
_WHOLE_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def profiles(
    rows: DataFrame,
    *,
    day: str,
    about: str | None,
    measures: Mapping[str, str],
    samples: Mapping[str, str],
) -> dict[date, DayProfile]:
    """One pass over `rows`: the profile of each day that has any. Grain of the query: (day, the day
    that the rows are about).

    Only where some row has values for a sample are those rows looked at again: collecting values in
    the first pass would cost all rows Spark's fast aggregation.
    """
    hashed = rows.withColumn("__hash", row_hash(rows.schema))
    names = [f.name for f in rows.schema.fields if f.name != day]
    figures = [
        F.count(F.lit(1)).alias("rows"),
        F.sum(F.shiftrightunsigned("__hash", 32)).alias("high"),
        F.sum(F.col("__hash").bitwiseAND(0xFFFFFFFF)).alias("low"),
        F.array(*[F.count_if(F.col(f"`{name}`").isNull()) for name in names]).alias("nulls"),
        F.array(*_totals(rows, measures.values())).alias("measures"),
        F.array(*[F.count_if(F.size(F.expr(sql)) > 0) for sql in samples.values()]).alias(
            "sampled"
        ),
    ]
    keys = [
        F.col(day).alias("day"),
        (F.col(about) if about else F.lit(None)).cast("string").alias("about"),
    ]
    groups: dict[date, list[Any]] = {}
    for group in hashed.groupBy(*keys).agg(*figures).collect():
        groups.setdefault(group.day, []).append(group)
    by_day = {
        d: _fold(d, of_day, names, list(measures), about is not None)
        for d, of_day in groups.items()
    }
    for n, (name, sql) in enumerate(samples.items()):
        if any(group.sampled[n] for of_day in groups.values() for group in of_day):
            for d, values in _samples(rows, day, sql).items():
                by_day[d] = replace(by_day[d], samples={**by_day[d].samples, name: values})
    return by_day


def _totals(rows: DataFrame, expressions: Iterable[str]) -> list[Column]:
    """The sum of each expression, rounded to a whole number once: nothing of a row's fraction is
    lost.
    """
    values = [F.expr(sql) for sql in expressions]
    kinds = [field.dataType for field in rows.select(*values).schema.fields] if values else []
    return [
        (
            F.bround(F.sum(value)).cast("long")
            if isinstance(kind, FractionalType)
            else F.sum(value.cast("long"))
        )
        for value, kind in zip(values, kinds, strict=True)
    ]


def _samples(rows: DataFrame, day: str, sql: str) -> dict[date, list[str]]:
    """Of each day, up to 20 of the distinct values of an array expression, in order."""
    values = rows.select(
        F.col(day).alias("day"), F.explode(F.expr(sql).cast(TEXTS)).alias("value")
    ).distinct()
    first = values.groupBy("day").agg(
        F.slice(F.array_sort(F.collect_list("value")), 1, SAMPLE_SIZE).alias("first")
    )
    return {row.day: [shortened(value) for value in row["first"]] for row in first.collect()}


def _fold(
    day: date, groups: list[Any], columns: list[str], measures: list[str], by_day: bool
) -> DayProfile:
    def total(values: str) -> list[int]:
        return [
            sum(column)
            for column in zip(*[[n or 0 for n in g[values]] for g in groups], strict=True)
        ]

    return DayProfile(
        day,
        rows=sum(g.rows for g in groups),
        fingerprint=_fingerprint(groups),
        nulls=dict(zip(columns, total("nulls"), strict=True)),
        measures=dict(zip(measures, total("measures"), strict=True)),
        day_fingerprints={g.about or "": _fingerprint([g]) for g in groups} if by_day else {},
    )


def _fingerprint(groups: list[Any]) -> str:
    return fingerprint(*[sum(g[name] for g in groups) for name in ("rows", "high", "low")])


def fingerprint(rows: int, high: int, low: int) -> str:
    """The count of rows, and the sums of the upper and the lower halves of their hashes."""
    return f"{rows}-{high % 2**64:x}-{low % 2**64:x}"


def row_hash(schema: StructType) -> Column:
    """A 64-bit hash of a row: of the names and types of its columns, and of its values in the order
    of those names.

    Spark's hash passes over nulls, so (null, 'a') and ('a', null) would be one: which columns are
    null is hashed too.
    """
    fields = sorted(schema.fields, key=lambda f: f.name)
    columns = [F.col(f"`{f.name}`") for f in fields]
    names = F.lit(", ".join(f"{f.name} {f.dataType.simpleString()}" for f in fields))
    nulls = [_bits(columns[n : n + 62]) for n in range(0, len(columns), 62)]
    return F.xxhash64(
        names, *nulls, *[_hashable(c, f.dataType) for c, f in zip(columns, fields, strict=True)]
    )


def _bits(columns: Sequence[Column]) -> Column:
    """One whole number that says which of these are null."""
    return _sum([c.isNull().cast("bigint") * F.lit(2**n) for n, c in enumerate(columns)])


def _sum(terms: Sequence[Column]) -> Column:
    """The sum, by halves: added one after the other, fifty terms lie deeper than a message to Spark
    Connect may be nested.
    """
    half = len(terms) // 2
    return _sum(terms[:half]) + _sum(terms[half:]) if half else terms[0]


def _hashable(value: Column, kind: DataType) -> Column:
    if isinstance(kind, MapType):  # a map has no order and no hash: its sorted entries have both
        return F.to_json(_ordered(value, kind), _WHOLE_TIMES)
    if isinstance(kind, ArrayType | StructType):  # nulls within would be passed over here too
        return F.to_json(_ordered(value, kind), {"ignoreNullFields": "false"} | _WHOLE_TIMES)
    return value


def _ordered(value: Column, kind: DataType) -> Column:
    """`value` with the sorted entries of each map, however deep it lies, in its place."""
    if "map<" not in kind.simpleString():
        return value
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda item: _ordered(item, kind.elementType))
    if isinstance(kind, StructType):
        fields = [_ordered(value.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    assert isinstance(kind, MapType)
    entries = F.map_entries(value)
    if "map<" in kind.valueType.simpleString():
        inner = kind.valueType
        entries = F.transform(
            entries,
            lambda e: F.struct(e["key"].alias("key"), _ordered(e["value"], inner).alias("value")),
        )
    return F.array_sort(entries)


def repeated_keys(rows: DataFrame, *, day: str, key: Sequence[str]) -> dict[date, int]:
    """How many keys stand more than once in each day that has such."""
    repeated = (
        rows.groupBy(*dict.fromkeys([day, *key]))
        .agg(F.count(F.lit(1)).alias(_COUNT))
        .where(F.col(_COUNT) > 1)
    )
    return {
        row[day]: row[_COUNT]
        for row in repeated.groupBy(day).agg(F.count(F.lit(1)).alias(_COUNT)).collect()
    }


def schema_mismatches(computed: StructType, declared: StructType) -> list[str]:
    """How the computed columns differ from the declared ones, in words; nullability is the rules'
    matter.
    """
    have = {f.name: f.dataType.simpleString() for f in computed.fields}
    want = {f.name: f.dataType.simpleString() for f in declared.fields}
    names = computed.names
    faults = [f"{name} is there {n} times" for name in have if (n := names.count(name)) > 1]
    faults += [f"{name} is missing" for name in want if name not in have]
    faults += [f"{name} is not declared" for name in have if name not in want]
    faults += (
        ["there is no column besides the day: Parquet has no rows without columns"]
        if len(want) < 2
        else []
    )
    return faults + [
        f"{n} is {have[n]}, declared {want[n]}" for n in want if n in have and have[n] != want[n]
    ]


def offending_rows(
    rows: DataFrame, *, day: str, on: date, key: Sequence[str], condition: str | None
) -> list[str]:
    """Up to five rows of a day, as JSON, that satisfy `condition`; without one, rows whose key
    repeats.
    """
    offending = rows.where(F.col(day) == F.lit(on))
    if condition is None:
        # As many as have the key, a null being a value.
        of_key = F.count(F.lit(1)).over(Window.partitionBy(*key))
        offending = (
            offending.withColumn(_COUNT, of_key).where(F.col(_COUNT) > 1).drop(_COUNT).orderBy(*key)
        )
    else:
        offending = offending.where(condition)
    shown = offending.limit(ROWS_SHOWN).select(F.to_json(F.struct("*")).alias("row")).collect()
    return [_as_text(json.loads(row.row), [day, *key]) for row in shown]


def _as_text(row: Mapping[str, Any], key: Sequence[str]) -> str:
    """A row as JSON; of a wide one the key and the first columns."""
    ordered = {**{name: row[name] for name in key if name in row}, **row}
    values = {name: shortened(value) for name, value in list(ordered.items())[:COLUMNS_SHOWN]}
    more = {"...": f"{len(row) - COLUMNS_SHOWN} more columns"} if len(row) > COLUMNS_SHOWN else {}
    return json.dumps(values | more, ensure_ascii=False)


def shortened(value: Any) -> Any:
    """The value, or the beginning of its text if that is long: it goes into commits, the ledger and
    the event log.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return (
        value
        if len(text) <= LONGEST_SHOWN
        else f"{text[:LONGEST_SHOWN]}... ({len(text):,} characters)"
    )
