"""Match the rows of one day in two versions: added, removed, and pairs of the same key.

It uses Arrow and numpy, in memory. The cost grows with the rows of one day. Repeated keys do not
multiply it. Columns are brought to a common type, and equal values get equal codes (whole numbers).
An integer equals a double only if it is exactly that number. Null equals null, NaN equals NaN, 0.0
equals -0.0, and maps with the same entries are equal. Codes are comparable only within one call.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.int64]
# Codes of two columns are joined by multiplication while the result fits in 64 bits.
_MOST_CODES = 2**62
# Every integer up to this is an exact double.
_EXACT_DOUBLES = 2.0**53


@dataclass(frozen=True)
class Column:
    """A column of both sides, cast to their common type. Without one it is not comparable.

    `exact`: both sides as texts, if the common type would round numbers of one side.
    """

    name: str
    before: pa.Array
    after: pa.Array
    comparable: bool = True
    exact: tuple[pa.Array, pa.Array] | None = None

    def changed_positions(self, before: Codes, after: Codes) -> Codes:
        """The positions at which the rows `before` and `after` differ."""
        if not self.comparable:
            return np.arange(len(before))
        old, new = self.exact or (self.before, self.after)
        return changed_positions(take(old, before), take(new, after))


@dataclass(frozen=True)
class RowMatches:
    """Row numbers of pairs with the same key (`before`, `after`), and of other rows.

    `same` counts rows that are in no pair and have an equal row on the other side.
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
    """The rows of one day before and after.

    `key` names the key columns. An empty key means that the day has one row; None means that the
    table has no key. Without a key, rows that differ only in columns of `lineage` are pairs.
    """

    before: pa.Table
    after: pa.Table
    key: Sequence[str] | None
    lineage: Collection[str] = ()

    @cached_property
    def columns(self) -> dict[str, Column]:
        """Every column of either side. A column that one side lacks is null there."""
        names = dict.fromkeys([*self.before.column_names, *self.after.column_names])
        return {name: _column(name, self.before, self.after) for name in names}

    def match(self) -> RowMatches:
        """Pair the rows by key. Without a key, equal rows are the same."""
        all_before = np.arange(self.before.num_rows)
        all_after = np.arange(self.after.num_rows)
        if self.key is None:
            return self._paired_besides_lineage(self._match_equal_rows(all_before, all_after))
        columns = [self.columns[name] for name in self.key]
        before, after, count = self._codes(columns, all_before, all_after)
        if not all(column.comparable for column in columns):
            # The two sides have no key in common.
            after = after + count
            count = 2 * count
        rows_before = np.bincount(before, minlength=count)
        rows_after = np.bincount(after, minlength=count)
        in_pair = (rows_before == 1) & (rows_after == 1)
        others = self._match_equal_rows(
            np.flatnonzero(~in_pair[before]), np.flatnonzero(~in_pair[after])
        )
        pairs = np.flatnonzero(in_pair)
        return RowMatches(
            before=_last_rows(before, count)[pairs],
            after=_last_rows(after, count)[pairs],
            removed=others.removed,
            added=others.added,
            same=others.same,
            repeated_before=int((rows_before > 1).sum()),
            repeated_after=int((rows_after > 1).sum()),
        )

    def _match_equal_rows(self, before: Codes, after: Codes) -> RowMatches:
        """Cancel equal rows of both sides, one for one. The other rows are removed or added."""
        none = np.empty(0, np.int64)
        columns = list(self.columns.values())
        if not len(before) or not len(after) or not all(column.comparable for column in columns):
            return RowMatches(none, none, before, after)
        codes_before, codes_after, count = self._codes(columns, before, after)
        rows_before = np.bincount(codes_before, minlength=count)
        rows_after = np.bincount(codes_after, minlength=count)
        removed = before[_surplus(codes_before, rows_after)]
        added = after[_surplus(codes_after, rows_before)]
        return RowMatches(none, none, removed, added, same=len(before) - len(removed))

    def _paired_besides_lineage(self, matches: RowMatches) -> RowMatches:
        """Pair removed and added rows that differ only in columns of lineage, one with one."""
        columns = [column for name, column in self.columns.items() if name not in self.lineage]
        is_comparable = all(column.comparable for column in columns)
        if len(columns) == len(self.columns) or not columns or not is_comparable:
            return matches
        before, after, _ = self._codes(columns, matches.removed, matches.added)
        most = len(before) + len(after)
        _, old, new = np.intersect1d(
            _numbered(before, most), _numbered(after, most), assume_unique=True, return_indices=True
        )
        return RowMatches(
            before=matches.removed[old],
            after=matches.added[new],
            removed=np.delete(matches.removed, old),
            added=np.delete(matches.added, new),
            same=matches.same,
        )

    def _codes(
        self, columns: Sequence[Column], before: Codes, after: Codes
    ) -> tuple[Codes, Codes, int]:
        rows = np.concatenate([before, after + self.before.num_rows])
        codes, count = row_codes([take(_both_sides(column), rows) for column in columns], len(rows))
        return codes[: len(before)], codes[len(before) :], count


