"""A diff in words, for the terminal and for Dagster's UI."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backfill_assets.calendar import ranges
from backfill_assets.diff.diff import ColumnDiff, Diff, NumberChanges, TableDiff

COLUMNS = ("table", "days that differ", "rows before", "rows after", "added", "removed", "changed", "columns changed most")
COLUMNS_SHOWN, EXAMPLES_SHOWN, LONGEST_SHOWN = 3, 5, 60


def heading(diff: Diff) -> str:
    return f"{diff.before} → {diff.after}"


def rows(diff: Diff) -> list[tuple[str, ...]]:
    """A row a table that differs."""
    return [_row(table) for table in diff.tables if table.differs]


def _row(table: TableDiff) -> tuple[str, ...]:
    days = table.days_that_differ
    counts = [f"{table.total(f):,}" for f in ("rows_before", "rows_after", "added", "removed", "changed")]
    most = sorted(table.columns, key=lambda column: (-column.changed, column.name))
    columns = [f"{column.name} ({column.changed:,})" for column in most[:COLUMNS_SHOWN]]
    more = [f"{len(most) - COLUMNS_SHOWN} more"] if len(most) > COLUMNS_SHOWN else []
    return table.name, f"{len(days)}: {ranges(days)}" if days else "0", *counts, ", ".join([*columns, *more])


def lines(diff: Diff) -> Iterator[str]:
    """What the table of `rows` does not tell: columns that came or went, numbers, keys that repeat, examples; what is the
    same."""
    for table in diff.tables:
        if table.differs:
            yield from _lines_of(table)
    same = [table for table in diff.tables if not table.differs]
    if same:
        total = sum(table.total("unchanged") for table in same)
        yield f"The same: {', '.join(table.name for table in same)} ({total:,} rows)."
    unread = sum(len(table.same_days) for table in diff.tables)
    if unread:
        yield f"{unread} partition(s) with the same files or fingerprints on both sides were not read."
    if not diff.tables:
        yield "There is nothing to compare: no table has any of these days."


def _lines_of(table: TableDiff) -> Iterator[str]:
    for words, names in (("came", table.columns_added), ("went", table.columns_removed)):
        if names:
            yield f"{table.name}: columns that {words}: {', '.join(names)}"
    for name, words in table.columns_retyped.items():
        yield f"{table.name}: {name} has another type: {words}"
    repeated = [table.total(f"repeated_keys_{side}") for side in ("before", "after")]
    if any(repeated):
        yield (
            f"{table.name}: keys that stand more than once: {repeated[0]:,} before, {repeated[1]:,} after. Of their rows those "
            "that have no equal on the other side count as added and removed."
        )
    if not table.keyed:
        yield f"{table.name}: it has no key; rows are compared as a whole, and are only added and removed."
    for column in _most_changed(table):
        if column.numbers:
            yield f"{table.name}: {column.name}: {distribution(column.numbers)}"
    yield from [f"  {table.name} {example}" for example in examples(table)][:EXAMPLES_SHOWN]


def _most_changed(table: TableDiff) -> Sequence[ColumnDiff]:
    return sorted(table.columns, key=lambda column: (-column.changed, column.name))[:COLUMNS_SHOWN]


def examples(table: TableDiff) -> Iterator[str]:
    """A changed value of each column in turn, those that changed most first; then rows added and removed."""
    most = sorted(table.columns, key=lambda column: (-column.changed, column.name))
    deepest = max((len(column.examples) for column in most), default=0)
    for n in range(deepest):
        for column in most:
            for example in column.examples[n : n + 1]:
                where = " ".join([example.day, *keys(example.key)])
                yield f"{where}: {column.name} {value(example.before)} → {value(example.after)}"
        if n == 0:
            yield from _rows_in_words(table)
    if not deepest:
        yield from _rows_in_words(table)


def _rows_in_words(table: TableDiff) -> Iterator[str]:
    for words, of_rows in (("added", table.added_rows), ("removed", table.removed_rows)):
        for row in of_rows[:1]:
            yield f"{' '.join([row.day, *keys(row.values)])}: {words}"


def keys(key: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value(of)}" for name, of in key.items()]


def value(of: Any) -> str:
    """A value as JSON has it: a text, a number and null differ; a long one is cut off."""
    text = json.dumps(of, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def distribution(numbers: NumberChanges) -> str:
    """How much numbers changed, in one line."""
    changed = numbers.up + numbers.down
    others = f"{numbers.other:,} from or to null, NaN or infinity" if numbers.other else ""
    if not changed:
        return others
    spread = ", ".join(f"{name} {number(of)}" for name, of in (
        ("least", numbers.least), ("median", numbers.median), ("mean", numbers.mean), ("most", numbers.most)
    ))  # fmt: skip
    sums = f"their sum {number(numbers.sum_before)} → {number(numbers.sum_after)}"
    return "; ".join(filter(None, [f"{numbers.up:,} up, {numbers.down:,} down: {spread}", sums, others]))


def number(of: float) -> str:
    """As many digits as tell it apart: whole numbers in full."""
    return f"{of:,.0f}" if of == round(of) and abs(of) < 1e15 else f"{of:,.4g}"
