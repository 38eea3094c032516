"""The profile of rows that fit into this process, without a Spark job of its own.

Spark computes extra columns of the rows for what only Spark can do: the hash of each row, and the
SQL of measures and samples. The rows arrive as one Arrow table, and are counted, summed and grouped
here. A small slice spends most of its time on planning and starting Spark jobs. This module needs
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
    """Add the columns that `small_profiles` reads."""
    return rows.select(
        "*",
        row_hash(rows.schema).alias(_HASH),
        *[F.expr(sql).alias(f"{_MEASURE}{n}") for n, sql in enumerate(measures.values())],
        *[F.expr(sql).cast(TEXTS).alias(f"{_SAMPLE}{n}") for n, sql in enumerate(samples.values())],
    )


def without_figures(rows: pa.Table) -> pa.Table:
    """Remove the columns that `with_figures` added."""
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
    """The profile of each day that has rows, from the rows of `with_figures`.

    Repeated keys are counted if there is a `key`.
    """
    columns = [name for name in without_figures(rows).column_names if name != day]
    return {
        at: DayProfile(
            at,
            rows=of_day.num_rows,
            fingerprint=_fingerprint(of_day),
            nulls={name: of_day[name].null_count for name in columns},
            measures={name: _total(of_day[f"{_MEASURE}{n}"]) for n, name in enumerate(measures)},
            samples={
                name: values
                for n, name in enumerate(samples)
                if (values := _samples(of_day[f"{_SAMPLE}{n}"]))
            },
            day_fingerprints=(
                {str(on or ""): _fingerprint(part) for on, part in _by_value(of_day, about)}
                if about
                else {}
            ),
            repeated_keys=_repeated(of_day, key) if key else 0,
        )
        for at, of_day in _by_value(rows, day)
        if at
    }


def _by_value(rows: pa.Table, column: str) -> Iterator[tuple[Any, pa.Table]]:
    """The rows of each value of a column, in order. Nulls are first."""
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
    """The sum as a whole number.

    Raises OverflowError for an infinite sum and ArrowInvalid for a text that is not a number. The
    caller then lets Spark compute the profile.
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
    """The number of repeated keys."""
    # Arrow's name for the count, `count_all`, may be a column of the key. So columns are named by
    # numbers.
    columns = {str(n): _groupable(rows[name]) for n, name in enumerate(key)}
    counts = pa.table(columns).group_by(list(columns)).aggregate([([], "count_all")])["count_all"]
    return int(pc.sum(pc.greater(counts, 1)).as_py() or 0)


def _groupable(values: pa.ChunkedArray) -> Any:
    """Values that Arrow groups as Spark does: -0.0 is 0.0, and lists are equal by their items."""
    if pa.types.is_floating(values.type):
        return pc.add(values, pa.scalar(0.0, values.type))
    return list(map(repr, values.to_pylist())) if pa.types.is_nested(values.type) else values
