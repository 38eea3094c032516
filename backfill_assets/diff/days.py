"""Compare one day of a table, before and after, row by row and column by column.

Each column gets the distribution of after - before for numbers, its frequent changes, and a few
examples. Values have a form that fits into JSON, a terminal and a page.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    NestedNulls,
    NumberChanges,
    ValueChange,
)
from backfill_assets.diff.groups import GroupTotals, is_number
from backfill_assets.diff.rows import Codes, Column, DayRows, as_doubles, entries_of, is_list, take
from backfill_assets.diff.tolerance import NO_TOLERANCES, Tolerances

# Differences of one day that are stored to compute the median of several days.
_POINTS_OF_DAY = 1001
# Frequent changes of one day that are stored to find the frequent ones of several days.
_FREQUENT_OF_DAY = 100
_FREQUENT_SHOWN = 5
_EXAMPLES_SHOWN = 3
_LONGEST_VALUE = 200  # characters of one value
# Integers below this have exact differences in 64 bits.
_EXACT_BELOW = 2.0**62
_Floats = npt.NDArray[np.float64]


@dataclass
class ChangedColumn:
    """The changes of one column on one or more days.

    `numbers` has the distribution of each day, and its differences in order or an even sample.
    """

    name: str
    rows: int = 0
    numbers: list[tuple[NumberChanges, _Floats]] = field(default_factory=list)
    frequent: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)

    def add(self, other: "ChangedColumn") -> None:
        """Add the changes of a later day."""
        self.rows += other.rows
        self.numbers += other.numbers
        self.frequent.update(other.frequent)
        self.examples += other.examples[: _EXAMPLES_SHOWN - len(self.examples)]

    def column(self) -> ColumnDiff:
        frequent = sorted(self.frequent.items(), key=lambda change: (-change[1], change[0]))
        changes = []
        for pair, rows in frequent[:_FREQUENT_SHOWN]:
            before, after = json.loads(pair)
            changes.append(ValueChange(before, after, rows))
        return ColumnDiff(
            self.name,
            self.rows,
            _combined(self.numbers) if self.numbers else None,
            tuple(changes),
            tuple(self.examples),
        )


@dataclass
class TableTotals:
    """The changes of the compared days together, with examples from the earliest days."""

    columns: dict[str, ChangedColumn] = field(default_factory=dict)
    added_rows: list[ExampleRow] = field(default_factory=list)
    removed_rows: list[ExampleRow] = field(default_factory=list)
    groups: GroupTotals = field(default_factory=GroupTotals)
    # By column: rows that differ by no more than its tolerance.
    within: Counter[str] = field(default_factory=Counter)


def compare_day(
    day: str,
    before: pa.Table,
    after: pa.Table,
    key: Sequence[str] | None,
    totals: TableTotals,
    lineage: Collection[str] = (),
    tolerances: Tolerances = NO_TOLERANCES,
) -> DayDiff:
    """Compare the rows of a day, and add the result to `totals`.

    The rows and the key are without the day column. An empty key means that the day has one row;
    None means that the table has no key. Without a key, rows that differ only in columns of
    `lineage` are changed. Numbers within the tolerance of their column are equal.
    """
    sides = DayRows(before, after, key, lineage)
    matches = sides.match()
    if before.num_rows:  # a new day has no earlier rows to compare
        totals.groups.add(day, sides.columns, tuple(key or ()))
    changed = np.zeros(len(matches.before), bool)
    columns = list[ColumnDiff]()
    for name, column in sides.columns.items():
        if name in (key or ()) or not len(changed):
            continue
        rows = column.changed_positions(matches.before, matches.after)
        old = take(column.before, matches.before[rows])
        new = take(column.after, matches.after[rows])
        if (tolerance := tolerances.get(name)) and is_number(old.type) and is_number(new.type):
            is_within = tolerance.allows(old, new)
            totals.within[name] += int(is_within.sum())
            beyond = np.flatnonzero(~is_within)
            rows = rows[beyond]
            old = take(old, beyond)
            new = take(new, beyond)
        if not len(rows):
            continue
        changed[rows] = True
        changes = _column_changes(name, old, new)
        columns.append(changes.column())
        total = totals.columns.setdefault(name, ChangedColumn(name))
        if len(total.examples) < _EXAMPLES_SHOWN:
            key_values = [sides.columns[name] for name in key or ()]
            changes.examples = _examples(day, key_values, matches.before[rows], old, new)
        total.add(changes)
    _add_rows(totals.removed_rows, sides, day, "before", matches.removed)
    _add_rows(totals.added_rows, sides, day, "after", matches.added)
    pairs_changed = int(changed.sum())
    return DayDiff(
        day=day,
        rows_before=before.num_rows,
        rows_after=after.num_rows,
        added=len(matches.added),
        removed=len(matches.removed),
        changed=pairs_changed,
        unchanged=len(changed) - pairs_changed + matches.same,
        repeated_keys_before=matches.repeated_before,
        repeated_keys_after=matches.repeated_after,
        columns=tuple(columns),
        nested_nulls=tuple(_nested_nulls(sides)),
    )


def _nested_nulls(sides: DayRows) -> Iterator[NestedNulls]:
    """The nulls inside nested columns, at each path such as `places.element.county`.

    Values inside a null struct, array or map are not counted.
    """
    for name, column in sides.columns.items():
        if pa.types.is_nested(column.before.type) and pa.types.is_nested(column.after.type):
            before, after = (
                {path: (part.null_count, len(part)) for path, part in _parts(name, side)}
                for side in (column.before, column.after)
            )
            for path in before.keys() & after.keys():
                yield NestedNulls(path, *before[path], *after[path])


def _column_changes(name: str, before: pa.Array, after: pa.Array) -> ChangedColumn:
    """The changes from `before` to `after`, whose values differ at each position."""
    if is_number(before.type) and is_number(after.type):
        return ChangedColumn(name, len(before), [_number_changes(before, after)])
    return ChangedColumn(name, len(before), frequent=_frequent_changes(before, after))


def _number_changes(before: pa.Array, after: pa.Array) -> tuple[NumberChanges, _Floats]:
    """The distribution of after - before, and the differences in order or an even sample."""
    old, new = map(as_doubles, (before, after))
    finite = np.isfinite(old) & np.isfinite(new)
    if not finite.any():
        return NumberChanges(other=len(old)), np.empty(0)
    with np.errstate(over="ignore", invalid="ignore"):
        differences = (new - old)[finite]
        if pa.types.is_integer(before.type) and pa.types.is_integer(after.type):
            exact = pc.subtract(after.cast(pa.int64()), before.cast(pa.int64())).drop_null()
            differences = np.where(np.abs(differences) < _EXACT_BELOW, exact, differences)
        differences = np.sort(np.nan_to_num(differences))
        median, mean, sum_before, sum_after = (
            float(np.nan_to_num(figure))
            for figure in (
                np.median(differences),
                differences.mean(),
                old[finite].sum(),
                new[finite].sum(),
            )
        )
    up = int((differences > 0).sum())
    down = int((differences < 0).sum())
    numbers = NumberChanges(
        up=up,
        down=down,
        # Differences that a double cannot show count as `other`.
        other=len(old) - up - down,
        least=float(differences[0]),
        median=median,
        mean=mean,
        most=float(differences[-1]),
        sum_before=sum_before,
        sum_after=sum_after,
    )
    if len(differences) > _POINTS_OF_DAY:
        positions = np.linspace(0, len(differences) - 1, _POINTS_OF_DAY).round().astype(np.int64)
        differences = differences[positions]
    return numbers, differences


def _combined(days: Sequence[tuple[NumberChanges, _Floats]]) -> NumberChanges:
    """The distribution over several days. Its median is close, and exact for one day."""
    numbers = [of_day for of_day, _ in days]
    other = sum(of_day.other for of_day in numbers)
    counted = [(of_day, points) for of_day, points in days if of_day.up + of_day.down]
    if len(counted) < 2:
        return replace((counted or days)[0][0], other=other)
    rows = np.array([of_day.up + of_day.down for of_day, _ in counted])
    sizes = [len(points) for _, points in counted]
    return NumberChanges(
        up=sum(of_day.up for of_day in numbers),
        down=sum(of_day.down for of_day in numbers),
        other=other,
        least=min(of_day.least for of_day, _ in counted),
        median=_weighted_median(
            np.concatenate([points for _, points in counted]), np.repeat(rows / sizes, sizes)
        ),
        mean=float(np.average([of_day.mean for of_day, _ in counted], weights=rows)),
        most=max(of_day.most for of_day, _ in counted),
        sum_before=sum(of_day.sum_before for of_day in numbers),
        sum_after=sum(of_day.sum_after for of_day in numbers),
    )


def _weighted_median(points: _Floats, weights: _Floats) -> float:
    order = np.argsort(points, kind="stable")
    points = points[order]
    reached = np.cumsum(weights[order])
    middle = reached[-1] / 2
    at = int(np.searchsorted(reached, middle))
    halfway = math.isclose(reached[at], middle) and at + 1 < len(points)
    return float((points[at] + points[at + 1]) / 2 if halfway else points[at])


def _frequent_changes(before: pa.Array, after: pa.Array) -> Counter[str]:
    """The most frequent changes, as JSON pairs of the values before and after, with their rows."""
    names = ["before", "after"]
    # Arrow does not group by nested values.
    values = [
        pa.array(_json_values(side)) if pa.types.is_nested(side.type) else side
        for side in (before, after)
    ]
    changes = pa.table(values, names).group_by(names).aggregate([([], "count_all")])
    order = [("count_all", "descending"), *((name, "ascending") for name in names)]
    most = changes.sort_by(order).slice(0, _FREQUENT_OF_DAY).combine_chunks()
    old, new = (_json_values(most[name]) for name in names)
    frequent = Counter[str]()
    for value, changed, rows in zip(old, new, most["count_all"].to_pylist(), strict=True):
        frequent[json.dumps(_shortened_pair(value, changed), ensure_ascii=False)] += rows
    return frequent


def _examples(
    day: str, key: Sequence[Column], key_rows: Codes, before: pa.Array, after: pa.Array
) -> list[Example]:
    """The changes of the rows with the smallest keys. `before` and `after` have changed rows."""
    key_values = {column.name: take(column.before, key_rows) for column in key}
    chosen = _smallest(key_values, len(before))
    keys = json_rows({name: values.take(chosen) for name, values in key_values.items()})
    old, new = (_json_values(side.take(chosen)) for side in (before, after))
    return [
        Example(day, keys[n] if keys else {}, *_shortened_pair(old[n], new[n]))
        for n in range(len(chosen))
    ]


def _add_rows(examples: list[ExampleRow], sides: DayRows, day: str, side: str, rows: Codes) -> None:
    """Add a few of these rows: their keys, or whole rows of a table without a key."""
    missing = _EXAMPLES_SHOWN - len(examples)
    if not missing or not len(rows):
        return
    names = sides.columns if sides.key is None else sides.key
    columns = {name: take(getattr(sides.columns[name], side), rows) for name in names}
    chosen = _smallest(columns, len(rows))[:missing]
    values = json_rows({name: column.take(chosen) for name, column in columns.items()})
    examples += [
        ExampleRow(
            day, {name: _shortened(value) for name, value in (values[n] if values else {}).items()}
        )
        for n in range(len(chosen))
    ]


def _smallest(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """The first few rows in the order of these columns. Nested columns have no order."""
    ordered = {
        f"c{n}": column
        for n, column in enumerate(columns.values())
        if not pa.types.is_nested(column.type)
    }
    if not ordered:
        return pa.array(range(min(_EXAMPLES_SHOWN, rows)), pa.int64())
    order = pc.sort_indices(pa.table(ordered), [(name, "ascending") for name in ordered])
    return order[:_EXAMPLES_SHOWN]


def json_rows(columns: Mapping[str, pa.Array]) -> list[dict[str, Any]]:
    """The rows of these columns, with values for JSON."""
    values = [_json_values(column) for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _json_values(values: pa.Array) -> list[Any]:
    """Values for JSON: dates and decimals as text, bytes in hexadecimal, nested values as JSON."""
    try:
        listed = values.to_pylist()
    except (ValueError, OverflowError):
        # Python has no such date, or the text is not UTF-8.
        if pa.types.is_nested(values.type):
            return ["(holds a value that Python does not)"] * len(values)
        is_text = pa.types.is_large_string(values.type)
        listed = values.cast(pa.large_binary() if is_text else pa.string()).to_pylist()
    return [
        json.dumps(_plain(value), ensure_ascii=False)
        if isinstance(value, list | dict)
        else _plain(value)
        for value in listed
    ]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def _shortened_pair(before: Any, after: Any) -> tuple[Any, Any]:
    """Both values. Long texts are cut to a part around their first difference."""
    if not isinstance(before, str) or not isinstance(after, str):
        return _shortened(before), _shortened(after)
    start = 0
    if max(len(before), len(after)) > _LONGEST_VALUE:
        pairs = enumerate(zip(before, after, strict=False))
        shorter = min(len(before), len(after))
        first_difference = next((n for n, (old, new) in pairs if old != new), shorter)
        start = max(0, first_difference - _LONGEST_VALUE // 4)
    cut = [f"…{text[start:]}" if start else text for text in (before, after)]
    return _shortened(cut[0]), _shortened(cut[1])


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return f"{value[:_LONGEST_VALUE]}…"
    return value


def _parts(name: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = values.type
    if pa.types.is_map(kind):
        items = entries_of(values).drop_null().flatten()
        of_values = items.field(1) if len(items) else pa.array([], kind.item_type)
        children = [(f"{name}.value", of_values)]
    elif is_list(kind):
        children = [(f"{name}.element", values.drop_null().flatten())]
    elif pa.types.is_struct(kind):
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
