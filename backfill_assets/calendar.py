"""The one calendar: which days exist.

A day is a date, written YYYY-MM-DD, and one partition of every table. It is what clocks show in the
zone of the calendar, UTC by default: where clocks change, a day has 23 or 25 hours. The calendar
runs from its first day to its last; without a fixed last day it grows, and its last day is
yesterday.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from time import time
from zoneinfo import ZoneInfo, available_timezones

from backfill_assets.errors import UsageError
from backfill_assets.no_day import STORED, WHOLE, in_words

# Gives the days of the window around a day, as ordinals.
ClippedWindow = Callable[[date], range]

Partition = tuple[str, date]  # (table, day)
# Such as the reason of each partition.
TextByPartition = Mapping[Partition, str]
# The number of newest days; all days if it is larger than the calendar.
_MONTH = re.compile(r"\d{4}-\d\d", re.ASCII)
# `last 7`, `all`, `A..` and `..B`
_BY_CALENDAR = re.compile(r"last|all|\.\.\s*(,|$)|(^|,)\s*\.\.")
LAST_DAYS = re.compile(r"last\s+0*([1-9]\d{0,8})", re.ASCII)
# The one partition of a table without days. Every program can store it, and no table begins so
# early.
NO_DAY = date.fromisoformat(STORED)
# More days than a calendar has.
EVERY_DAY = date.max.toordinal()


UTC = "UTC"
# It looks for the files of all zones.
_zones = cache(available_timezones)


def known_zone(name: str) -> str:
    """Return the name of a time zone, or "". Raise ValueError, with similar names, for others."""
    # The zone of a machine is not the same everywhere.
    zones = _zones() - {"localtime"} if name else {""}
    if name not in zones:
        similar = ", ".join(get_close_matches(name, sorted(zones)))
        raise ValueError(f"it is not a time zone{similar and f' (similar: {similar})'}")
    return name


def day_at(seconds: float, zone: str) -> date:
    """Return the day in a zone at a time in seconds since 1970."""
    return datetime.fromtimestamp(seconds, ZoneInfo(zone)).date()


@dataclass(frozen=True)
class Calendar:
    """The days from `first` to `fixed_last`, or to yesterday if no last day is fixed.

    Yesterday is the day before `today`, by default the present day in `zone`.
    """

    first: date
    fixed_last: date | None = None
    today: Callable[[], date] | None = field(default=None, compare=False)
    zone: str = UTC

    @property
    def last(self) -> date:
        today = self.today() if self.today else day_at(time(), self.zone)
        return self.fixed_last or today - timedelta(days=1)

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last or day == NO_DAY

    def days(self) -> list[date]:
        return list(between(self.first, self.last))

    def clip(self, days: Iterable[date]) -> list[date]:
        """The days of the calendar among `days`, in their order."""
        first = self.first
        last = self.last
        return [day for day in days if first <= day <= last]

    def window(self, first: int, last: int) -> ClippedWindow:
        """The offsets `first` to `last`, clipped to the calendar.

        The end of the calendar is fixed at the time of the call. Any window of a table without days
        is its one partition.
        """
        lowest = self.first.toordinal()
        highest = self.last.toordinal()
        if self.fixed_last == NO_DAY:
            first = -EVERY_DAY
            last = EVERY_DAY

        def clipped(day: date) -> range:
            start = day.toordinal() + first
            end = day.toordinal() + last
            return range(
                start if start > lowest else lowest, (end if end < highest else highest) + 1
            )

        return clipped

    def select(self, text: str) -> list[date]:
        """The days that `text` names: `A`, `A..B`, `A..`, `..B`, `A,B,C..D`, `last 7` or `all`.

        A day may be a month, such as `2019-09`: its days in the calendar. Raises UsageError for
        anything else, a reversed range, or a day outside the calendar.
        """
        days = self.named(text)
        outside = [day for day in days if day not in self]
        if outside:
            raise UsageError(
                f"{outside[0]} is outside the calendar, which runs from {self.first} to"
                f" {self.last}.",
                unchanged="Nothing was done.",
                next_step=("Name days within it, or set BACKFILL_FIRST_DAY and BACKFILL_LAST_DAY."),
            )
        return days

    def named(self, text: str) -> list[date]:
        """The days that `text` names, also those outside the calendar. Otherwise as `select`."""
        parts = (piece.strip() for piece in text.split(","))
        return sorted({day for part in parts for day in self._part(part)})

    def _part(self, part: str) -> Iterable[date]:
        if newest := LAST_DAYS.fullmatch(part):
            oldest = max(self.first.toordinal(), self.last.toordinal() - int(newest[1]) + 1)
            return between(date.fromordinal(oldest), self.last)
        first, dots, last = (".." if part == "all" else part).partition("..")
        start, end = self._span(first) if first or not dots else (self.first, self.last)
        if last:
            earliest, end = self._span(last)
            start = start if first else min(start, earliest)
        elif dots:
            end = max(self.last, start)
        if end < start:
            raise UsageError(
                f"The range {part} is reversed: it ends before it begins.",
                unchanged="Nothing was done.",
                next_step=f"Type {end}..{start}.",
            )
        return between(start, end)

    def _span(self, text: str) -> tuple[date, date]:
        """The first and last day of a day or a month, cut to the calendar.

        A month outside the calendar is not cut.
        """
        if not _MONTH.fullmatch(text.strip()):
            return (day := as_day(text)), day
        first = as_day(f"{text.strip()}-01")
        last = first.replace(day=monthrange(first.year, first.month)[1])
        within = max(first, self.first), min(last, self.last)
        return within if within[0] <= within[1] else (first, last)


def without_no_day(days: Iterable[date]) -> list[date]:
    """The days in order without `NO_DAY`, or only that if there is no other."""
    return sorted({*days} - {NO_DAY}) or [NO_DAY]


def fixed_days(text: str) -> list[date]:
    """The days that `text` names in any calendar, such as `2019-01-01..2019-06-30`.

    Raises UsageError for `last 7`, `all` and open ranges, which need a calendar.
    """
    if _BY_CALENDAR.search(text):
        raise UsageError(
            f"{text!r} has another meaning every day, or in another calendar.",
            unchanged="Nothing was done.",
            next_step="Name the days: 2019-09-01..2019-09-07.",
        )
    return Calendar(date.min, date.max).select(text) if text else []


def as_day(text: str) -> date:
    """The day written as `text`, `NO_DAY` for `whole`. Raises UsageError if it is not one."""
    typed = text.strip()
    if typed == WHOLE:
        return NO_DAY
    try:
        day = datetime.strptime(typed, "%Y-%m-%d").date()
    except ValueError:
        raise UsageError(
            f"{typed!r} is not a day. Write days as YYYY-MM-DD, for example"
            " 2019-09-03, and ranges as 2019-09-01..2019-09-07.",
            unchanged="Nothing was done.",
        ) from None
    if str(day) != typed:
        raise UsageError(
            f"{typed!r} is not written as YYYY-MM-DD.",
            unchanged="Nothing was done.",
            next_step=f"Write it as {day}.",
        )
    return day


def refuse_no_day(argument: str, value: object) -> None:
    """Raise ValueError unless the value is a date or None. A datetime is not a date here."""
    if value is not None and type(value) is not date:
        raise ValueError(f"{argument}={value!r} is not a day: write date(2024, 6, 1)")


def between(first: date, last: date) -> Iterable[date]:
    """Every day from `first` to `last`, both included."""
    return (first + timedelta(days=n) for n in range((last - first).days + 1))


def days_around(day: date, first: int, last: int) -> list[date]:
    """The days from `first` to `last` days after `day`. Negative offsets are days before it."""
    return [date.fromordinal(n) for n in _ordinals(day.toordinal() + first, day.toordinal() + last)]


def days_around_any(days: Iterable[date], first: int, last: int) -> list[date]:
    """The days from `first` to `last` days after any of `days`, each once, in order."""
    ordinals: list[int] = []
    for ordinal in sorted(day.toordinal() for day in days):
        start = ordinal + first
        ordinals += _ordinals(max(start, ordinals[-1] + 1) if ordinals else start, ordinal + last)
    return [date.fromordinal(n) for n in ordinals]


def _ordinals(first: int, last: int) -> range:
    """The ordinals from `first` to `last` that are valid dates. A window may be wider than that."""
    return range(max(first, date.min.toordinal()), min(last, date.max.toordinal()) + 1)


def consecutive(days: Iterable[date]) -> list[list[date]]:
    """`days` in order, as lists of consecutive days."""
    spans: list[list[date]] = []
    for day in sorted(set(days)):
        if spans and day - spans[-1][-1] == timedelta(days=1):
            spans[-1].append(day)
        else:
            spans.append([day])
    return spans


def days_as_typed(days: Iterable[date]) -> str:
    """Days as `--partitions` takes them: `A..B,C`."""
    return ranges(days).replace(", ", ",")


def ranges(days: Iterable[date]) -> str:
    """Days as text: `A..B, C`."""
    return ", ".join(
        in_words(span[0]) if len(span) == 1 else f"{span[0]}..{span[-1]}"
        for span in consecutive(days)
    )
