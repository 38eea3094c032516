"""The message of a build that failed, where there is room for one line: the rules, and what shows the rows that broke them."""

from datetime import date


def first_line(message: str) -> str:
    """The message without the rows that broke a rule."""
    return message.strip().partition("\n")[0]


def has_rows(message: str) -> bool:
    """Whether it names rows that broke a rule, each on a line of its own."""
    return "\n      {" in message


def rows_hint(table: str, day: date) -> str:
    """What to type to see them."""
    return f"; `backfill status --why {table} {day}` shows the rows"
