"""Match the rows of one day in two versions: added, removed, and pairs of the same key.

It uses Arrow and numpy, in memory. The cost grows with the rows of one day, and repeated keys
multiply nothing. Columns are brought to a common type, and values are compared by whole numbers
that are equal where the values are. Null equals null, NaN equals NaN, 0.0 equals -0.0, and maps
with the same entries are equal. Such numbers can be compared only within one call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_TEXT: tuple[Callable[[pa.DataType], bool], ...] = (pa.types.is_string, pa.types.is_large_string)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_DIGITS_OF_A_LONG = 19
_MOST_DIGITS = 76


def _common_type(before: pa.DataType, after: pa.DataType) -> pa.DataType | None:
    """A type that holds the values of both; None if there is none, as for a number and a list.

    Numbers become the wider of the two, or doubles; beside text, everything becomes text; a date
    becomes midnight UTC. A field that only one of two structs has is null in the other.
    """
    for one, other in ((before, after), (after, before)):
        if pa.types.is_null(one) or one == other:
            return _wide(other)
        if _is(one, *_TEXT):
            return (
                None
                if pa.types.is_nested(other) or pa.types.is_binary(other)
                else pa.large_string()
            )
    if _is(before, *_NUMBERS) and _is(after, *_NUMBERS):
        return _of_numbers(before, after)
    if pa.types.is_temporal(before) and pa.types.is_temporal(after):
        return _of_times(before, after)
    return _of_nested(before, after)


def _wide(kind: pa.DataType) -> pa.DataType:
    """Text and bytes of two days together may be more than 2 GB, which Arrow's usual types do not
    hold.
    """
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else kind


def _is(kind: pa.DataType, *kinds: Callable[[pa.DataType], bool]) -> bool:
    return any(is_one(kind) for is_one in kinds)


def _of_numbers(before: pa.DataType, after: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(before) or pa.types.is_floating(after):
        return pa.float64()
    if pa.types.is_integer(before) and pa.types.is_integer(after):
        return pa.int64()
    parts = [
        (k.precision, k.scale) if pa.types.is_decimal(k) else (_DIGITS_OF_A_LONG, 0)
        for k in (before, after)
    ]
    scale = max(scale for _, scale in parts)
    digits = max(precision - scale for precision, scale in parts) + scale
    return pa.decimal256(digits, scale) if digits <= _MOST_DIGITS else pa.float64()


def _of_times(before: pa.DataType, after: pa.DataType) -> pa.DataType | None:
    kinds = [kind for kind in (before, after) if pa.types.is_timestamp(kind)]
    if not kinds or not all(
        pa.types.is_timestamp(kind) or pa.types.is_date(kind) for kind in (before, after)
    ):
        return None
    return pa.timestamp("us", "UTC" if any(kind.tz for kind in kinds) else None)


def _of_nested(before: pa.DataType, after: pa.DataType) -> pa.DataType | None:
    if pa.types.is_map(before) and pa.types.is_map(after):
        key = _common_type(before.key_type, after.key_type)
        item = _common_type(before.item_type, after.item_type)
        return pa.map_(key, item) if key and item else None
    if pa.types.is_list(before) and pa.types.is_list(after):
        value = _common_type(before.value_type, after.value_type)
        return pa.list_(value) if value else None
    if not pa.types.is_struct(before) or not pa.types.is_struct(after):
        return None
    names = dict.fromkeys([field.name for kind in (before, after) for field in kind])
    fields = {name: _common_type(_field(before, name), _field(after, name)) for name in names}
    return pa.struct(list(fields.items())) if all(fields.values()) else None


def _field(kind: pa.StructType, name: str) -> pa.DataType:
    return kind.field(name).type if kind.get_field_index(name) >= 0 else pa.null()


Codes = npt.NDArray[np.int64]
# Codes of two columns are joined by multiplication for as long as that fits in 64 bits.
_MOST_CODES = 2**62


def row_codes(columns: Sequence[pa.Array], rows: int) -> tuple[Codes, int]:
    """Of each of `rows` rows of these columns a code from 0 up, and how many codes there are;
    without columns one for all.
    """
    return _dense(*_joined([_value_codes(column) for column in columns], rows))


def _value_codes(values: pa.Array) -> tuple[Codes, int]:
    """Of each value a code, and a number that is higher than all of them."""
    kind = values.type
    if pa.types.is_null(kind):
        return np.zeros(len(values), np.int64), 1
    if pa.types.is_struct(kind):
        return _joined([_nulls(values), *map(_value_codes, values.flatten())], len(values))
    if pa.types.is_map(kind):
        entries = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        return _list_codes(values.cast(entries), sort=True)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list_codes(values.cast(pa.large_list(kind.value_type)))
    if pa.types.is_floating(kind):
        values = pc.add(
            pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values),
            pa.scalar(0.0, kind),
        )
    encoded = values.dictionary_encode(null_encoding="encode")
    return (
        encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        len(encoded.dictionary) + 1,
    )


def _list_codes(lists: pa.Array, *, sort: bool = False) -> tuple[Codes, int]:
    """Codes of lists, put together position by position; `sort`: of entries of maps, each in the
    order of its keys.
    """
    lengths = (
        pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    elements = lists.flatten()
    starts = np.cumsum(lengths) - lengths
    of_elements, highest = _value_codes(elements)
    if sort:
        of_keys, _ = _value_codes(elements.field(0))
        of_elements = of_elements[
            np.lexsort((of_keys, np.repeat(np.arange(len(lengths)), lengths)))
        ]
    codes, count = _dense(
        *_joined([_nulls(lists), (lengths, int(lengths.max(initial=0)) + 1)], len(lists))
    )
    for position in range(int(lengths.max(initial=0))):
        # Lists of other lengths have other codes from the start, so those that end here keep
        # theirs.
        longer = np.flatnonzero(lengths > position)
        parts = [(codes[longer], count), (of_elements[starts[longer] + position], highest)]
        new, more = _dense(*_joined(parts, len(longer)))
        codes[longer], count = count + new, count + more
    return codes, count + 1


def _nulls(values: pa.Array) -> tuple[Codes, int]:
    return pc.is_null(values).to_numpy(zero_copy_only=False).astype(np.int64), 2


def _joined(parts: Sequence[tuple[Codes, int]], rows: int) -> tuple[Codes, int]:
    """One code for the codes of several columns."""
    joined = np.zeros(rows, np.int64)
    count = 1
    for codes, most in parts:
        if count * most >= _MOST_CODES:
            joined, count = _dense(joined, count)
            codes, most = _dense(codes, most)
        joined = joined * most + codes if count > 1 else codes
        count = count * most
    return joined, count


def _dense(codes: Codes, count: int) -> tuple[Codes, int]:
    """The same codes without gaps, from 0 up in the order in which they first stand, and how many
    there are.
    """
    encoded = pa.array(codes, pa.int64()).dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


@dataclass(frozen=True)
class Column:
    """A column of both sides, each of one type; where they have no type in common (`comparable` is
    false), as they are.
    """

    name: str
    before: pa.Array
    after: pa.Array
    comparable: bool = True

    @property
    def both(self) -> pa.Array:
        return pa.concat_arrays([self.before, self.after])


@dataclass(frozen=True)
class RowMatches:
    """Row numbers: `before` and `after` of pairs with the same key, and of rows that were `removed`
    and `added`; and counts.

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
class DayRows:
    """The rows of one day before and after; `key` names columns (empty: the day has one row),
    `keyed` says if there is one.
    """

    before: pa.Table
    after: pa.Table
    key: Sequence[str]
    keyed: bool

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Every column that either side has; the other side's are null then."""
        names = dict.fromkeys([*self.before.column_names, *self.after.column_names])
        return {name: _column(name, self.before, self.after) for name in names}

    def match(self) -> RowMatches:
        """Find the pairs by key; without a key, rows that are equal as a whole are the same, and
        there are no pairs.
        """
        if not self.keyed:
            return self._by_equality(
                np.arange(self.before.num_rows), np.arange(self.after.num_rows)
            )
        columns = [self.columns[name] for name in self.key]
        before, after, count = self._codes(
            columns, np.arange(self.before.num_rows), np.arange(self.after.num_rows)
        )
        if not all(column.comparable for column in columns):
            after = after + count
            count = 2 * count  # no key of one side is any of the other's
        rows_before = np.bincount(before, minlength=count)
        rows_after = np.bincount(after, minlength=count)
        repeated = (rows_before > 1) | (rows_after > 1)
        pairs = np.flatnonzero((rows_before == 1) & (rows_after == 1))
        others = self._by_equality(
            np.flatnonzero(repeated[before]), np.flatnonzero(repeated[after])
        )
        return RowMatches(
            before=_rows_of(before, count)[pairs],
            after=_rows_of(after, count)[pairs],
            removed=np.concatenate(
                [np.flatnonzero((rows_after == 0)[before] & ~repeated[before]), others.removed]
            ),
            added=np.concatenate(
                [np.flatnonzero((rows_before == 0)[after] & ~repeated[after]), others.added]
            ),
            same=others.same,
            repeated_before=int((rows_before > 1).sum()),
            repeated_after=int((rows_after > 1).sum()),
        )

    def _by_equality(self, before: Codes, after: Codes) -> RowMatches:
        """These rows, those that are equal taken away in twos."""
        none = np.empty(0, np.int64)
        columns = list(self.columns.values())
        if not len(before) or not len(after) or not all(column.comparable for column in columns):
            return RowMatches(none, none, before, after)
        codes_before, codes_after, count = self._codes(columns, before, after)
        rows_before = np.bincount(codes_before, minlength=count)
        rows_after = np.bincount(codes_after, minlength=count)
        removed = before[_left(codes_before, rows_before, rows_after)]
        added = after[_left(codes_after, rows_after, rows_before)]
        return RowMatches(none, none, removed, added, same=len(before) - len(removed))

    def _codes(
        self, columns: Sequence[Column], before: Codes, after: Codes
    ) -> tuple[Codes, Codes, int]:
        rows = np.concatenate([before, after + self.before.num_rows])
        everything = len(rows) == self.before.num_rows + self.after.num_rows
        arrays = [column.both if column.comparable else _as_text(column) for column in columns]
        codes, count = row_codes(
            [each if everything else each.take(pa.array(rows)) for each in arrays], len(rows)
        )
        return codes[: len(before)], codes[len(before) :], count


