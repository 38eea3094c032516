"""Rows with every kind of value that a hash of rows could confuse: nulls beside values, in maps, in lists, nested."""

from collections.abc import Hashable, Sequence
from datetime import date, timedelta
from itertools import product
from typing import Any

Row = tuple[Any, ...]
Values = tuple[Any, ...]

COLUMNS = (
    "day DATE, about STRING, s STRING, t STRING, n BIGINT, m MAP<STRING, STRING>, a ARRAY<STRING>, "
    "o STRUCT<q: STRING, r: STRING>, deep ARRAY<MAP<STRING, STRING>>, wide MAP<STRING, STRUCT<q: STRING, r: STRING>>"
)
TEXTS = (None, "", "a")
MAPS: Values = (
    None,
    {},
    {"a": None},
    {"a": ""},
    {"": "a"},
    {"a": "x", "b": "y"},
    {"b": "y", "a": "x"},
    {"a": "y", "b": "x"},
)
LISTS: Values = (None, [], [None], [""], [None, None], [None, "a"], ["a", None], ["[null]"])
STRUCTS: Values = (None, (None, None), ("a", None), (None, "a"), ("", None))
DEEP: Values = (
    None,
    [],
    [None],
    [{}],
    [{"a": None}],
    [{"a": ""}],
    [{"a": "x", "b": "y"}],
    [{"b": "y", "a": "x"}],
    [{"a": "x"}, {"b": "y"}],
)
WIDE: Values = (None, {}, {"a": None}, {"a": (None, None)}, {"a": ("", None)}, {"a": (None, "")}, {"a": ("x", "y"), "b": None})
PLAIN: Row = ("p", "a", None, 0, {"a": "x"}, ["a"], ("a", "a"), [], {})

# Every pair of two texts and a number; every other kind of value, beside each of the texts.
ROWS: list[Row] = [
    *[("p", s, t, n, *PLAIN[4:]) for s, t, n in product(TEXTS, TEXTS, (None, 0, 1))],
    *[(*PLAIN[:2], t, 0, m, a, *PLAIN[6:]) for t, m, a in product(TEXTS, MAPS, LISTS)],
    *[("p", "a", None, 0, m, ["a"], o, deep, {}) for m, o, deep in product(MAPS[:3], STRUCTS, DEEP)],
    *[(*PLAIN[:7], deep, wide) for deep, wide in product(DEEP, WIDE)],
]


def day(number: int) -> date:
    return date(2000, 1, 1) + timedelta(days=number)


def frame(spark: Any, days: Sequence[Sequence[Row]]) -> Any:
    """A day each of these lists of rows."""
    return spark.createDataFrame([(day(n), *row) for n, rows in enumerate(days) for row in rows], COLUMNS)


def value(cell: Any) -> Hashable:
    """What a cell holds, as Python compares it: a map has no order, a list has."""
    if isinstance(cell, dict):
        return frozenset((key, value(item)) for key, item in cell.items())
    if isinstance(cell, list | tuple):
        return (type(cell).__name__, *map(value, cell))
    return cell
