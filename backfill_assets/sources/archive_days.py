"""The day that a row of an archive is of, as its column says, or the name of its file."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

from backfill_assets.sources.archive import Archive

DayOf = Callable[[Any], date | None]


def day_reader(archive: Archive, name: str) -> DayOf:
    """The day of a value of the column of the day in the archive of that name; None for one that is no time."""
    if not archive.day:
        day = archive.day_in(name)
        return lambda _: day

    @lru_cache(100_000)
    def of_text(text: str) -> date | None:
        if not archive.day_formats:
            with suppress(ValueError):
                return _in_utc(datetime.fromisoformat(text)) if len(text) > len("2019-08-15") else date.fromisoformat(text)
        for pattern in archive.day_formats:
            with suppress(ValueError):
                return _in_utc(datetime.strptime(text, pattern))
        return None

    def of_value(value: Any) -> date | None:
        if isinstance(value, datetime):
            return _in_utc(value)
        return value if isinstance(value, date) else of_text(value.strip()) if isinstance(value, str) else None

    return of_value


def _in_utc(time: datetime) -> date | None:
    """None at the ends of the calendar, where UTC has no day for it: 9999-12-31T23:59:59-05:00."""
    try:
        return (time.astimezone(UTC) if time.tzinfo else time).date()
    except OverflowError:
        return None
