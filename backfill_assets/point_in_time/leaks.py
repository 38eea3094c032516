"""Find leaks: a table is computed again without later rows, and nothing may change.

A step does this for the rule `rules.no_leak`. A test can do it with `leaks`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.quality.masking import masked_row
from backfill_assets.quality.profile import row_hash, shortened
from backfill_assets.quality.rule import Cut
from backfill_assets.tables.declaration import Table

_ROWS_SHOWN = 5
_COLUMNS_SHOWN = 5
_CUT = "__cut"
_HASH = "__hash"
_SHOWN = "__shown"
_THEN = "__then"


def leaks(
    table: Table, inputs: Mapping[str, DataFrame], rows: DataFrame | None = None
) -> list[str]:
    """Up to five rows, as text, that change without the values known only after their cut.

    `table` has the rule `rules.no_leak`, `inputs` are its inputs by name, and `rows` the rows that
    the table computes from them, if they are known already.

    The median cut is used for all rows. Only input rows known before it remain, and the rows with a
    cut up to it must come out unchanged. A row that is missing then is not a leak: the existence of
    an example may be known later, as its outcome is. An additional row is a leak: examples were
    left out because of their outcome. Because of the median, a look ahead by a few minutes may not
    show on any row (in the sample, a look ahead by half an hour shows on each day, one by five
    minutes on none of six).

    Raises ValueError for a table without the rule, and without a row that has a cut.
    """
    cut = next((rule.cut for rule in table.rules if rule.cut), None)
    if cut is None:
        raise ValueError(f"{table.name} has no rule no_leak, which declares the cut.")
    rows = table.compute(**inputs) if rows is None else rows
    (median,) = rows.select(
        F.percentile_approx(F.unix_micros(F.col(cut.column).cast("timestamp")), 0.5)
    ).collect()[0]
    if median is None:
        raise ValueError(
            f"{table.name}: no row has a time in {cut.column}, so there is nothing to compare."
        )
    time = F.timestamp_micros(F.lit(median))
    known = {
        name: (
            frame.where(F.expr(sql).cast("timestamp") < time) if (sql := cut.known[name]) else frame
        )
        for name, frame in inputs.items()
    }
    now = _hashed(rows, table, cut)
    then = _hashed(table.compute(**known), table, cut)
    both = then.toDF(*_then([*table.key, _CUT, _HASH, _SHOWN])).join(now, _same(table.key), "left")
    differs = F.col(_HASH).isNull() | (F.col(_HASH) != F.col(f"{_HASH}{_THEN}"))
    early = (F.col(_CUT) <= time) | (F.col(f"{_CUT}{_THEN}") <= time)
    changed = both.where(differs & F.coalesce(early, F.lit(False))).drop(*table.key)
    return [
        _in_words(row, table)
        for row in changed.orderBy(*_then(table.key)).limit(_ROWS_SHOWN).toArrow().to_pylist()
    ]


def _then(names: Sequence[str]) -> list[str]:
    return [f"{name}{_THEN}" for name in names]


def _same(key: Sequence[str]) -> Column:
    """True if rows have the same key. Null is a value."""
    return reduce(
        and_,
        [F.col(name).eqNullSafe(F.col(then)) for name, then in zip(key, _then(key), strict=True)],
    )


def _hashed(rows: DataFrame, table: Table, cut: Cut) -> DataFrame:
    """The key and the cut of each row, and a hash and the values of its other columns.

    Outcomes are left out.
    """
    judged = rows.drop(*cut.outcomes)
    time = F.col(cut.column).cast("timestamp").alias(_CUT)
    values = F.to_json(F.struct(*sorted(judged.columns)), {"ignoreNullFields": "false"})
    return judged.select(
        *table.key, time, row_hash(judged.schema).alias(_HASH), values.alias(_SHOWN)
    )


def _in_words(row: Mapping[str, object], table: Table) -> str:
    key = masked_row({name: row[f"{name}{_THEN}"] for name in table.key}, table.masked_columns)
    of_row = ", ".join(map(str, key.values()))
    if row[_SHOWN] is None:
        return f"{of_row}: left out, then there"
    now, then = (json.loads(str(row[name])) for name in (_SHOWN, f"{_SHOWN}{_THEN}"))
    shown_now, shown_then = (masked_row(values, table.masked_columns) for values in (now, then))
    changed = [
        f"{name} {shortened(shown_now[name])}, then {shortened(shown_then[name])}"
        for name in now
        if now[name] != then[name]
    ]
    more = (
        [f"{len(changed) - _COLUMNS_SHOWN} more columns"] if len(changed) > _COLUMNS_SHOWN else []
    )
    return f"{of_row}: {'; '.join(changed[:_COLUMNS_SHOWN] + more)}"
