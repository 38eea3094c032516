"""Messages of builds and steps that failed, where there is room for one line: the rules, and what shows the rows that broke
them."""

from datetime import date
from itertools import takewhile

from backfill_assets.calendar import Calendar
from backfill_assets.errors import SourceError
from backfill_assets.lake.record import Build
from backfill_assets.named import named
from backfill_assets.step.delivered import Delivered
from backfill_assets.step.inputs import Change
from backfill_assets.tables.declaration import Table

# Said of an input that a day was built from, and that it would not be built from now.
OUTSIDE = "is outside the calendar now"


def first_line(message: str) -> str:
    """The message without the rows that broke a rule."""
    return message.strip().partition("\n")[0]


def has_rows(message: str) -> bool:
    """Whether it names rows that broke a rule, each on a line of its own."""
    return "\n      {" in message


def rows_hint(table: str, day: date) -> str:
    """What to type to see them."""
    return f"; `backfill status --why {table} {day}` shows the rows"


def of_day(message: str, day: date) -> str:
    """What the message of a failed step, which names its days a line each, says of one of them; all of it, if it names none."""
    lines, beginning = message.splitlines(), f"  {day}: "
    named = next((number for number, line in enumerate(lines) if line.startswith(beginning)), None)
    if named is None:
        return message
    rows = takewhile(lambda line: line.startswith("      "), lines[named + 1 :])
    return "\n".join([lines[named].removeprefix(beginning), *rows])


def other_files(failed: Build, delivery: Delivered) -> str:
    """What to say of a day that failed with other files than lie there now: its message is about those."""
    changed = not isinstance(delivery, SourceError) and delivery.fingerprint != failed.delivered
    return "; other files, or other contents, are there since" if changed else ""


def not_read(delivery: Delivered) -> str:
    """What to say of a day beside whose files others lie, or whose files have columns that nobody declared: somebody may have
    meant them to be read."""
    if isinstance(delivery, SourceError):
        return ""
    unread = delivery.unread
    columns = [f"columns that are not declared: {', '.join(delivery.undeclared)}"] if delivery.undeclared else []
    overlap = [delivery.overlap] if delivery.overlap else []
    return "; ".join([*([f"not read: {named(unread, 1)}"] if unread else []), *columns, *overlap])


def other_inputs(table: Table, build: Build) -> str:
    """Which tables are read now and were not when `build` was made, and which no longer are; "" if they are the same."""
    now, before = {other.name for other, _ in table.windows()}, build.inputs.keys()
    if not before or now == before:  # of a table that is made from a source alone
        return ""
    came, went = ", ".join(sorted(now - before)), ", ".join(sorted(before - now))
    return " and ".join([*([f"reads {came} now"] if came else []), *([f"no longer reads {went}"] if went else [])])


def input_changed(changed: Change, day: date, calendar: Calendar) -> str:
    """What has changed since `day` was built: an input, or the calendar, which may have become shorter."""
    read = date.fromisoformat(changed.day)
    first = read < calendar.first
    if read in calendar:
        return f"{changed.table} {changed.day} has changed since {day} was built"
    return (
        f"{changed.table} {changed.day} {OUTSIDE}, which {'begins' if first else 'ends'} "
        f"{calendar.first if first else calendar.last}: built again, {day} has nothing of it"
    )
