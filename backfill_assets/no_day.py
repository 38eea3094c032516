"""How the one partition of a table without days is written: stored as a day, shown as `whole`."""

import re

WHOLE = "whole"
STORED = "1700-01-01"
# Not a value in quotes: that is of a row. A key of JSON is in quotes too.
_SHOWN = re.compile(rf'(?<!"){STORED}|{STORED}(?!\\?"(?!:))')


def in_words(value: object) -> str:
    """Return the text of a value, as people and programs are shown it."""
    return _SHOWN.sub(WHOLE, str(value))
