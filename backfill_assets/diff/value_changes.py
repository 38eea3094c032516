"""The changed values of one column: how numbers are distributed, which changes are frequent, and a few examples."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.diff.diff import ColumnDiff, Example, NumberChanges, ValueChange
from backfill_assets.diff.number_changes import Floats, is_number, number_changes, points_of, together
from backfill_assets.diff.value_codes import Codes, row_codes
from backfill_assets.diff.values_in_json import in_json, told_apart

FREQUENT, EXAMPLES = 5, 3
# So many changes of a day are remembered when the days of a table are put together.
FREQUENT_OF_DAY = 100


@dataclass
class Changes:
    """The changes of one column on a day, or on several: `points` stand for the differences, each as often as its weight."""

    name: str
    rows: int = 0
    numbers: NumberChanges | None = None
    points: list[Floats] = field(default_factory=list)
    weights: list[Floats] = field(default_factory=list)
    frequent: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)

    def add(self, other: "Changes") -> None:
        """Take in the changes of a later day."""
        self.rows += other.rows
        self.frequent.update(other.frequent)
        self.points += other.points
        self.weights += other.weights
        self.examples = [*self.examples, *other.examples][:EXAMPLES]
        if other.numbers:
            self.numbers = together(self.numbers, other.numbers, self.points, self.weights) if self.numbers else other.numbers

    def column(self, *, with_examples: bool = True) -> ColumnDiff:
        frequent = sorted(self.frequent.items(), key=lambda each: (-each[1], each[0]))[:FREQUENT]
        pairs = [(*json.loads(pair), rows) for pair, rows in frequent]
        values = tuple(ValueChange(before, after, rows) for before, after, rows in pairs)
        return ColumnDiff(self.name, self.rows, self.numbers, values, tuple(self.examples) if with_examples else ())


def changes_of(name: str, before: pa.Array, after: pa.Array) -> Changes:
    """The changes from each value of `before` to the one of `after` beside it, all of which differ."""
    if is_number(before.type) and is_number(after.type):
        numbers, differences = number_changes(before, after)
        points, weight = points_of(differences)
        return Changes(name, len(before), numbers, [points], [np.full(len(points), weight)])
    return Changes(name, len(before), frequent=frequent_changes(before, after))


def frequent_changes(before: pa.Array, after: pa.Array) -> Counter[str]:
    """How many rows changed from which value to which, as JSON pairs: the most frequent ones."""
    same_type = before.type == after.type
    both = [pa.concat_arrays([before, after])] if same_type else [before, after]
    codes, count = row_codes(both, len(both[0]))
    if same_type:
        split = [pa.array(codes[: len(before)]), pa.array(codes[len(before) :])]
        codes, count = row_codes(split, len(before))
    rows, one = np.bincount(codes, minlength=count), np.zeros(count, np.int64)
    one[codes] = np.arange(len(codes))
    kept = np.arange(count)
    if count > FREQUENT_OF_DAY:
        columns = {"rows": -rows, "before": before.take(pa.array(one)), "after": after.take(pa.array(one))}
        kept = smallest(columns, FREQUENT_OF_DAY)
    values = [in_json(each.take(pa.array(one[kept]))) for each in (before, after)]
    frequent: Counter[str] = Counter()
    for old, new, of_pair in zip(*values, rows[kept].tolist(), strict=True):
        frequent[json.dumps(told_apart(old, new), ensure_ascii=False)] += of_pair
    return frequent


def examples_of(day: str, keys: Mapping[str, pa.Array], before: pa.Array, after: pa.Array, most: int) -> list[Example]:
    """The changes of the rows with the smallest keys; all arguments are those of the changed rows."""
    chosen = pa.array(smallest(keys, most) if keys else np.arange(min(most, len(before))))
    of_keys = {name: in_json(column.take(chosen)) for name, column in keys.items()}
    pairs = zip(*(in_json(each.take(chosen)) for each in (before, after)), strict=True)
    return [
        Example(day, {name: of_keys[name][n] for name in of_keys}, *told_apart(old, new)) for n, (old, new) in enumerate(pairs)
    ]


def smallest(columns: Mapping[str, Any], most: int) -> Codes:
    """The first rows in the order of these columns, whatever the order in which they are stored. Nested ones have no order."""
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
