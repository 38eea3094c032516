"""A slice: the days of one table that one step reads or replaces, as SQL."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

from backfill_assets.calendar import consecutive


def condition(column: str, days: Iterable[date]) -> str:
    """The rows of exactly these days; no days, no rows.

    Half-open ranges, because Delta's replaceWhere fails on BETWEEN with this Spark, and long IN lists plan slowly.
    """
    ranges = [
        f"({column} >= DATE'{island[0]}' AND {column} < DATE'{island[-1] + timedelta(days=1)}')" for island in consecutive(days)
    ]
    return " OR ".join(ranges) or "false"
