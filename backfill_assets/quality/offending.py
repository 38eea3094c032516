"""The rows that broke a rule, as they are shown: in messages, commits, the ledger and the event log."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.quality.profile import COUNT, shortened

ROWS_SHOWN = 5
COLUMNS_SHOWN = 60


def offending_rows(rows: DataFrame, *, day: str, on: date, key: Sequence[str], condition: str | None) -> list[str]:
    """Up to five rows of a day, as JSON, that satisfy `condition`; without one, rows whose key repeats."""
    offending = rows.where(F.col(day) == F.lit(on))
    if condition is None:
        of_key = F.count(F.lit(1)).over(Window.partitionBy(*key))  # as many as have the key, a null being a value
        offending = offending.withColumn(COUNT, of_key).where(F.col(COUNT) > 1).drop(COUNT).orderBy(*key)
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
