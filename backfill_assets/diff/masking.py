"""The differences of a table without the values of masked columns. Counts of rows remain."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from backfill_assets.diff.diff import ColumnDiff, Example, ExampleRow, GroupChange, TableDiff
from backfill_assets.quality.masking import MASKED, masked_row


def masked_diff(diff: TableDiff, masked: Collection[str]) -> TableDiff:
    """Replace the values of masked columns by a fixed text, and leave out figures of values."""
    if not masked:
        return diff

    def is_masked(name: str) -> bool:
        return masked_row({name: None}, masked)[name] == MASKED

    def example(found: Example, name: str) -> Example:
        key = masked_row(found.key, masked)
        if is_masked(name):
            return replace(found, key=key, before=MASKED, after=MASKED)
        return replace(found, key=key)

    def columns(found: Iterable[ColumnDiff]) -> tuple[ColumnDiff, ...]:
        return tuple(
            replace(
                column,
                examples=tuple(example(each, column.name) for each in column.examples),
                **(_NO_FIGURES if is_masked(column.name) else {}),
            )
            for column in found
        )

    return replace(
        diff,
        days=tuple(replace(day, columns=columns(day.columns)) for day in diff.days),
        columns=columns(diff.columns),
        added_rows=_rows(diff.added_rows, masked),
        removed_rows=_rows(diff.removed_rows, masked),
        groups=tuple(
            _group(group, is_masked(group.key), is_masked(group.column)) for group in diff.groups
        ),
    )


def _group(group: GroupChange, hides_value: bool, hides_figures: bool) -> GroupChange:
    if hides_value:
        group = replace(group, value=MASKED)
    return replace(group, before=None, after=None) if hides_figures else group


_NO_FIGURES: Mapping[str, Any] = {"numbers": None, "frequent": ()}


def _rows(rows: Iterable[ExampleRow], masked: Collection[str]) -> tuple[ExampleRow, ...]:
    return tuple(replace(row, values=masked_row(row.values, masked)) for row in rows)
