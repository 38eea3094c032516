"""Two versions of a column, brought to one type so that their values can be compared."""

from collections.abc import Callable

import pyarrow as pa

TEXT: tuple[Callable[[pa.DataType], bool], ...] = (pa.types.is_string, pa.types.is_large_string)
NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
DIGITS_OF_A_LONG, MOST_DIGITS = 19, 76


def common_type(before: pa.DataType, after: pa.DataType) -> pa.DataType | None:
    """A type that holds the values of both; None if there is none, as for a number and a list.

    Numbers become the wider of the two, or doubles; beside text, everything becomes text; a date becomes midnight UTC. A field
    that only one of two structs has is null in the other.
    """
    for one, other in ((before, after), (after, before)):
        if pa.types.is_null(one) or one == other:
            return wide(other)
        if _is(one, *TEXT):
            return None if pa.types.is_nested(other) or pa.types.is_binary(other) else pa.large_string()
    if _is(before, *NUMBERS) and _is(after, *NUMBERS):
        return _of_numbers(before, after)
    if pa.types.is_temporal(before) and pa.types.is_temporal(after):
        return _of_times(before, after)
    return _of_nested(before, after)


def wide(kind: pa.DataType) -> pa.DataType:
    """Text and bytes of two days together may be more than 2 GB, which Arrow's usual types do not hold."""
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
    parts = [(k.precision, k.scale) if pa.types.is_decimal(k) else (DIGITS_OF_A_LONG, 0) for k in (before, after)]
    scale = max(scale for _, scale in parts)
    digits = max(precision - scale for precision, scale in parts) + scale
    return pa.decimal256(digits, scale) if digits <= MOST_DIGITS else pa.float64()


def _of_times(before: pa.DataType, after: pa.DataType) -> pa.DataType | None:
    kinds = [kind for kind in (before, after) if pa.types.is_timestamp(kind)]
    if not kinds or not all(pa.types.is_timestamp(kind) or pa.types.is_date(kind) for kind in (before, after)):
        return None
    return pa.timestamp("us", "UTC" if any(kind.tz for kind in kinds) else None)


def _of_nested(before: pa.DataType, after: pa.DataType) -> pa.DataType | None:
    if pa.types.is_map(before) and pa.types.is_map(after):
        key, item = common_type(before.key_type, after.key_type), common_type(before.item_type, after.item_type)
        return pa.map_(key, item) if key and item else None
    if pa.types.is_list(before) and pa.types.is_list(after):
        value = common_type(before.value_type, after.value_type)
        return pa.list_(value) if value else None
    if not pa.types.is_struct(before) or not pa.types.is_struct(after):
        return None
    names = dict.fromkeys([field.name for kind in (before, after) for field in kind])
    fields = {name: common_type(_field(before, name), _field(after, name)) for name in names}
    return pa.struct(list(fields.items())) if all(fields.values()) else None


def _field(kind: pa.StructType, name: str) -> pa.DataType:
    return kind.field(name).type if kind.get_field_index(name) >= 0 else pa.null()
