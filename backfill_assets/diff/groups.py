"""Sums and means of both sides for each value of each key column, over the compared days."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from backfill_assets.diff.diff import GroupChange
from backfill_assets.diff.rows import Column, as_doubles
from backfill_assets.no_day import in_words

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


@dataclass
class GroupTotals:
    """The totals of the compared days, by value of each key column and by day.

    A total has two rows, before and after, of a sum, the sum of magnitudes and the count of
    numbers. Its key is a key column, a value of it and a column. The column "" counts rows.
    """

    totals: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    values: dict[str, set[str]] = field(default_factory=dict)
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
            values[_ROWS] = np.ones(rows)
            self._add_side(at, _DAY, np.zeros(rows, np.int64), [in_words(day)], values)
            for name in keys:
                encoded = getattr(columns[name], side).dictionary_encode(null_encoding="encode")
                codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
                words = list(map(str, encoded.dictionary.to_pylist()))
                self._add_side(at, name, codes, words, values)

    def _add_side(
        self, at: int, key: str, codes: Any, words: list[str], values: Mapping[str, Any]
    ) -> None:
        known = self.values.setdefault(key, set())
        if key in self.dropped or len({*known, *words}) > _MOST_GROUPS:
            self.dropped.add(key)
            return
        known.update(words)
        for name, numbers in values.items():
            is_finite = np.isfinite(numbers)
            weights = np.where(is_finite, [numbers, np.abs(numbers), np.ones(len(numbers))], 0)
            sums = [np.bincount(codes, each, len(words)) for each in weights]
            for word, added in zip(words, np.transpose(sums), strict=True):
                self.totals.setdefault((key, word, name), np.zeros((2, 3)))[at] += added

    def changes(self) -> tuple[GroupChange, ...]:
        """The largest relative change for each pair of key column and column, if there is one."""
        worst: dict[tuple[str, str], GroupChange] = {}
        compared = self.values.keys() - self.dropped
        compared -= {key for key in compared if key != _DAY and self._names_rows(key)}
        for (key, value, column), sides in self.totals.items():
            if key not in compared:
                continue
            for change in _changes(key, value, column, *sides.tolist()):
                if (key, column) not in worst or change.size > worst[key, column].size:
                    worst[key, column] = change
        return tuple(worst.values())

    def _names_rows(self, key: str) -> bool:
        number = len(self.values[key])
        rows = sum(self.totals[key, value, _ROWS][:, 0] for value in self.values[key])
        return number > max(_MANY_VALUES, _SHARE_OF_ROWS * np.max(rows))


def _changes(
    key: str, value: str, column: str, before: list[float], after: list[float]
) -> Iterator[GroupChange]:
    (old, size, numbers), (new, _, new_numbers) = before, after
    yield _change(key, value, column, "sum", old, new, size)
    if column != _ROWS and numbers and new_numbers:
        means = old / numbers, new / new_numbers
        yield _change(key, value, column, "mean", *means, size / numbers)


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
