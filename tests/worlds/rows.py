"""Rows in memory: every kind of value that a hash could confuse, and tables as a `Reader` for
checks.
"""

from collections.abc import Hashable, Mapping, Sequence
from datetime import date, timedelta
from itertools import product
from typing import Any

import pyarrow as pa

from backfill_assets.lake.ledger import Build
from backfill_assets.verify.checks import SideReader
from tests.worlds.deliveries import day

Row = tuple[Any, ...]
Values = tuple[Any, ...]

COLUMNS = (
    "day DATE, about STRING, s STRING, t STRING, n BIGINT, m MAP<STRING, STRING>, a ARRAY<STRING>,"
    " o STRUCT<q: STRING, r: STRING>, deep ARRAY<MAP<STRING, STRING>>, wide MAP<STRING, STRUCT<q:"
    " STRING, r: STRING>>"
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
WIDE: Values = (
    None,
    {},
    {"a": None},
    {"a": (None, None)},
    {"a": ("", None)},
    {"a": (None, "")},
    {"a": ("x", "y"), "b": None},
)
PLAIN: Row = ("p", "a", None, 0, {"a": "x"}, ["a"], ("a", "a"), [], {})

# Every pair of two texts and a number; every other kind of value, beside each of the texts.
ROWS: list[Row] = [
    *[("p", s, t, n, *PLAIN[4:]) for s, t, n in product(TEXTS, TEXTS, (None, 0, 1))],
    *[(*PLAIN[:2], t, 0, m, a, *PLAIN[6:]) for t, m, a in product(TEXTS, MAPS, LISTS)],
    *[
        ("p", "a", None, 0, m, ["a"], o, deep, {})
        for m, o, deep in product(MAPS[:3], STRUCTS, DEEP)
    ],
    *[(*PLAIN[:7], deep, wide) for deep, wide in product(DEEP, WIDE)],
]


def hashed_day(number: int) -> date:
    return date(2000, 1, 1) + timedelta(days=number)


def frame(spark: Any, days: Sequence[Sequence[Row]]) -> Any:
    """A day each of these lists of rows."""
    return spark.createDataFrame(
        [(hashed_day(n), *row) for n, rows in enumerate(days) for row in rows], COLUMNS
    )


def value(cell: Any) -> Hashable:
    """What a cell holds, as Python compares it: a map has no order, a list has."""
    if isinstance(cell, dict):
        return frozenset((key, value(item)) for key, item in cell.items())
    if isinstance(cell, list | tuple):
        return (type(cell).__name__, *map(value, cell))
    return cell


TABLE = "staging/o"


def accepted_build(number: int, **fields) -> Build:
    """An accepted build of a day, of one row that nothing was said about."""
    known = {"outcome": "accepted", "run": "r", "code_version": "c1", "fingerprint": "f", "rows": 1}
    return Build(**{"table": TABLE, "day": day(number), **known, **fields})


def accepted_builds(*numbers: int, **fields) -> dict[date, Build]:
    return {day(n): accepted_build(n, **fields) for n in numbers}


def rows_of_days(days: Sequence[int], **columns: Sequence[object]) -> pa.Table:
    return pa.table({"day": pa.array([day(n) for n in days], pa.date32()), **columns})


def reader(**tables: pa.Table) -> SideReader:
    """What reads these tables, named without their layer, by their column `day`."""
    named: Mapping[str, pa.Table] = {f"staging/{name}": table for name, table in tables.items()}

    def read(name: str, days: Sequence[date], columns: Sequence[str] | None) -> pa.Table:
        table = named[name]
        chosen = table.filter(
            pa.array([at in set(days) for at in table["day"].to_pylist()], pa.bool_())
        )
        return chosen.select([c for c in columns or table.column_names if c in table.column_names])

    return SideReader(read, {})
