"""What `rules.no_leak` found in a step.

Whether a table leaks is a property of its code, so one day is enough: of the days computed together the one with most rows
(of several, the middle one) is computed once more. If its rows change, none of the days is committed.
"""

from collections.abc import Callable, Sequence
from datetime import date

from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.lake.session import without_code_generation
from backfill_assets.point_in_time.leaks import leaks
from backfill_assets.step.read import InputRows
from backfill_assets.step.rows import SMALL, Computed
from backfill_assets.tables.declaration import Table


def leaks_of_step(
    table: Table, days: Sequence[date], computed: Computed, read: Callable[[Sequence[date]], InputRows]
) -> list[str] | None:
    """Rows that change without what was known only after their cut; None for a table that does not promise it, and where no
    row has a cut."""
    cut = next((rule.cut for rule in table.rules if rule.cut), None)
    if computed.schema_mismatches or cut is None:
        return None
    day = F.col(table.partition_by)
    of_days = computed.after.where(F.col(cut.column).isNotNull()).groupBy(day.alias("day")).count().collect()
    if not of_days:
        return None
    most = max(row["count"] for row in of_days)
    candidates = sorted(row["day"] for row in of_days if row["count"] == most)
    chosen = candidates[len(candidates) // 2]
    inputs, rows = read([chosen]), computed.after.where(day == F.lit(chosen))
    with without_code_generation(rows.sparkSession, unless=inputs.size > SMALL):
        return leaks(table, inputs.rows, rows)
