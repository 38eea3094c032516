"""The days on which something is due, for `expected=` of a table or a source.

    expected.all_of(expected.weekdays("mon-fri"), expected.but_not([date(2024, 12, 25)]))

These functions return a function from a day to True or False. Your own function works too. A day
that is not expected is closed. Calendars are not part of the code version: if one changes, only the
days that it opens or closes are built again.
"""

from collections.abc import Iterable
from datetime import date
from functools import cache
from pathlib import Path

from backfill_assets.calendar import as_day, refuse_no_day
from backfill_assets.errors import UsageError
from backfill_assets.sources.protocol import Expected

_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# Sessions of exchanges are looked up from this day on.
_FIRST_SESSION = "1990-01-01"


def all_of(*calendars: Expected) -> Expected:
    """Expect the days that each of these expects."""
    return lambda day: all(is_expected(day) for is_expected in calendars)


def weekdays(names: str) -> Expected:
    """Expect these days of the week: "mon-fri", "mon,thu", "sat-mon".

    Raises ValueError for other texts.
    """
    open_days = set[int]()
    for part in names.lower().split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        last = last if dash else first
        if not {first, last} <= {*_NAMES}:
            raise ValueError(f"weekdays({names!r}): write mon-fri, or mon,thu")
        start = _NAMES.index(first)
        number = (_NAMES.index(last) - start) % 7 + 1
        open_days.update((start + n) % 7 for n in range(number))
    return lambda day: day.weekday() in open_days


def but_not(days: Iterable[date]) -> Expected:
    """Expect every day but these. Raises ValueError for a value that is not a date."""
    closed = frozenset(days)
    for day in closed:
        refuse_no_day("but_not", day)
    return lambda day: day not in closed


def holidays(file: str | Path) -> Expected:
    """Expect every day but those in a text file, one per line: `2024-12-25 Christmas`.

    The file is read now. Empty lines and lines that begin with # are left out. A file next to your
    module is `Path(__file__).with_name("holidays.txt")`. Raises ValueError if the file cannot be
    read, or a line does not begin with a day.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
        written = [line for line in lines if line.strip() and not line.startswith("#")]
        return but_not(as_day(line[:10]) for line in written)
    except (OSError, UnicodeDecodeError, UsageError) as error:
        raise ValueError(f"holidays({str(file)!r}): {error}") from None


def exchange(name: str) -> Expected:
    """Expect the sessions of an exchange: "XNYS". Needs `backfill-assets[calendars]`.

    Days before 1990, and days whose sessions are not known yet, are expected. Raises ValueError for
    an unknown exchange, or if the package is not installed.
    """
    try:
        from exchange_calendars import get_calendar, get_calendar_names
    except ImportError:
        raise ValueError(
            f"exchange({name!r}) needs a package: pip install 'backfill-assets[calendars]'"
        ) from None
    if name not in get_calendar_names():
        raise ValueError(f"exchange({name!r}): exchange_calendars has no exchange of this name")

    @cache
    def sessions() -> dict[date, None]:
        earliest = get_calendar(name).bound_min()
        start = max(_FIRST_SESSION, str(earliest.date()) if earliest else "")
        found = get_calendar(name, start=start).sessions
        return dict.fromkeys(day.date() for day in found)

    def is_expected(day: date) -> bool:
        known = sessions()
        return day in known or not next(iter(known)) <= day <= next(reversed(known))

    return is_expected
