"""Compare one day of a table, before and after, row by row and column by column.

For each column it finds how numbers changed (the distribution of after - before), which changes are
frequent, and a few examples. Values are kept in a form that JSON, a terminal and a page can hold.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.diff.diff import (
    ColumnDiff,
    DayDiff,
    Example,
    ExampleRow,
    NumberChanges,
    ValueChange,
)
from backfill_assets.diff.rows import (
    Codes,
    Column,
    DayRows,
    RowMatches,
    changed_positions,
    row_codes,
)

# So many differences of a day are remembered when the days of a table are put together.
_POINTS_OF_DAY = 1001
# Integers below this have exact differences in 64 bits.
_EXACT_BELOW = 2.0**62
_Floats = npt.NDArray[np.float64]


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _number_changes(before: pa.Array, after: pa.Array) -> tuple[NumberChanges, _Floats]:
    """The distribution, and the differences in order."""
    numbers = [
        each.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        for each in (before, after)
    ]
    finite = np.isfinite(numbers[0]) & np.isfinite(numbers[1])
    first, second = (each[finite] for each in numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        differences = second - first
        if pa.types.is_integer(before.type) and pa.types.is_integer(after.type):
            whole = [
                pc.fill_null(each, 0).to_numpy(zero_copy_only=False).astype(np.int64)[finite]
                for each in (before, after)
            ]
            differences = np.where(
                np.abs(differences) < _EXACT_BELOW, whole[1] - whole[0], differences
            )
        differences = np.sort(np.nan_to_num(differences))
        sums = [float(np.nan_to_num(each.sum())) for each in (first, second)]
        mean = float(np.nan_to_num(differences.mean())) if len(differences) else 0.0
    other = int((~finite).sum())
    if not len(differences):
        return NumberChanges(other=other), differences
    up = int((differences > 0).sum())
    down = int((differences < 0).sum())
    median = float(np.nan_to_num(np.median(differences)))
    # Numbers that differ by less than a float shows are neither.
    other += len(differences) - up - down
    return (
        NumberChanges(
            up, down, other, float(differences[0]), median, mean, float(differences[-1]), *sums
        ),
        differences,
    )


def _sample(differences: _Floats) -> tuple[_Floats, float]:
    """Differences in order, or as many of them at equal distances as are remembered; and how many
    each stands for.
    """
    if len(differences) <= _POINTS_OF_DAY:
        return differences, 1.0
    at = np.linspace(0, len(differences) - 1, _POINTS_OF_DAY).round().astype(np.int64)
    return differences[at], len(differences) / _POINTS_OF_DAY


def _combined(
    one: NumberChanges, other: NumberChanges, points: Sequence[_Floats], weights: Sequence[_Floats]
) -> NumberChanges:
    if not one.up + one.down or not other.up + other.down:
        some = one if one.up + one.down else other
        return NumberChanges(**vars(some) | {"other": one.other + other.other})
    counts = [one.up + one.down, other.up + other.down]
    mean = (one.mean * counts[0] + other.mean * counts[1]) / sum(counts)
    return NumberChanges(
        one.up + other.up,
        one.down + other.down,
        one.other + other.other,
        min(one.least, other.least),
        _weighted_median(np.concatenate(points), np.concatenate(weights)),
        mean,
        max(one.most, other.most),
        one.sum_before + other.sum_before,
        one.sum_after + other.sum_after,
    )


def _weighted_median(points: _Floats, weights: _Floats) -> float:
    order = np.argsort(points, kind="stable")
    points = points[order]
    reached = np.cumsum(weights[order])
    middle = reached[-1] / 2
    at = int(np.searchsorted(reached, middle))
    halfway = math.isclose(reached[at], middle) and at + 1 < len(points)
    return float((points[at] + points[at + 1]) / 2 if halfway else points[at])


_LONGEST_VALUE = 200  # characters of one value


def _json_values(values: pa.Array) -> list[Any]:
    """Values as JSON has them: dates and decimals as text, bytes in hexadecimal, nested ones as the
    text of their JSON.
    """
    try:
        listed = values.to_pylist()
    except (ValueError, OverflowError):
        # Text that is not UTF-8, a year that Python has no date for.
        if pa.types.is_nested(values.type):
            return ["(holds a value that Python does not)"] * len(values)
        listed = values.cast(
            pa.large_binary() if pa.types.is_large_string(values.type) else pa.string()
        ).to_pylist()
    return [
        json.dumps(_plain(v), ensure_ascii=False) if isinstance(v, list | dict) else _plain(v)
        for v in listed
    ]


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


def _shortened_pair(before: Any, after: Any) -> tuple[Any, Any]:
    """Both values; of long texts the part from a little before where they begin to differ."""
    if (
        not isinstance(before, str)
        or not isinstance(after, str)
        or max(len(before), len(after)) <= _LONGEST_VALUE
    ):
        return _shortened(before), _shortened(after)
    same = next(
        (n for n, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
        10**9,
    )
    start = max(0, min(same, len(before), len(after)) - _LONGEST_VALUE // 4)
    return tuple(_shortened(f"…{each[start:]}" if start else each) for each in (before, after))


def _shortened(value: Any) -> Any:
    return (
        f"{value[:_LONGEST_VALUE]}…"
        if isinstance(value, str) and len(value) > _LONGEST_VALUE
        else value
    )


_FREQUENT_SHOWN = 5
_EXAMPLES_SHOWN = 3
# So many changes of a day are remembered when the days of a table are put together.
_FREQUENT_OF_DAY = 100


@dataclass
class ColumnChanges:
    """The changes of one column on a day, or on several: `points` stand for the differences, each
    as often as its weight.
    """

    name: str
    rows: int = 0
    numbers: NumberChanges | None = None
    points: list[_Floats] = field(default_factory=list)
    weights: list[_Floats] = field(default_factory=list)
    frequent: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)

    def add(self, other: "ColumnChanges") -> None:
        """Take in the changes of a later day."""
        self.rows += other.rows
        self.frequent.update(other.frequent)
        self.points += other.points
        self.weights += other.weights
        self.examples = [*self.examples, *other.examples][:_EXAMPLES_SHOWN]
        if other.numbers:
            self.numbers = (
                _combined(self.numbers, other.numbers, self.points, self.weights)
                if self.numbers
                else other.numbers
            )

    def column(self, *, with_examples: bool = True) -> ColumnDiff:
        frequent = sorted(self.frequent.items(), key=lambda each: (-each[1], each[0]))[
            :_FREQUENT_SHOWN
        ]
        pairs = [(*json.loads(pair), rows) for pair, rows in frequent]
        values = tuple(ValueChange(before, after, rows) for before, after, rows in pairs)
        return ColumnDiff(
            self.name,
            self.rows,
            self.numbers,
            values,
            tuple(self.examples) if with_examples else (),
        )


def _column_changes(name: str, before: pa.Array, after: pa.Array) -> ColumnChanges:
    """The changes from `before` to `after`. All values differ, position by position."""
    if _is_number(before.type) and _is_number(after.type):
        numbers, differences = _number_changes(before, after)
        points, weight = _sample(differences)
        return ColumnChanges(name, len(before), numbers, [points], [np.full(len(points), weight)])
    return ColumnChanges(name, len(before), frequent=_frequent_changes(before, after))


def _frequent_changes(before: pa.Array, after: pa.Array) -> Counter[str]:
    """How many rows changed from which value to which, as JSON pairs: the most frequent ones."""
    same_type = before.type == after.type
    both = [pa.concat_arrays([before, after])] if same_type else [before, after]
    codes, count = row_codes(both, len(both[0]))
    if same_type:
        split = [pa.array(codes[: len(before)]), pa.array(codes[len(before) :])]
        codes, count = row_codes(split, len(before))
    rows = np.bincount(codes, minlength=count)
    one = np.zeros(count, np.int64)
    one[codes] = np.arange(len(codes))
    kept = np.arange(count)
    if count > _FREQUENT_OF_DAY:
        columns = {
            "rows": -rows,
            "before": before.take(pa.array(one)),
            "after": after.take(pa.array(one)),
        }
        kept = _smallest(columns, _FREQUENT_OF_DAY)
    values = [_json_values(each.take(pa.array(one[kept]))) for each in (before, after)]
    frequent: Counter[str] = Counter()
    for old, new, of_pair in zip(*values, rows[kept].tolist(), strict=True):
        frequent[json.dumps(_shortened_pair(old, new), ensure_ascii=False)] += of_pair
    return frequent


def _examples(
    day: str, keys: Mapping[str, pa.Array], before: pa.Array, after: pa.Array, most: int
) -> list[Example]:
    """The changes of the rows with the smallest keys. All arrays have only changed rows."""
    chosen = pa.array(_smallest(keys, most) if keys else np.arange(min(most, len(before))))
    of_keys = {name: _json_values(column.take(chosen)) for name, column in keys.items()}
    pairs = zip(*(_json_values(each.take(chosen)) for each in (before, after)), strict=True)
    return [
        Example(day, {name: of_keys[name][n] for name in of_keys}, *_shortened_pair(old, new))
        for n, (old, new) in enumerate(pairs)
    ]


def _smallest(columns: Mapping[str, Any], most: int) -> Codes:
    """The first rows in the order of these columns, whatever the order in which they are stored.
    Nested ones have no order.
    """
    arrays = {f"c{n}": _ordered(column) for n, column in enumerate(columns.values())}
    flat = {name: column for name, column in arrays.items() if not pa.types.is_nested(column.type)}
    if not flat:
        return np.arange(min(most, len(next(iter(arrays.values())))))
    order = pc.select_k_unstable(pa.table(flat), most, [(name, "ascending") for name in flat])
    return order.to_numpy(zero_copy_only=False).astype(np.int64)


def _ordered(column: Any) -> pa.Array:
    values = column if isinstance(column, pa.Array) else pa.array(column)
    kind = values.type
    return values.cast(pa.int8()) if pa.types.is_boolean(kind) or pa.types.is_null(kind) else values


@dataclass
class TableTotals:
    """What the days of a table that were compared come to, with a few examples, those of the
    earliest days.
    """

    columns: dict[str, ColumnChanges] = field(default_factory=dict)
    added_rows: list[ExampleRow] = field(default_factory=list)
    removed_rows: list[ExampleRow] = field(default_factory=list)


def compare_day(
    day: str,
    before: pa.Table,
    after: pa.Table,
    key: Sequence[str],
    keyed: bool,
    totals: TableTotals,
) -> DayDiff:
    """The rows of a day, neither side with its day column; `totals` takes them in.

    `key` is without the day column too: an empty one, where `keyed`, says that the day has one row.
    """
    sides = DayRows(before, after, key, keyed)
    matched = sides.match()
    changed = np.zeros(len(matched.before), bool)
    columns = list[ColumnDiff]()
    for name, column in sides.columns.items():
        if name in key or not len(matched.before):
            continue
        if changes := _changes_in(column, matched, changed, sides, day, _wanted(totals, name)):
            columns.append(changes.column(with_examples=False))
            totals.columns.setdefault(name, ColumnChanges(name)).add(changes)
    totals.removed_rows += _rows(
        sides, day, "before", matched.removed, _EXAMPLES_SHOWN - len(totals.removed_rows)
    )
    totals.added_rows += _rows(
        sides, day, "after", matched.added, _EXAMPLES_SHOWN - len(totals.added_rows)
    )
    return _figures(day, sides, matched, int(changed.sum()), columns)


def _figures(
    day: str, sides: DayRows, matched: RowMatches, pairs_changed: int, columns: Sequence[ColumnDiff]
) -> DayDiff:
    return DayDiff(
        day=day,
        rows_before=sides.before.num_rows,
        rows_after=sides.after.num_rows,
        added=len(matched.added),
        removed=len(matched.removed),
        changed=pairs_changed,
        unchanged=len(matched.before) - pairs_changed + matched.same,
        repeated_keys_before=matched.repeated_before,
        repeated_keys_after=matched.repeated_after,
        columns=tuple(columns),
    )


def _changes_in(
    column: Column, matched: RowMatches, changed: Any, sides: DayRows, day: str, wanted: int
) -> ColumnChanges | None:
    """The changes of one column, or None. Marks the changed pairs in `changed`."""
    before = _take(column.before, matched.before)
    after = _take(column.after, matched.after)
    differ = changed_positions(before, after) if column.comparable else np.arange(len(before))
    if not len(differ):
        return None
    changed[differ] = True
    before = _take(before, differ)
    after = _take(after, differ)
    changes = _column_changes(column.name, before, after)
    if wanted > 0:
        keys = {
            name: _take(sides.columns[name].before, matched.before[differ]) for name in sides.key
        }
        changes.examples = _examples(day, keys, before, after, wanted)
    return changes


def _wanted(totals: TableTotals, name: str) -> int:
    return _EXAMPLES_SHOWN - (len(totals.columns[name].examples) if name in totals.columns else 0)


def _rows(sides: DayRows, day: str, side: str, rows: Codes, most: int) -> list[ExampleRow]:
    """A few of these rows: their keys, or all of them where there is no key."""
    if most <= 0 or not len(rows):
        return []
    names = sides.key if sides.keyed else list(sides.columns)
    columns = {name: _take(getattr(sides.columns[name], side), rows) for name in names}
    chosen = pa.array(_smallest(columns, most) if columns else np.arange(min(most, len(rows))))
    values = {name: _json_values(column.take(chosen)) for name, column in columns.items()}
    return [
        ExampleRow(day, {name: _shortened(values[name][n]) for name in names})
        for n in range(len(chosen))
    ]


def _take(values: pa.Array, rows: Codes) -> pa.Array:
    everything = len(rows) == len(values) and bool((rows == np.arange(len(rows))).all())
    return values if everything else values.take(pa.array(rows))
