"""Messages of builds and steps that failed, where there is room for one line: the rules, and what shows the rows that broke
them."""

from datetime import date
from itertools import takewhile


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
