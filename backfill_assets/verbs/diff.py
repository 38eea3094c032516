"""Compare a plan, a day, two tables or two releases. No server and no Spark is needed.

The text is for a terminal. The page needs no other file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from backfill_assets.calendar import ranges
from backfill_assets.diff.diff import (
    Diff,
    NumberChanges,
    TableDiff,
    by_changes,
    examples_of,
    keys_text,
    value_text,
)
from backfill_assets.diff.sides import DiffRequest
from backfill_assets.errors import first_of
from backfill_assets.verbs.pages import render, write_page
from backfill_assets.verbs.report import Line, Report, TableContents, table_of
from backfill_assets.workspace import Workspace

SUMMARY_COLUMNS = (
    "table",
    "days that differ",
    "rows before",
    "rows after",
    "added",
    "removed",
    "changed",
    "columns changed most",
)
_COLUMNS_SHOWN = 3
_EXAMPLES_SHOWN = 5
_NUMBERS = slice(2, 7)


@dataclass(frozen=True)
class DiffReport(Report):
    diff: Diff
    # The file or the address of the stored page.
    page: str = ""

    @property
    def table(self) -> TableContents:
        return SUMMARY_COLUMNS, summary_rows(self.diff)

    @property
    def details(self) -> list[str]:
        return list(detail_lines(self.diff))

    def lines(self) -> Iterator[Line]:
        is_same = self.diff.tables and not self.diff.differs
        yield diff_heading(self.diff) + (": nothing differs" if is_same else "")
        if self.diff.differs:
            yield table_of(*self.table, right=_NUMBERS)
        yield from self.details
        if self.page:
            yield f"Written to {self.page}."

    def as_json(self) -> Mapping[str, Any]:
        return {**asdict(self.diff), "differs": self.diff.differs, "html": self.page}


def diff_report(
    comparison: DiffRequest, workspace: Workspace, html: Path | None = None
) -> DiffReport:
    """Compare two versions of tables. With `html`, write the page of the diff there."""
    diff = comparison.run(workspace)
    if html:
        write_page(html_page(diff), html)
    return DiffReport(diff, str(html) if html else "")


def diff_heading(diff: Diff) -> str:
    return f"{diff.before} → {diff.after}"


def summary_rows(diff: Diff) -> list[tuple[str, ...]]:
    """One row per table that differs."""
    return [summary_row(table) for table in diff.tables if table.differs]


def summary_row(table: TableDiff) -> tuple[str, ...]:
    """The figures of one table, as `SUMMARY_COLUMNS` names them."""
    days = table.days_that_differ
    counts = [
        f"{table.total(f):,}" for f in ("rows_before", "rows_after", "added", "removed", "changed")
    ]
    columns = [f"{column.name} ({column.changed:,})" for column in table.most_changed]
    shown = ", ".join(first_of(columns, _COLUMNS_SHOWN))
    return (table.name, f"{len(days)}: {ranges(days)}" if days else "0", *counts, shown)


def detail_lines(diff: Diff) -> Iterator[str]:
    """The facts missing in `summary_rows`: columns, numbers, repeated keys, examples."""
    for table in diff.tables:
        if table.differs:
            yield from _lines_of(table)
    yield from _tolerance_lines(diff)
    same = [table for table in diff.tables if not table.differs]
    if same:
        total = sum(table.total("unchanged") for table in same)
        yield f"The same: {', '.join(table.name for table in same)} ({total:,} rows)."
    unread = sum(len(table.same_days) for table in diff.tables)
    if unread:
        yield f"Not read, because files or fingerprints are the same: {unread} partition(s)."
    if not diff.tables:
        yield "There is nothing to compare: no table has any of these days."


def _lines_of(table: TableDiff) -> Iterator[str]:
    for line in schema_lines(table):
        yield f"{table.name}: {line}"
    before = table.total("repeated_keys_before")
    after = table.total("repeated_keys_after")
    if before or after:
        yield (
            f"{table.name}: repeated keys: {before:,} before, {after:,} after. Their rows count as"
            " added and removed, except those with an equal row on the other side."
        )
    if not table.keyed:
        yield f"{table.name}: no key, so whole rows are compared, and are only added or removed."
    for column in table.most_changed[:_COLUMNS_SHOWN]:
        if column.numbers:
            yield f"{table.name}: {column.name}: {distribution(column.numbers)}"
    for example in islice(examples_of(table), _EXAMPLES_SHOWN):
        yield f"  {table.name} {example}"


def schema_lines(table: TableDiff) -> Iterator[str]:
    if table.columns_added:
        yield f"columns added: {', '.join(table.columns_added)}"
    if table.columns_removed:
        yield f"columns removed: {', '.join(table.columns_removed)}"
    for name, types in table.columns_retyped.items():
        yield f"{name} has another type: {types}"


def _tolerance_lines(diff: Diff) -> Iterator[str]:
    """A line for each column with a tolerance, also for tables that are equal within it."""
    for table in diff.tables:
        for column in table.tolerated:
            yield (
                f"{table.name}: {column.name} has a tolerance of {column.tolerance}:"
                f" {column.rows:,} value(s) differ by no more, and count as unchanged."
            )


def distribution(numbers: NumberChanges) -> str:
    """The distribution of changes in one line."""
    others = f"{numbers.other:,} by null, NaN, infinity or less than a double shows"
    others = others if numbers.other else ""
    if not numbers.up + numbers.down:
        return others
    spread = ", ".join(
        f"{name} {_number(getattr(numbers, name))}" for name in ("least", "median", "mean", "most")
    )
    counts = f"{numbers.up:,} up, {numbers.down:,} down: {spread}"
    sums = f"sum {_number(numbers.sum_before)} → {_number(numbers.sum_after)}"
    return "; ".join(filter(None, [counts, sums, others]))


def _number(value: float) -> str:
    """A number with four digits; a whole number in full."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:,.4g}"


def html_page(diff: Diff) -> str:
    """The whole page. The same diff gives the same page."""
    values = {
        "diff": diff,
        "heading": diff_heading(diff),
        "columns": SUMMARY_COLUMNS,
        "summary": summary_rows(diff),
        "tolerances": list(_tolerance_lines(diff)),
    }
    filters = (by_changes, distribution, keys_text, schema_lines, value_text)
    return render("diff.html.jinja", values, *filters)
