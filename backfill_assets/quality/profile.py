"""The profile: the figures of each day, from one pass over the computed rows.

A fingerprint does not depend on the order of rows, on files, or on how days were split into runs.
It is the row count and the sums of the two halves of every row's 64-bit hash (xxHash64,
https://xxhash.com). Equal rows give equal fingerprints; about one pair of different days in 10^19
would.

Rows that broke a rule are shown in messages, commits, the ledger and the event log. So long values
are cut.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, FractionalType, MapType, StructType

from backfill_assets.grouping import grouped
from backfill_assets.quality.masking import masked_row
from backfill_assets.quality.rule import DayProfile

SAMPLE_SIZE = 20
TEXTS = "array<string>"  # The type of samples: dates and numbers are stored as text too.
COLUMNS_SHOWN = 60
_LONGEST_SHOWN = 300  # characters of one value
_ROWS_SHOWN = 5
_COUNT = "__count"  # No declared column has this name. Spark's own name, `count`, may be a column.
# Without these options, Spark writes times as JSON only to the millisecond.
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
    """The profile of each day that has rows, from one pass. Grain of the query: (day, `about`).

    `about` is the column of the day that rows are about. Rows are read a second time only for a
    sample with values: collecting values in the first pass would cost Spark's fast aggregation.
    """
    hashed = rows.withColumn("__hash", row_hash(rows.schema))
    names = [name for name in rows.columns if name != day]
    figures = [
        F.count(F.lit(1)).alias("rows"),
        F.sum(F.shiftrightunsigned("__hash", 32)).alias("high"),
        F.sum(F.col("__hash").bitwiseAND(0xFFFFFFFF)).alias("low"),
        F.array(*[F.count_if(F.col(f"`{name}`").isNull()) for name in names]).alias("nulls"),
        F.array(*_sums(rows, measures.values())).alias("measures"),
        F.array(*[F.count_if(F.size(F.expr(sql)) > 0) for sql in samples.values()]).alias(
            "sampled"
        ),
    ]
    about_day = (F.col(about) if about else F.lit(None)).cast("string").alias("about")
    groups = hashed.groupBy(F.col(day).alias("day"), about_day).agg(*figures).collect()
    values = {
        name: _samples(rows, day, sql)
        for n, (name, sql) in enumerate(samples.items())
        if any(group.sampled[n] for group in groups)
    }
    by_day = grouped((group.day, group) for group in groups)
    return {
        at: DayProfile(
            at,
            rows=sum(group.rows for group in of_day),
            fingerprint=_fingerprint(of_day),
            nulls=dict(zip(names, _totals(of_day, "nulls"), strict=True)),
            measures=dict(zip(measures, _totals(of_day, "measures"), strict=True)),
            samples={name: sample[at] for name, sample in values.items() if at in sample},
            day_fingerprints=(
                {group.about or "": _fingerprint([group]) for group in of_day} if about else {}
            ),
        )
        for at, of_day in by_day.items()
    }


def _sums(rows: DataFrame, expressions: Iterable[str]) -> list[Column]:
    """The sum of each expression. Fractions are rounded once, after the sum."""
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
    """The first 20 distinct values of an array expression, for each day with values."""
    values = rows.select(
        F.col(day).alias("day"), F.explode(F.expr(sql).cast(TEXTS)).alias("value")
    ).distinct()
    first = values.groupBy("day").agg(
        F.slice(F.array_sort(F.collect_list("value")), 1, SAMPLE_SIZE).alias("first")
    )
    return {row.day: [shortened(value) for value in row["first"]] for row in first.collect()}


def _totals(groups: Sequence[Any], figures: str) -> list[int]:
    columns = zip(*[group[figures] for group in groups], strict=True)
    return [sum(figure or 0 for figure in column) for column in columns]


def _fingerprint(groups: Sequence[Any]) -> str:
    return fingerprint(*[sum(group[part] for group in groups) for part in ("rows", "high", "low")])


def fingerprint(rows: int, high: int, low: int) -> str:
    """The text of a fingerprint: the row count, and the sums of both halves of the hashes."""
    return f"{rows}-{high % 2**64:x}-{low % 2**64:x}"


def row_hash(schema: StructType) -> Column:
    """A 64-bit hash of a row: of its columns' names and types, and of its values in that order.

    Spark's hash ignores nulls, so that (null, 'a') and ('a', null) would have one hash. Therefore
    the positions of nulls are hashed too.
    """
    fields = sorted(schema.fields, key=lambda f: f.name)
    columns = [F.col(f"`{f.name}`") for f in fields]
    names = F.lit(", ".join(f"{f.name} {f.dataType.simpleString()}" for f in fields))
    nulls = [_bits(columns[n : n + 62]) for n in range(0, len(columns), 62)]
    return F.xxhash64(
        names, *nulls, *[_hashable(c, f.dataType) for c, f in zip(columns, fields, strict=True)]
    )


def _bits(columns: Sequence[Column]) -> Column:
    """A whole number with one bit for each column that is null."""
    return _sum([c.isNull().cast("bigint") * F.lit(2**n) for n, c in enumerate(columns)])


def _sum(terms: Sequence[Column]) -> Column:
    """The sum, by halves. Spark Connect cannot handle a chain of fifty nested terms."""
    half = len(terms) // 2
    return _sum(terms[:half]) + _sum(terms[half:]) if half else terms[0]


def _hashable(value: Column, kind: DataType) -> Column:
    if not isinstance(kind, ArrayType | MapType | StructType):
        return value
    # Spark ignores nulls within arrays and structs. A map has no order and no hash.
    options = {} if isinstance(kind, MapType) else {"ignoreNullFields": "false"}
    text = F.to_json(_ordered(value, kind), options | _WHOLE_TIMES)
    if isinstance(kind, StructType):
        return text
    # Most are empty, and writing JSON takes longer than everything else.
    return F.when(F.size(value) == 0, F.lit("[]")).otherwise(text)


def _ordered(value: Column, kind: DataType) -> Column:
    """`value` with sorted entries instead of each map, at any depth."""
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
    # Keys are unique. `array_sort` gives the same order, but Spark cannot compile it.
    return F.sort_array(entries)


def repeated_keys(rows: DataFrame, *, day: str, key: Sequence[str]) -> dict[date, int]:
    """The number of repeated keys of each day that has some."""
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
    """The differences of the computed from the declared columns, as text.

    Rules check nulls.
    """
    have = {f.name: f.dataType.simpleString() for f in computed.fields}
    want = {f.name: f.dataType.simpleString() for f in declared.fields}
    names = computed.names
    faults = [f"{name} is there {n} times" for name in have if (n := names.count(name)) > 1]
    faults += [f"{name} is missing" for name in want if name not in have]
    faults += [f"{name} is not declared" for name in have if name not in want]
    if len(want) < 2:
        faults.append("there is no column but the day: Parquet has no rows without columns")
    return faults + [
        f"{n} is {have[n]}, declared {want[n]}" for n in want if n in have and have[n] != want[n]
    ]


def offending_rows(
    rows: DataFrame,
    *,
    day: str,
    on: date,
    key: Sequence[str],
    condition: str | None,
    masked: Collection[str] = (),
) -> list[str]:
    """Up to five rows of a day that satisfy `condition`, as JSON, without masked values.

    Without a condition, rows with a repeated key.
    """
    offending = rows.where(F.col(day) == F.lit(on))
    if condition is None:
        # The number of rows with the same key. Null is a value.
        of_key = F.count(F.lit(1)).over(Window.partitionBy(*key))
        offending = (
            offending.withColumn(_COUNT, of_key).where(F.col(_COUNT) > 1).drop(_COUNT).orderBy(*key)
        )
    else:
        offending = offending.where(condition)
    shown = offending.limit(_ROWS_SHOWN).select(F.to_json(F.struct("*")).alias("row")).collect()
    return [_as_text(masked_row(json.loads(row.row), masked), [day, *key]) for row in shown]


def _as_text(row: Mapping[str, Any], key: Sequence[str]) -> str:
    """A row as JSON: its key, and the first columns."""
    ordered = {**{name: row[name] for name in key if name in row}, **row}
    values = {name: shortened(value) for name, value in list(ordered.items())[:COLUMNS_SHOWN]}
    more = {"...": f"{len(row) - COLUMNS_SHOWN} more columns"} if len(row) > COLUMNS_SHOWN else {}
    return json.dumps(values | more, ensure_ascii=False)


def shortened(value: Any) -> Any:
    """The value, or the beginning of its text if the text is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return (
        value
        if len(text) <= _LONGEST_SHOWN
        else f"{text[:_LONGEST_SHOWN]}... ({len(text):,} characters)"
    )
