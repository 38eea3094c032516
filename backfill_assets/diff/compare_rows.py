"""Two versions of one day, compared row by row: which rows were added and removed, and which pairs of rows belong together.

By Arrow and numpy alone, in memory: what it takes grows with the rows of one day, and keys that repeat multiply nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.diff.same_types import common_type, wide
from backfill_assets.diff.value_codes import Codes, row_codes, value_codes


@dataclass(frozen=True)
class Column:
    """A column of both sides, each of one type; where they have no type in common (`comparable` is false), as they are."""

    name: str
    before: pa.Array
    after: pa.Array
    comparable: bool = True

    @property
    def both(self) -> pa.Array:
        return pa.concat_arrays([self.before, self.after])


@dataclass(frozen=True)
class Matched:
    """Row numbers: `before` and `after` of pairs with the same key, and of rows that were `removed` and `added`; and counts.

    `same`: rows that have an equal on the other side, and are in no pair.
    """

    before: Codes
    after: Codes
    removed: Codes
    added: Codes
    same: int = 0
    repeated_before: int = 0
    repeated_after: int = 0


@dataclass(frozen=True)
class Sides:
    """The rows of one day before and after; `key` names columns (empty: the day has one row), `keyed` says if there is one."""

    before: pa.Table
    after: pa.Table
    key: Sequence[str]
    keyed: bool

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Every column that either side has; the other side's are null then."""
        names = dict.fromkeys([*self.before.column_names, *self.after.column_names])
        return {name: _column(name, self.before, self.after) for name in names}

    def match(self) -> Matched:
        """Find the pairs by key; without a key, rows that are equal as a whole are the same, and there are no pairs."""
        if not self.keyed:
            return self._by_equality(np.arange(self.before.num_rows), np.arange(self.after.num_rows))
        columns = [self.columns[name] for name in self.key]
        before, after, count = self._codes(columns, np.arange(self.before.num_rows), np.arange(self.after.num_rows))
        if not all(column.comparable for column in columns):
            after, count = after + count, 2 * count  # no key of one side is any of the other's
        rows_before, rows_after = np.bincount(before, minlength=count), np.bincount(after, minlength=count)
        repeated = (rows_before > 1) | (rows_after > 1)
        pairs = np.flatnonzero((rows_before == 1) & (rows_after == 1))
        others = self._by_equality(np.flatnonzero(repeated[before]), np.flatnonzero(repeated[after]))
        return Matched(
            before=_rows_of(before, count)[pairs],
            after=_rows_of(after, count)[pairs],
            removed=np.concatenate([np.flatnonzero((rows_after == 0)[before] & ~repeated[before]), others.removed]),
            added=np.concatenate([np.flatnonzero((rows_before == 0)[after] & ~repeated[after]), others.added]),
            same=others.same,
            repeated_before=int((rows_before > 1).sum()),
            repeated_after=int((rows_after > 1).sum()),
        )

    def _by_equality(self, before: Codes, after: Codes) -> Matched:
        """These rows, those that are equal taken away in twos."""
        none, columns = np.empty(0, np.int64), list(self.columns.values())
        if not len(before) or not len(after) or not all(column.comparable for column in columns):
            return Matched(none, none, before, after)
        codes_before, codes_after, count = self._codes(columns, before, after)
        rows_before = np.bincount(codes_before, minlength=count)
        rows_after = np.bincount(codes_after, minlength=count)
        removed = before[_left(codes_before, rows_before, rows_after)]
        added = after[_left(codes_after, rows_after, rows_before)]
        return Matched(none, none, removed, added, same=len(before) - len(removed))

    def _codes(self, columns: Sequence[Column], before: Codes, after: Codes) -> tuple[Codes, Codes, int]:
        rows = np.concatenate([before, after + self.before.num_rows])
        everything = len(rows) == self.before.num_rows + self.after.num_rows
        arrays = [column.both if column.comparable else _as_text(column) for column in columns]
        codes, count = row_codes([each if everything else each.take(pa.array(rows)) for each in arrays], len(rows))
        return codes[: len(before)], codes[len(before) :], count


def differing(before: pa.Array, after: pa.Array) -> Codes:
    """Where two columns of one type and length differ, as row numbers. Null equals null, NaN equals NaN."""
    if before.equals(after):
        return np.empty(0, np.int64)
    if pa.types.is_nested(before.type):
        codes, _ = value_codes(pa.concat_arrays([before, after]))
        return np.flatnonzero(codes[: len(before)] != codes[len(before) :])
    differ = pc.fill_null(pc.not_equal(before, after), False)
    if pa.types.is_floating(before.type):
        both_nan = pc.fill_null(pc.and_(pc.is_nan(before), pc.is_nan(after)), False)
        differ = pc.and_not(differ, both_nan)
    if before.null_count or after.null_count:
        differ = pc.or_(differ, pc.xor(pc.is_null(before), pc.is_null(after)))
    return np.flatnonzero(differ.to_numpy(zero_copy_only=False))


def _column(name: str, before: pa.Table, after: pa.Table) -> Column:
    one, other = _array(before, name), _array(after, name)
    kind = common_type(one.type, other.type)
    try:
        if kind is not None:
            return Column(name, _cast(one, kind), _cast(other, kind))
    except pa.ArrowException:  # a value that the common type does not hold, or a cast that Arrow does not know
        pass
    return Column(name, one, other, comparable=False)


def _array(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows)
    column = table[name]
    kind = wide(column.type)
    return (column if kind == column.type else column.cast(kind)).combine_chunks()


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    # Arrow refuses integers that a double does not tell apart.
    return values.cast(kind, safe=not pa.types.is_floating(kind))


def _as_text(column: Column) -> pa.Array:
    """Both sides of a key column whose types have nothing in common, side by side."""
    sides = [column.before.to_pylist(), column.after.to_pylist()]
    return pa.array([None if value is None else repr(value) for side in sides for value in side], pa.large_string())


def _rows_of(codes: Codes, count: int) -> Codes:
    """Of each code the last row that has it."""
    rows = np.full(count, -1)
    rows[codes] = np.arange(len(codes))
    return rows


def _left(codes: Codes, rows: Codes, rows_of_other: Codes) -> Codes:
    """The rows that are left when, of each code, as many are taken away as the other side has."""
    more = np.flatnonzero((rows > rows_of_other)[codes])
    in_order = more[np.argsort(codes[more], kind="stable")]
    _, sizes = np.unique(codes[more], return_counts=True)
    rank = np.arange(len(more)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(in_order[rank >= rows_of_other[codes[in_order]]])
