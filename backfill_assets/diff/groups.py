"""Sums and means of both sides for each value of each key column, over the compared days."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as types

from backfill_assets.diff.diff import GroupChange
from backfill_assets.diff.rows import Column, as_doubles

# A key column is not grouped if it has more distinct values than this number and this share of the
# rows: its values identify single rows.
_MANY_VALUES = 100
_SHARE_OF_ROWS = 0.5
# A key column with more values is not compared by value.
_MOST_GROUPS = 2_000
# The change of a sum from 0 has no finite size.
_LARGEST = 1e6
_ROWS = ""
_DAY = "day"
_Floats = npt.NDArray[np.float64]


@dataclass
class _Total:
    """The totals of one column, value and side: sum, sum of magnitudes, count of numbers."""

    sum: float = 0.0
    size: float = 0.0
    count: float = 0.0


# By key column and value: the totals of each column before and after. The column "" counts rows.
_Totals = dict[str, dict[str, tuple[dict[str, _Total], dict[str, _Total]]]]


@dataclass
class GroupTotals:
    """The totals of the compared days, by value of each key column and by day."""

    totals: _Totals = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)

    def add(self, day: str, columns: Mapping[str, Column], key: tuple[str, ...]) -> None:
        """Add the rows of a day."""
        numbers = {
            name: column
            for name, column in columns.items()
            if name not in key and is_number(column.before.type) and is_number(column.after.type)
        }
        keys = [
            name
            for name in key
            if name in columns and not types.is_nested(columns[name].after.type)
        ]
        for at, side in enumerate(("before", "after")):
            values = {name: as_doubles(getattr(column, side)) for name, column in numbers.items()}
            rows = len(getattr(next(iter(columns.values())), side)) if columns else 0
            self._add_side(at, _DAY, np.zeros(rows, np.int64), [day], values)
            for name in keys:
                encoded = getattr(columns[name], side).dictionary_encode(null_encoding="encode")
                codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
                words = list(map(str, encoded.dictionary.to_pylist()))
                self._add_side(at, name, codes, words, values)

    def _add_side(
        self,
        at: int,
        key: str,
        codes: npt.NDArray[np.int64],
        words: list[str],
        values: Mapping[str, _Floats],
    ) -> None:
        groups = self.totals.setdefault(key, {})
        if key in self.dropped or len({*groups, *words}) > _MOST_GROUPS:
            self.dropped.add(key)
            groups.clear()
            return
        figures: dict[str, tuple[_Floats, _Floats, _Floats]] = {}
        size = len(words)
        rows = np.bincount(codes, minlength=size).astype(float)
        figures[_ROWS] = (rows, rows, np.ones(size))
        for name, numbers in values.items():
            is_finite = np.isfinite(numbers)
            present = np.where(is_finite, numbers, 0.0)
            figures[name] = (
                np.bincount(codes, weights=present, minlength=size).astype(float),
                np.bincount(codes, weights=np.abs(present), minlength=size).astype(float),
                np.bincount(codes[is_finite], minlength=size).astype(float),
            )
        for n, word in enumerate(words):
            side = groups.setdefault(word, ({}, {}))[at]
            for name, (sums, sizes, counts) in figures.items():
                total = side.setdefault(name, _Total())
                total.sum += float(sums[n])
                total.size += float(sizes[n])
                total.count += float(counts[n])

    def changes(self) -> tuple[GroupChange, ...]:
        """The largest relative change for each pair of key column and column, if there is one."""
        worst: dict[tuple[str, str], GroupChange] = {}
        for key, groups in self.totals.items():
            if key in self.dropped or (key != _DAY and self._names_rows(groups)):
                continue
            for value, (before, after) in groups.items():
                for change in _changes(key, value, before, after):
                    pair = (key, change.column)
                    if pair not in worst or change.size > worst[pair].size:
                        worst[pair] = change
        return tuple(worst.values())

    @staticmethod
    def _names_rows(groups: Mapping[str, tuple[dict[str, _Total], dict[str, _Total]]]) -> bool:
        rows = max(
            sum(sides[at][_ROWS].sum for sides in groups.values() if _ROWS in sides[at])
            for at in (0, 1)
        )
        return len(groups) > max(_MANY_VALUES, _SHARE_OF_ROWS * rows)


def _changes(
    key: str, value: str, before: Mapping[str, _Total], after: Mapping[str, _Total]
) -> Iterator[GroupChange]:
    for name in dict.fromkeys([*before, *after]):
        old = before.get(name, _Total())
        new = after.get(name, _Total())
        yield _change(key, value, name, "sum", old.sum, new.sum, old.size)
        if name != _ROWS and old.count and new.count:
            means = old.sum / old.count, new.sum / new.count
            yield _change(key, value, name, "mean", *means, old.size / old.count)


def _change(
    key: str, value: str, column: str, figure: str, before: float, after: float, scale: float
) -> GroupChange:
    if math.isclose(before, after, rel_tol=1e-9):
        size = 0.0
    elif not scale:
        size = _LARGEST
    else:
        size = min(abs(after - before) / scale, _LARGEST)
    return GroupChange(key, value, column, figure, before, after, size)


def is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
