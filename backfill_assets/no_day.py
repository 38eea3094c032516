"""The one partition of a table without days: it is stored as a day, and shown as `whole`."""

import re

WHOLE = "whole"
STORED = "1700-01-01"
# Values of rows are in quotes, and stay. So are days and keys in JSON.
_SHOWN = re.compile(
    rf'(?<!"){STORED}|{STORED}(?!\\?"(?!:))|((?<="day": ")|(?<="day", "value": ")|(?<=\[")){STORED}'
)


def in_words(value: object) -> str:
    """Return the text of a value, as people and programs are shown it."""
    return _SHOWN.sub(WHOLE, str(value))
