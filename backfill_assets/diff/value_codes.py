"""Whole numbers in place of values, equal where the values are: what keys, whole rows and nested values are compared by.

Null equals null, NaN equals NaN, 0.0 equals -0.0; two maps are equal if they have the same entries, in whatever order. A code
means something only beside the other codes of the same call.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.int64]
# Codes of two columns are joined by multiplication for as long as that fits in 64 bits.
MOST = 2**62


def row_codes(columns: Sequence[pa.Array], rows: int) -> tuple[Codes, int]:
    """Of each of `rows` rows of these columns a code from 0 up, and how many codes there are; without columns one for all."""
    return _dense(*_joined([value_codes(column) for column in columns], rows))


def value_codes(values: pa.Array) -> tuple[Codes, int]:
    """Of each value a code, and a number that is higher than all of them."""
    kind = values.type
    if pa.types.is_null(kind):
        return np.zeros(len(values), np.int64), 1
    if pa.types.is_struct(kind):
        return _joined([_nulls(values), *map(value_codes, values.flatten())], len(values))
    if pa.types.is_map(kind):
        entries = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        return _list_codes(values.cast(entries), sort=True)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list_codes(values.cast(pa.large_list(kind.value_type)))
    if pa.types.is_floating(kind):
        values = pc.add(pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values), pa.scalar(0.0, kind))
    encoded = values.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary) + 1


def _list_codes(lists: pa.Array, *, sort: bool = False) -> tuple[Codes, int]:
    """Codes of lists, put together position by position; `sort`: of entries of maps, each in the order of its keys."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements, starts = lists.flatten(), np.cumsum(lengths) - lengths
    of_elements, highest = value_codes(elements)
    if sort:
        of_keys, _ = value_codes(elements.field(0))
        of_elements = of_elements[np.lexsort((of_keys, np.repeat(np.arange(len(lengths)), lengths)))]
    codes, count = _dense(*_joined([_nulls(lists), (lengths, int(lengths.max(initial=0)) + 1)], len(lists)))
    for position in range(int(lengths.max(initial=0))):
        # Lists of other lengths have other codes from the start, so those that end here keep theirs.
        longer = np.flatnonzero(lengths > position)
        parts = [(codes[longer], count), (of_elements[starts[longer] + position], highest)]
        new, more = _dense(*_joined(parts, len(longer)))
        codes[longer], count = count + new, count + more
    return codes, count + 1


def _nulls(values: pa.Array) -> tuple[Codes, int]:
    return pc.is_null(values).to_numpy(zero_copy_only=False).astype(np.int64), 2


def _joined(parts: Sequence[tuple[Codes, int]], rows: int) -> tuple[Codes, int]:
    """One code for the codes of several columns."""
    joined, count = np.zeros(rows, np.int64), 1
    for codes, most in parts:
        if count * most >= MOST:
            joined, count = _dense(joined, count)
            codes, most = _dense(codes, most)
        joined, count = (joined * most + codes if count > 1 else codes), count * most
    return joined, count


def _dense(codes: Codes, count: int) -> tuple[Codes, int]:
    """The same codes without gaps, from 0 up in the order in which they first stand, and how many there are."""
    encoded = pa.array(codes, pa.int64()).dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)