def _both_sides(column: Column) -> pa.Array:
    """The values before, then those after; as text if the column is not comparable."""
    if column.comparable:
        return pa.concat_arrays(column.exact or [column.before, column.after])
    values = [*column.before.to_pylist(), *column.after.to_pylist()]
    return pa.array([None if v is None else repr(v) for v in values], pa.large_string())


def take(values: pa.Array, rows: Codes) -> pa.Array:
    """The values of these rows, without a copy for all rows in order."""
    all_rows = len(rows) == len(values) and bool((rows == np.arange(len(rows))).all())
    return values if all_rows else values.take(pa.array(rows))


def _last_rows(codes: Codes, count: int) -> Codes:
    """The last row of each code."""
    rows = np.full(count, -1)
    rows[codes] = np.arange(len(codes))
    return rows


def _surplus(codes: Codes, rows_of_other: Codes) -> Codes:
    """The rows that remain after each code loses the number of rows of the other side."""
    return np.flatnonzero(_places(codes) >= rows_of_other[codes])


def _numbered(codes: Codes, most: int) -> Codes:
    """A different number for each row, from its code and its place within the code."""
    return codes * (most + 1) + _places(codes)


def _places(codes: Codes) -> Codes:
    """The place of each row among the rows of its code, from 0."""
    rows = np.bincount(codes) if len(codes) else codes
    places = np.empty_like(codes)
    order = np.argsort(codes, kind="stable")
    places[order] = np.arange(len(codes)) - np.repeat(np.cumsum(rows) - rows, rows)
    return places


def changed_positions(before: pa.Array, after: pa.Array) -> Codes:
    """The row numbers at which two columns of one type and length differ."""
    if before.equals(after):
        return np.empty(0, np.int64)
    codes, _ = _value_codes(pa.concat_arrays([before, after]))
    return np.flatnonzero(codes[: len(before)] != codes[len(before) :])


def row_codes(columns: Sequence[pa.Array], rows: int) -> tuple[Codes, int]:
    """A code from 0 for each row of these columns, and the number of codes.

    Without columns all rows have one code.
    """
    return _dense(*_joined([_value_codes(column) for column in columns], rows))


def _value_codes(values: pa.Array) -> tuple[Codes, int]:
    """A code for each value, and a number above all codes."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _joined([_nulls(values), *map(_value_codes, values.flatten())], len(values))
    if pa.types.is_map(kind):
        return _list_codes(entries_of(values), sort=True)
    if is_list(kind):
        return _list_codes(values.cast(pa.large_list(kind.value_type)))
    if pa.types.is_floating(kind):
        # One NaN and one zero, because their bits differ.
        nan = pa.scalar(float("nan"), kind)
        values = pc.add(pc.if_else(pc.is_nan(values), nan, values), pa.scalar(0.0, kind))
    encoded = values.dictionary_encode(null_encoding="encode")
    return _integers(encoded.indices), len(encoded.dictionary) + 1


def entries_of(maps: pa.Array) -> pa.Array:
    """Maps as lists of structs with `key` and `value`."""
    kind = maps.type
    return maps.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))


def is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def as_doubles(values: pa.Array) -> npt.NDArray[np.float64]:
    """Numbers as doubles, nulls as NaN."""
    doubles: npt.NDArray[np.float64] = values.cast(pa.float64(), safe=False).to_numpy(
        zero_copy_only=False
    )
    return doubles


def _list_codes(lists: pa.Array, *, sort: bool = False) -> tuple[Codes, int]:
    """Codes of lists, joined position by position. `sort` orders the entries of maps by key."""
    lengths = _integers(pc.fill_null(pc.list_value_length(lists), 0))
    longest = int(lengths.max(initial=0))
    elements = lists.flatten()
    starts = np.cumsum(lengths) - lengths
    element_codes, highest = _value_codes(elements)
    if sort:
        key_codes, _ = _value_codes(elements.field(0))
        owners = np.repeat(np.arange(len(lengths)), lengths)
        element_codes = element_codes[np.lexsort((key_codes, owners))]
    codes, count = _dense(*_joined([_nulls(lists), (lengths, longest + 1)], len(lists)))
    for position in range(longest):
        # Lists of different lengths differ from the first code. So lists that end here keep their
        # code.
        longer = np.flatnonzero(lengths > position)
        parts = [(codes[longer], count), (element_codes[starts[longer] + position], highest)]
        new, more = _dense(*_joined(parts, len(longer)))
        codes[longer] = count + new
        count += more
    return codes, count + 1


def _nulls(values: pa.Array) -> tuple[Codes, int]:
    return _integers(pc.is_null(values)), 2


def _integers(values: pa.Array) -> Codes:
    return values.to_numpy(zero_copy_only=False).astype(np.int64)


def _joined(parts: Sequence[tuple[Codes, int]], rows: int) -> tuple[Codes, int]:
    """One code for the codes of several columns."""
    joined = np.zeros(rows, np.int64)
    count = 1
    for codes, most in parts:
        if count * most >= _MOST_CODES:
            joined, count = _dense(joined, count)
            codes, most = _dense(codes, most)
        joined = joined * most + codes
        count *= most
    return joined, count


def _dense(codes: Codes, count: int) -> tuple[Codes, int]:
    """The same codes without gaps, in order of first appearance, and their number."""
    encoded = pa.array(codes, pa.int64()).dictionary_encode()
    return _integers(encoded.indices), len(encoded.dictionary)


def _column(name: str, before: pa.Table, after: pa.Table) -> Column:
    old = _array(before, name)
    new = _array(after, name)
    kind = _common_type(old.type, new.type)
    if kind is None:
        return Column(name, old, new, comparable=False)
    try:
        return Column(name, _cast(old, kind), _cast(new, kind))
    except pa.ArrowException:
        # The common type rounds a number or lacks a value, or Arrow has no such cast.
        if _has_double(old.type) == _has_double(new.type):
            return Column(name, old, new, comparable=False)
        return Column(name, old, new, exact=(_exact_texts(old), _exact_texts(new)))


def _array(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows)
    column = table[name]
    return column.cast(_wide(column.type)).combine_chunks()


def _wide(kind: pa.DataType) -> pa.DataType:
    """The type for more than 2 GB of text or bytes. Two sides together may have more."""
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else kind


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values. Raises ArrowException for numbers that may have no exact double."""
    cast = values.cast(kind)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(kind):
        largest = pc.max(pc.abs(cast)).as_py()
        if largest is not None and largest >= _EXACT_DOUBLES:
            raise pa.ArrowInvalid("a double may round this number")
    return cast


