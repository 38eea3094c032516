"""The differences of a table without the values of masked columns. Counts of rows remain."""

from collections.abc import Collection
from dataclasses import replace

from backfill_assets.diff.diff import ColumnDiff, ExampleRow, GroupChange, TableDiff
from backfill_assets.quality.masking import MASKED, is_masked, masked_row


def masked_diff(diff: TableDiff, masked: Collection[str]) -> TableDiff:
    """Replace the values of masked columns by a fixed text, and leave out figures of values."""

    def column(found: ColumnDiff) -> ColumnDiff:
        examples = tuple(replace(e, key=masked_row(e.key, masked)) for e in found.examples)
        if not is_masked(found.name, masked):
            return replace(found, examples=examples)
        hidden = tuple(replace(e, before=MASKED, after=MASKED) for e in examples)
        return ColumnDiff(found.name, found.changed, examples=hidden)

    def row(found: ExampleRow) -> ExampleRow:
        return replace(found, values=masked_row(found.values, masked))

    def group(found: GroupChange) -> GroupChange:
        if is_masked(found.column, masked):
            found = replace(found, before=None, after=None)
        return replace(found, value=MASKED) if is_masked(found.key, masked) else found

    if not masked:
        return diff
    # A masked column may have had another name.
    masked = [*masked, *diff.columns_removed, *diff.columns_added]
    return replace(
        diff,
        days=tuple(replace(day, columns=tuple(map(column, day.columns))) for day in diff.days),
        columns=tuple(map(column, diff.columns)),
        added_rows=tuple(map(row, diff.added_rows)),
        removed_rows=tuple(map(row, diff.removed_rows)),
        groups=tuple(map(group, diff.groups)),
    )
