"""A line of CSV as Spark reads it where values hold no line feeds.

RFC 4180 does not say what a quote elsewhere means. Spark takes a value with more behind its closing quote as it stands, and one
whose quote nothing closes to the end of the line, never beyond.
"""

import csv
import re
from functools import cache


def cells_of(line: str, delimiter: str) -> list[str]:
    """The values of a line, as text."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader((line,), delimiter=delimiter, strict=True))
    except csv.Error:
        return _cells_otherwise(line, delimiter)


def _cells_otherwise(line: str, delimiter: str) -> list[str]:
    cells, at = list[str](), 0
    while True:
        match = _cell(delimiter).match(line, at)
        assert match, "any text is a cell"
        inner, behind = match["inner"], match["behind"]
        if inner or behind or match["closed"] is not None:
            text = inner.replace('""', '"')
            # Its parser adds a quote at the end of the line where one is the second character behind blanks.
            cells.append(f'"{text}"{behind}{match["again"] or ""}' if behind else text)
        else:
            cells.append(match[0])
        at = match.end() + 1
        if at > len(line):
            return cells


@cache
def _cell(delimiter: str) -> re.Pattern[str]:
    other = f"[^{re.escape(delimiter)}]"
    blank = f"(?:(?!{re.escape(delimiter)})[\\x00-\\x20])"
    added = f'(?:(?={blank}++[^"{re.escape(delimiter)}](?P<again>"){other}*$))?'
    end = f'"(?:(?P<closed>){blank}*(?={re.escape(delimiter)}|$)|{added}(?P<behind>{other}+))|$'
    return re.compile(f'"(?P<inner>(?:[^"]|"")*+)(?:{end})|{other}*', re.DOTALL)
