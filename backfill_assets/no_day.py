"""The one partition of a table without days: it is stored as a day, and shown as `whole`."""

import re
from typing import Any

WHOLE = "whole"
STORED = "1700-01-01"
# What is in quotes is a value of a row, and stays. So do names of files.
_TEXT = rf"(%s)(?:\\\1|.)*?(?:\1|…)|(?<![=/\w-]){STORED}(?![\w/-])"
# Where values for programs have values of rows.
_ROWS = re.compile(r"\.(first|key|row|values?|frequent|before|after|versions\.rows)$")


def in_words(value: object, quote: str = '"') -> str:
    """Return the text of a value, as people are shown it. Values in quotes stay."""
    return re.sub(_TEXT % quote, lambda found: found[0] if found[1] else WHOLE, str(value))


def values_in_words(value: Any, place: str = "") -> Any:
    """Return a value of JSON, as programs are shown it. Values of rows stay."""
    if _ROWS.search(place):
        return value
    if isinstance(value, dict):
        return {in_words(k): values_in_words(of, f"{place}.{k}") for k, of in value.items()}
    if isinstance(value, list):
        return [values_in_words(of, place) for of in value]
    return in_words(value) if isinstance(value, str) else value
