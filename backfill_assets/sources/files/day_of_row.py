"""The day of a row, from a value of its file."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

DayReader = Callable[[Any], date | None]


def day_reader(formats: Sequence[str], zone: str) -> DayReader:
    """Return a function that reads the day of a value, or None.

    The value is a date, a time, or a text in one of these `formats` of Python's strptime. Without
    formats it is in ISO 8601. A time with an offset belongs to its day in `zone`.
    """

    in_zone = ZoneInfo(zone)

    def day_of_time(time: datetime) -> date | None:
        with suppress(OverflowError):  # outside the calendar: 9999-12-31T23:59:59-05:00
            return (time.astimezone(in_zone) if time.tzinfo else time).date()
        return None

    @lru_cache(100_000)
    def of_text(text: str) -> date | None:
        if not formats:
            with suppress(ValueError):
                return (
                    day_of_time(datetime.fromisoformat(text))
                    if len(text) > len("2019-08-15")
                    else date.fromisoformat(text)
                )
        for pattern in formats:
            with suppress(ValueError):
                return day_of_time(datetime.strptime(text, pattern))
        return None

    def of_value(value: Any) -> date | None:
        if isinstance(value, datetime):
            return day_of_time(value)
        if isinstance(value, date):
            return value
        return of_text(value.strip()) if isinstance(value, str) else None

    return of_value
