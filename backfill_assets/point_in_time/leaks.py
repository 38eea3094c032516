"""Whether a table uses what nobody knew yet: it is computed once more without that, and nothing may
change.

The rule `rules.no_leak` asks a step for it, and a test may ask for it by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.quality.profile import row_hash, shortened
from backfill_assets.quality.rule import Cut
from backfill_assets.tables.declaration import Table

ROWS_SHOWN = 5
COLUMNS_SHOWN = 5
_CUT = "__cut"
HASH = "__hash"
SHOWN = "__shown"
THEN = "__then"


def leaks(
    table: Table, inputs: Mapping[str, DataFrame], rows: DataFrame | None = None
) -> list[str]:
    """Up to five rows of a table with `rules.no_leak` that change without what was known only after
    their cut, in words.

    A test calls it with the table and its `inputs` by name; `rows` are what the table makes of
    them, if that is known. The median cut is taken for all rows: of the inputs only what was known
    before it is left, and the rows whose cut is not later must come out as they were. A row that is
    not there without the rest is passed over: that an example exists at all may be known later, as
    its outcome is. One that is there without the rest only is a leak: examples are left out for
    what came of them. A row is compared without all that came after its own cut only where that is
    the median: of a look into the next minutes no row may show anything (of the sample, one of half
    an hour shows on each day, one of five minutes on none of six). ValueError for a table without
    the rule, and without a row that has a cut: nothing could be compared.
    """
    cut = next((rule.cut for rule in table.rules if rule.cut), None)
    if cut is None:
        raise ValueError(f"{table.name} has no rule no_leak, which says what was known when")
    rows = table.compute(**inputs) if rows is None else rows
    (median,) = rows.select(
        F.percentile_approx(F.unix_micros(F.col(cut.column).cast("timestamp")), 0.5)
    ).collect()[0]
    if median is None:
        raise ValueError(
            f"{table.name}: no row has a time in {cut.column}: there is nothing to compare"
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
    both = then.withColumnsRenamed({name: f"{name}{THEN}" for name in then.columns}).join(
        now, _same(table.key), "left"
    )
    differs = F.col(HASH).isNull() | (F.col(HASH) != F.col(f"{HASH}{THEN}"))
    early = (F.col(_CUT) <= time) | (F.col(f"{_CUT}{THEN}") <= time)
    changed = both.where(differs & F.coalesce(early, F.lit(False))).drop(*table.key)
    return [
        _in_words(row, table.key)
        for row in changed.orderBy(*_then(table.key)).limit(ROWS_SHOWN).toArrow().to_pylist()
    ]


def _then(names: Sequence[str]) -> list[str]:
    return [f"{name}{THEN}" for name in names]


def _same(key: Sequence[str]) -> Column:
    """Whether rows have the same key: null is one, too."""
    return reduce(
        and_,
        [F.col(name).eqNullSafe(F.col(then)) for name, then in zip(key, _then(key), strict=True)],
    )


def _hashed(rows: DataFrame, table: Table, cut: Cut) -> DataFrame:
    """The key of each row and its cut, and of the columns that are no outcome a hash and the
    values.
    """
    judged = rows.drop(*cut.outcomes)
    time = F.col(cut.column).cast("timestamp").alias(_CUT)
    values = F.to_json(F.struct(*sorted(judged.columns)), {"ignoreNullFields": "false"})
    return judged.select(*table.key, time, row_hash(judged.schema).alias(HASH), values.alias(SHOWN))


def _in_words(row: Mapping[str, object], key: Sequence[str]) -> str:
    of_row = ", ".join(str(row[name]) for name in _then(key))
    if row[SHOWN] is None:
        return f"{of_row}: left out, then there"
    now, then = (json.loads(str(row[name])) for name in (SHOWN, f"{SHOWN}{THEN}"))
    changed = [
        f"{name} {shortened(now[name])}, then {shortened(then[name])}"
        for name in now
        if now[name] != then[name]
    ]
    more = [f"{len(changed) - COLUMNS_SHOWN} more columns"] if len(changed) > COLUMNS_SHOWN else []
    return f"{of_row}: {'; '.join(changed[:COLUMNS_SHOWN] + more)}"