def _has_double(kind: pa.DataType) -> bool:
    """True for floating point numbers, and for a nested type that holds them."""
    inner = [kind.field(n).type for n in range(kind.num_fields)]
    return pa.types.is_floating(kind) or any(map(_has_double, inner))


def _exact_texts(values: pa.Array) -> pa.Array:
    """A text for each value: the same for numbers that are equal in different types."""
    texts = [None if value is None else repr(_exact(value)) for value in values.to_pylist()]
    return pa.array(texts, pa.large_string())


def _exact(value: Any) -> Any:
    """A whole number as an integer, another number as a double, the entries of a map in order."""
    match value:
        case Decimal():
            return int(value) if value == int(value) else _exact(float(value))
        case float():
            return int(value) if value.is_integer() else value
        case dict():  # a struct; a field that only one side has is null in the other
            return sorted((name, _exact(item)) for name, item in value.items() if item is not None)
        case [(_, _), *_]:  # a map
            return sorted(((_exact(key), _exact(item)) for key, item in value), key=repr)
        case list():
            return list(map(_exact, value))
    return value


def _common_type(before: pa.DataType, after: pa.DataType) -> pa.DataType | None:
    """The common type for the values of both sides; None if there is none.

    Arrow chooses it, also for the types in lists, maps and structs: the wider number. A number and
    a text become text. A date becomes midnight UTC. Text and bytes have no common type.
    """
    kinds = [before, after]
    if any(map(_is_text, kinds)) and any(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) for kind in kinds
    ):
        return None
    if all(map(pa.types.is_nested, kinds)):
        return _common_nested(before, after)
    if any(map(pa.types.is_decimal, kinds)):
        # Arrow reserves 19 digits for an integer only if it is a decimal already.
        kinds = [pa.decimal128(19) if pa.types.is_integer(kind) else kind for kind in kinds]
    try:
        schemas = [pa.schema([("values", kind)]) for kind in kinds]
        kind = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        if all(map(pa.types.is_temporal, kinds)):
            has_zone = any(getattr(kind, "tz", None) for kind in kinds)
            return pa.timestamp("us", "UTC" if has_zone else None)
        has_text = any(map(_is_text, kinds))
        return pa.large_string() if has_text and not any(map(pa.types.is_nested, kinds)) else None
    if pa.types.is_floating(kind) and before != after:
        return pa.float64()
    return _wide(kind)


def _common_nested(before: pa.DataType, after: pa.DataType) -> pa.DataType | None:
    """The common type of two lists, two maps or two structs, from the types in them.

    A field that only one of two structs has is null in the other.
    """
    if pa.types.is_list(before) and pa.types.is_list(after):
        value = _common_type(before.value_type, after.value_type)
        return pa.list_(value) if value else None
    if pa.types.is_map(before) and pa.types.is_map(after):
        key = _common_type(before.key_type, after.key_type)
        item = _common_type(before.item_type, after.item_type)
        return pa.map_(key, item) if key and item else None
    if not pa.types.is_struct(before) or not pa.types.is_struct(after):
        return None
    names = dict.fromkeys(field.name for kind in (before, after) for field in kind)
    fields = {name: _common_type(_field(before, name), _field(after, name)) for name in names}
    return pa.struct(list(fields.items())) if all(fields.values()) else None


def _field(kind: pa.StructType, name: str) -> pa.DataType:
    return kind.field(name).type if kind.get_field_index(name) >= 0 else pa.null()


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
