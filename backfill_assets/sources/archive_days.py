"""The day that a row of an archive is of, as its column says."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from backfill_assets.sources.archive import Archive

DayOf = Callable[[Any], date | None]


def day_reader(archive: Archive) -> DayOf:
    """The day of a value, None for one that is no time."""

    @lru_cache(100_000)
    def of_text(text: str) -> date | None:
        if not archive.day_formats:
            try:
                return _in_utc(datetime.fromisoformat(text)) if len(text) > len("2019-08-15") else date.fromisoformat(text)
            except ValueError:
                return None
        for pattern in archive.day_formats:
            try:
                return _in_utc(datetime.strptime(text, pattern))
            except ValueError:
                continue
        return None

    def of_value(value: Any) -> date | None:
        if isinstance(value, datetime):
            return _in_utc(value)
        return value if isinstance(value, date) else of_text(value.strip()) if isinstance(value, str) else None

    return of_value


def _in_utc(time: datetime) -> date:
    return (time.astimezone(UTC) if time.tzinfo else time).date()
