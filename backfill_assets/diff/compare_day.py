"""One day of a table, before and after, compared row by row and column by column."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from backfill_assets.diff.compare_rows import Column, Matched, Sides, differing
from backfill_assets.diff.diff import ColumnDiff, DayDiff, ExampleRow
from backfill_assets.diff.value_changes import EXAMPLES, Changes, changes_of, examples_of, smallest
from backfill_assets.diff.value_codes import Codes
from backfill_assets.diff.values_in_json import cut, in_json


@dataclass
class Totals:
    """What the days of a table that were compared come to, with a few examples, those of the earliest days."""

    columns: dict[str, Changes] = field(default_factory=dict)
    added_rows: list[ExampleRow] = field(default_factory=list)
    removed_rows: list[ExampleRow] = field(default_factory=list)


def compare_day(day: str, before: pa.Table, after: pa.Table, key: Sequence[str], keyed: bool, totals: Totals) -> DayDiff:
    """The rows of a day, neither side with its day column; `totals` takes them in.

    `key` is without the day column too: an empty one, where `keyed`, says that the day has one row.
    """
    sides = Sides(before, after, key, keyed)
    matched = sides.match()
    changed, columns = np.zeros(len(matched.before), bool), list[ColumnDiff]()
    for name, column in sides.columns.items():
        if name in key or not len(matched.before):
            continue
        if changes := _changes_in(column, matched, changed, sides, day, _wanted(totals, name)):
            columns.append(changes.column(with_examples=False))
            totals.columns.setdefault(name, Changes(name)).add(changes)
    totals.removed_rows += _rows(sides, day, "before", matched.removed, EXAMPLES - len(totals.removed_rows))
    totals.added_rows += _rows(sides, day, "after", matched.added, EXAMPLES - len(totals.added_rows))
    return _figures(day, sides, matched, int(changed.sum()), columns)


def _figures(day: str, sides: Sides, matched: Matched, pairs_changed: int, columns: Sequence[ColumnDiff]) -> DayDiff:
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


def _changes_in(column: Column, matched: Matched, changed: Any, sides: Sides, day: str, wanted: int) -> Changes | None:
    """What changed in one column of the pairs, which are marked in `changed`; None if nothing did."""
    before, after = _take(column.before, matched.before), _take(column.after, matched.after)
    differ = differing(before, after) if column.comparable else np.arange(len(before))
    if not len(differ):
        return None
    changed[differ] = True
    before, after = _take(before, differ), _take(after, differ)
    changes = changes_of(column.name, before, after)
    if wanted > 0:
        keys = {name: _take(sides.columns[name].before, matched.before[differ]) for name in sides.key}
        changes.examples = examples_of(day, keys, before, after, wanted)
    return changes


def _wanted(totals: Totals, name: str) -> int:
    return EXAMPLES - (len(totals.columns[name].examples) if name in totals.columns else 0)


def _rows(sides: Sides, day: str, side: str, rows: Codes, most: int) -> list[ExampleRow]:
    """A few of these rows: their keys, or all of them where there is no key."""
    if most <= 0 or not len(rows):
        return []
    names = sides.key if sides.keyed else list(sides.columns)
    columns = {name: _take(getattr(sides.columns[name], side), rows) for name in names}
    chosen = pa.array(smallest(columns, most) if columns else np.arange(min(most, len(rows))))
    values = {name: in_json(column.take(chosen)) for name, column in columns.items()}
    return [ExampleRow(day, {name: cut(values[name][n]) for name in names}) for n in range(len(chosen))]


def _take(values: pa.Array, rows: Codes) -> pa.Array:
    everything = len(rows) == len(values) and bool((rows == np.arange(len(rows))).all())
    return values if everything else values.take(pa.array(rows))
