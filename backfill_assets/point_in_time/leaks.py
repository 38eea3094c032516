"""Whether a table uses what nobody knew yet: it is computed once more without that, and nothing may change.

The rule `rules.no_leak` asks a step for it, and a test may ask for it by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.quality.profile import row_hash, shortened
from backfill_assets.quality.rule import Cut
from backfill_assets.tables.declaration import Table

ROWS_SHOWN, COLUMNS_SHOWN = 5, 5
HASH, SHOWN = "__hash", "__shown"


def leaks(table: Table, inputs: Mapping[str, DataFrame], rows: DataFrame | None = None) -> list[str]:
    """Up to five rows of a table with `rules.no_leak` that change without what was known only after their cut, in words.

    A test calls it with the table and its `inputs` by name; `rows` are what the table makes of them, if that is known. The
    median cut is taken for all rows: of the inputs only what was known before it is left, and the rows whose cut is not later
    must come out as they were. A row that is not there without the rest is passed over: that an example exists at all may be
    known later, as its outcome is. ValueError for a table without the rule.
    """
    cut = next((rule.cut for rule in table.rules if rule.cut), None)
    if cut is None:
        raise ValueError(f"{table.name} has no rule no_leak, which says what was known when")
    rows = table.compute(**inputs) if rows is None else rows
    (median,) = rows.select(F.percentile_approx(F.unix_micros(F.col(cut.column).cast("timestamp")), 0.5)).collect()[0]
    if median is None:
        return []
    time = F.timestamp_micros(F.lit(median))
    known = {
        name: frame.where(F.expr(sql).cast("timestamp") < time) if (sql := cut.known[name]) else frame
        for name, frame in inputs.items()
    }
    now = _hashed(rows.where(F.col(cut.column).cast("timestamp") <= time), table, cut)
    then = _hashed(table.compute(**known), table, cut).withColumnsRenamed({HASH: f"{HASH}_then", SHOWN: f"{SHOWN}_then"})
    changed = now.join(then, list(table.key)).where(F.col(HASH) != F.col(f"{HASH}_then"))
    return [_in_words(row, table.key) for row in changed.orderBy(*table.key).limit(ROWS_SHOWN).toArrow().to_pylist()]


def _hashed(rows: DataFrame, table: Table, cut: Cut) -> DataFrame:
    """The key of each row, and of the columns that are no outcome a hash and the values."""
    judged = rows.drop(*cut.outcomes)
    values = F.to_json(F.struct(*sorted(judged.columns)), {"ignoreNullFields": "false"})
    return judged.select(*table.key, row_hash(judged.schema).alias(HASH), values.alias(SHOWN))


def _in_words(row: Mapping[str, object], key: Sequence[str]) -> str:
    now, then = (json.loads(str(row[name])) for name in (SHOWN, f"{SHOWN}_then"))
    changed = [f"{name} {shortened(now[name])}, then {shortened(then[name])}" for name in now if now[name] != then[name]]
    more = [f"{len(changed) - COLUMNS_SHOWN} more columns"] if len(changed) > COLUMNS_SHOWN else []
    return f"{', '.join(str(row[name]) for name in key)}: {'; '.join(changed[:COLUMNS_SHOWN] + more)}"
