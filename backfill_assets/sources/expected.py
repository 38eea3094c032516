"""The days on which something is due: what `expected=` of a table or a source takes.

    expected.weekdays("mon-fri") & expected.but_not([date(2024, 12, 25)])

It also takes a function of your own, from a day to True or False. A day that is not expected is
closed. Calendars are no part of the code version: if one changes, only the days that it opens or
closes are built again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path

from backfill_assets.calendar import as_day, refuse_no_day
from backfill_assets.errors import UsageError

_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# Sessions of exchanges are looked up from here on.
_FIRST_SESSION = "1990-01-01"


@dataclass(frozen=True)
class ExpectedDays:
    """The days for which `is_expected` is True. `a & b` are the days that both expect."""

    is_expected: Callable[[date], bool]

    def __call__(self, day: date) -> bool:
        return self.is_expected(day)

    def __and__(self, other: Callable[[date], bool]) -> "ExpectedDays":
        return ExpectedDays(lambda day: self(day) and other(day))


def weekdays(names: str) -> ExpectedDays:
    """Expect these days of the week: "mon-fri", "mon,thu", "sat-mon".

    Raises ValueError for anything else.
    """
    open_days = set[int]()
    for part in names.lower().split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        last = last if dash else first
        if first not in _NAMES or last not in _NAMES:
            raise ValueError(f"weekdays({names!r}): write mon-fri, or mon,thu")
        start = _NAMES.index(first)
        number = (_NAMES.index(last) - start) % 7 + 1
        open_days.update((start + n) % 7 for n in range(number))
    return ExpectedDays(lambda day: day.weekday() in open_days)


def but_not(days: Iterable[date]) -> ExpectedDays:
    """Expect every day but these. Raises ValueError for a value that is not a date."""
    closed = frozenset(days)
    for day in closed:
        refuse_no_day("but_not", day)
    return ExpectedDays(lambda day: day not in closed)


def holidays(file: str | Path) -> ExpectedDays:
    """Expect every day but those in a text file, one a line: `2024-12-25 Christmas`.

    The file is read now. Empty lines and lines that begin with # are left out. A file next to your
    module is `Path(__file__).with_name("holidays.txt")`. Raises ValueError if the file cannot be
    read, or a line does not begin with a day.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        written = [line for line in lines if line.strip() and not line.startswith("#")]
        return but_not([as_day(line[:10]) for line in written])
    except (OSError, UnicodeDecodeError, UsageError) as error:
        raise ValueError(f"holidays({str(file)!r}): {error}") from None


def exchange(name: str) -> ExpectedDays:
    """Expect the sessions of an exchange: "XNYS". Needs `backfill-assets[calendars]`.

    Days before 1990, and days whose sessions are not known yet, are expected. Raises ValueError for
    an unknown exchange, or if the package is not installed.
    """
    try:
        from exchange_calendars import get_calendar_names
    except ImportError:
        raise ValueError(
            f"exchange({name!r}) needs a package: pip install 'backfill-assets[calendars]'"
        ) from None
    if name not in get_calendar_names():
        raise ValueError(f"exchange({name!r}): exchange_calendars has no exchange of this name")
    return ExpectedDays(_Sessions(name))


@dataclass(frozen=True)
class _Sessions:
    """The sessions of an exchange. They are computed at the first question."""

    name: str

    def __call__(self, day: date) -> bool:
        first, last, sessions = self._sessions
        return day in sessions or not first <= day <= last

    @cached_property
    def _sessions(self) -> tuple[date, date, frozenset[date]]:
        from exchange_calendars import get_calendar

        earliest = get_calendar(self.name).bound_min()
        start = max(_FIRST_SESSION, str(earliest.date()) if earliest else "")
        days = [day.date() for day in get_calendar(self.name, start=start).sessions]
        return days[0], days[-1], frozenset(days)
