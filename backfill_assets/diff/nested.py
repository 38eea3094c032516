"""Nulls inside structs, arrays and maps, counted by path."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.types as types


def nested_nulls(name: str, values: pa.Array) -> dict[str, tuple[int, int]]:
    """The nulls and the values at each path inside a column, such as `places.element.county`.

    What a null struct, array or map would hold is not counted.
    """
    return {path: (part.null_count, len(part)) for path, part in _parts(name, values)}


def _parts(name: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = values.type
    if types.is_map(kind):
        entries = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        values = values.cast(entries)
        items = values.drop_null().flatten()
        children = [(f"{name}.value", items.field(1))] if len(items) else []
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        children = [(f"{name}.element", values.drop_null().flatten())]
    elif types.is_struct(kind):
        present = values.drop_null()
        children = [
            (f"{name}.{field.name}", part)
            for field, part in zip(kind, present.flatten(), strict=True)
        ]
    else:
        return
    for path, part in children:
        yield path, part
        yield from _parts(path, part)