def changed_positions(before: pa.Array, after: pa.Array) -> Codes:
    """Where two columns of one type and length differ, as row numbers. Null equals null, NaN equals
    NaN.
    """
    if before.equals(after):
        return np.empty(0, np.int64)
    if pa.types.is_nested(before.type):
        codes, _ = _value_codes(pa.concat_arrays([before, after]))
        return np.flatnonzero(codes[: len(before)] != codes[len(before) :])
    differ = pc.fill_null(pc.not_equal(before, after), False)
    if pa.types.is_floating(before.type):
        both_nan = pc.fill_null(pc.and_(pc.is_nan(before), pc.is_nan(after)), False)
        differ = pc.and_not(differ, both_nan)
    if before.null_count or after.null_count:
        differ = pc.or_(differ, pc.xor(pc.is_null(before), pc.is_null(after)))
    return np.flatnonzero(differ.to_numpy(zero_copy_only=False))


def _column(name: str, before: pa.Table, after: pa.Table) -> Column:
    one = _array(before, name)
    other = _array(after, name)
    kind = _common_type(one.type, other.type)
    try:
        if kind is not None:
            return Column(name, _cast(one, kind), _cast(other, kind))
    except pa.ArrowException:
        # A value that the common type does not hold, or a cast that Arrow does not know.
        pass
    return Column(name, one, other, comparable=False)


def _array(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows)
    column = table[name]
    kind = _wide(column.type)
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
    return pa.array(
        [None if value is None else repr(value) for side in sides for value in side],
        pa.large_string(),
    )


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
