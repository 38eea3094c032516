"""The profile of rows that fit into this process, without a Spark job of its own.

Spark computes what only Spark can as extra columns of the rows: the hash of each row, and the SQL
of measures and samples. The rows come here as one Arrow table, and are counted, summed and grouped
here. On a small slice most of the time goes into planning and starting Spark jobs, and this needs
one job instead of three.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.quality.profile import SAMPLE_SIZE, TEXTS, fingerprint, row_hash, shortened
from backfill_assets.quality.rule import DayProfile

_HASH = "__hash"
_MEASURE = "__measure"
_SAMPLE = "__sample"


def with_figures(
    rows: DataFrame, *, measures: Mapping[str, str], samples: Mapping[str, str]
) -> DataFrame:
    """`rows` with the further columns that `small_profiles` reads."""
    return rows.select(
        "*",
        row_hash(rows.schema).alias(_HASH),
        *[F.expr(sql).alias(f"{_MEASURE}{n}") for n, sql in enumerate(measures.values())],
        *[F.expr(sql).cast(TEXTS).alias(f"{_SAMPLE}{n}") for n, sql in enumerate(samples.values())],
    )


def without_figures(rows: pa.Table) -> pa.Table:
    """The rows alone."""
    return rows.select(
        [name for name in rows.column_names if not name.startswith((_HASH, _MEASURE, _SAMPLE))]
    )


def small_profiles(
    rows: pa.Table,
    *,
    day: str,
    about: str | None,
    key: Sequence[str],
    measures: Sequence[str],
    samples: Sequence[str],
) -> dict[date, DayProfile]:
    """The profile of each day that has rows. `rows` are those of `with_figures`; keys are counted
    if there is a `key`.
    """
    columns = [name for name in without_figures(rows).column_names if name != day]
    return {
        on: _of_day(on, of_day, columns, about, key, measures, samples)
        for on, of_day in by_value(rows, day)
        if on
    }


def _of_day(
    on: date,
    rows: pa.Table,
    columns: Sequence[str],
    about: str | None,
    key: Sequence[str],
    measures: Sequence[str],
    samples: Sequence[str],
) -> DayProfile:
    return DayProfile(
        on,
        rows=rows.num_rows,
        fingerprint=_fingerprint(rows),
        nulls={name: rows[name].null_count for name in columns},
        measures={name: _total(rows[f"{_MEASURE}{n}"]) for n, name in enumerate(measures)},
        samples={
            name: values
            for n, name in enumerate(samples)
            if (values := _samples(rows[f"{_SAMPLE}{n}"]))
        },
        day_fingerprints=(
            {str(at or ""): _fingerprint(part) for at, part in by_value(rows, about)}
            if about
            else {}
        ),
        repeated_keys=_repeated(rows, key) if key else 0,
    )


def by_value(rows: pa.Table, column: str) -> Iterator[tuple[Any, pa.Table]]:
    """The rows of each value of a column, in order; those without a value first."""
    for value in sorted(pc.unique(rows[column]).to_pylist(), key=lambda v: (v is not None, v)):
        is_value = (
            pc.is_null(rows[column])
            if value is None
            else pc.equal(rows[column], pa.scalar(value, rows[column].type))
        )
        yield value, rows.filter(is_value)


def _fingerprint(rows: pa.Table) -> str:
    hashes = rows[_HASH].to_numpy().astype(np.int64).view(np.uint64)
    high = int((hashes >> np.uint64(32)).sum())
    low = int((hashes & np.uint64(0xFFFFFFFF)).sum())
    return fingerprint(rows.num_rows, high, low)


def _total(values: pa.ChunkedArray) -> int:
    """The sum as a whole number. Raises what has Spark sum instead for a sum that is no number, and
    for a text that is none.
    """
    kind = values.type
    if not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return int(pc.sum(values.cast(pa.int64())).as_py() or 0)
    total = pc.sum(values).as_py() or 0
    if not isfinite(total):
        raise OverflowError(f"a measure comes to {total}")
    return round(total)


def _samples(values: pa.ChunkedArray) -> list[str]:
    distinct = sorted(
        {value for of_row in values.to_pylist() for value in of_row or () if value is not None}
    )
    return [shortened(value) for value in distinct[:SAMPLE_SIZE]]


def _repeated(rows: pa.Table, key: Sequence[str]) -> int:
    """How many keys stand more than once."""
    # Numbers for names: Arrow's own for the count, `count_all`, may be one of the key.
    columns = {str(n): _groupable(rows[name]) for n, name in enumerate(key)}
    counts = pa.table(columns).group_by(list(columns)).aggregate([([], "count_all")])["count_all"]
    return int(pc.sum(pc.greater(counts, 1)).as_py() or 0)


def _groupable(values: pa.ChunkedArray) -> Any:
    """Values by which Arrow groups as Spark does: -0.0 is 0.0, and lists and structs are compared
    by what they hold.
    """
    if pa.types.is_floating(values.type):
        return pc.add(values, pa.scalar(0.0, values.type))
    return (
        [repr(value) for value in values.to_pylist()] if pa.types.is_nested(values.type) else values
    )
