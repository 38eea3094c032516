"""Values of any column in a form that JSON, a terminal and a page can hold."""

import json
import math
from datetime import date, datetime
from typing import Any

import pyarrow as pa

LONGEST = 200  # characters of one value


def in_json(values: pa.Array) -> list[Any]:
    """Values as JSON has them: dates and decimals as text, bytes in hexadecimal, nested ones as the text of their JSON."""
    try:
        listed = values.to_pylist()
    except (ValueError, OverflowError):  # text that is not UTF-8, a year that Python has no date for
        if pa.types.is_nested(values.type):
            return ["(holds a value that Python does not)"] * len(values)
        listed = values.cast(pa.large_binary() if pa.types.is_large_string(values.type) else pa.string()).to_pylist()
    return [json.dumps(_plain(v), ensure_ascii=False) if isinstance(v, list | dict) else _plain(v) for v in listed]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def told_apart(before: Any, after: Any) -> tuple[Any, Any]:
    """Both values; of long texts the part from a little before where they begin to differ."""
    if not isinstance(before, str) or not isinstance(after, str) or max(len(before), len(after)) <= LONGEST:
        return cut(before), cut(after)
    same = next((n for n, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 10**9)
    start = max(0, min(same, len(before), len(after)) - LONGEST // 4)
    return tuple(cut(f"…{each[start:]}" if start else each) for each in (before, after))


def cut(value: Any) -> Any:
    return f"{value[:LONGEST]}…" if isinstance(value, str) and len(value) > LONGEST else value
