"""Compare a plan, a day, two tables or two releases. No server and no Spark is needed.

The text is for a terminal. The HTML page needs no other file. Every value is escaped, because rows
come from sources.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from backfill_assets.calendar import ranges
from backfill_assets.diff.diff import (
    ColumnDiff,
    DayDiff,
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
from backfill_assets.verbs.report import (
    Line,
    Report,
    TableContents,
    refuse_page,
    table_of,
    write_page,
)
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
    if html:
        refuse_page(html, "Nothing was compared.")
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
    for line in _schema_lines(table):
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
            yield f"{table.name}: {column.name}: {_distribution(column.numbers)}"
    for example in islice(examples_of(table), _EXAMPLES_SHOWN):
        yield f"  {table.name} {example}"


def _schema_lines(table: TableDiff) -> Iterator[str]:
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


def _distribution(numbers: NumberChanges) -> str:
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


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem;
  padding: 0 1rem; color: #1c2430; }
table { border-collapse: collapse; margin: .6rem 0 1.2rem; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #d8dde5; padding: .25rem .7rem; text-align: left;
  vertical-align: top; }
th { background: #f1f4f8; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
.added { color: #14733c; } .removed { color: #a61b29; } .note { color: #586273; }
.bar { display: inline-block; height: .7rem; }
.bar.down { background: #d9777f; } .bar.up { background: #6fb98b; }
"""
_BAR_PIXELS = 160
_DAY_FIGURES = ("rows_before", "rows_after", "added", "removed", "changed", "unchanged")


def html_page(diff: Diff) -> str:
    """The whole page. The same diff gives the same page."""
    title = escape(diff_heading(diff))
    summary = summary_rows(diff)
    same = [
        (table.name, f"{table.total('unchanged'):,}") for table in diff.tables if not table.differs
    ]
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="note">Diff {escape(diff.id)}, made at {escape(diff.at)}.</p>',
        _table(SUMMARY_COLUMNS, summary) if summary else "<p>Nothing differs.</p>",
        *(f"<p>{escape(line)}</p>" for line in _tolerance_lines(diff)),
        *(part for table in diff.tables if table.differs for part in _table_parts(table)),
        f"<h2>The same</h2>{_table(('table', 'rows'), same)}" if same else "",
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport"'
        f' content="width=device-width"><title>{title}</title>'
    )
    body = "\n".join(parts)
    return (
        "<!doctype html>\n<html"
        f' lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _table_parts(table: TableDiff) -> Iterator[str]:
    yield f"<h2>{escape(table.name)}</h2>"
    key = f"key: {', '.join(table.key) or 'the day'}" if table.keyed else "no key: whole rows"
    not_read = (
        f"; {len(table.same_days)} day(s) with the same files or fingerprints were not read"
        if table.same_days
        else ""
    )
    yield f'<p class="note">{escape(f"{table.before} → {table.after}; {key}{not_read}")}</p>'
    for line in _schema_lines(table):
        yield f"<p>{escape(line)}</p>"
    if table.columns:
        head = ("column", "rows changed", "down and up", "how")
        yield _table(head, map(_column, table.most_changed))
    examples = [
        (
            example.day,
            ", ".join(keys_text(example.key)),
            column.name,
            *map(value_text, (example.before, example.after)),
        )
        for column in table.most_changed
        for example in column.examples
    ]
    if examples:
        yield f"<h3>Examples</h3>{_table(('day', 'key', 'column', 'before', 'after'), examples)}"
    for verb, rows in (("added", table.added_rows), ("removed", table.removed_rows)):
        if rows:
            listed = "".join(
                f"<li>{escape(', '.join([row.day, *keys_text(row.values)]))}</li>" for row in rows
            )
            yield f'<h3 class="{verb}">Rows {verb}: examples</h3><ul>{listed}</ul>'
    figures = [figure.replace("_", " ") for figure in _DAY_FIGURES]
    yield "<h3>By day</h3>" + _table(("day", *figures, "columns"), map(_day, table.days))


def _day(day: DayDiff) -> tuple[Any, ...]:
    notes = [f"{column.name} ({column.changed:,})" for column in by_changes(day.columns)]
    repeated = day.repeated_keys_before + day.repeated_keys_after
    if repeated:
        notes.append(f"{repeated:,} repeated key(s)")
    return (day.day, *(getattr(day, figure) for figure in _DAY_FIGURES), ", ".join(notes))


class _Markup(str):
    """Escaped HTML."""


def _column(column: ColumnDiff) -> tuple[Any, ...]:
    numbers = column.numbers
    if numbers:
        return column.name, column.changed, _bar(numbers), _distribution(numbers)
    changes = (
        f"{value_text(c.before)} → {value_text(c.after)} ({c.rows:,})" for c in column.frequent
    )
    return column.name, column.changed, "", _Markup("<br>".join(map(escape, changes)))


def _bar(numbers: NumberChanges) -> _Markup:
    """A bar with one part for the decreased rows and one for the increased rows."""
    total = numbers.down + numbers.up
    down = round(_BAR_PIXELS * numbers.down / total) if total else 0
    parts = (("down", down, numbers.down), ("up", _BAR_PIXELS - down, numbers.up))
    return _Markup(
        "".join(
            f'<span class="bar {name}" style="width:{width}px" title="{count:,} {name}"></span>'
            for name, width, count in parts
            if width and total
        )
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["".join(f"<th>{escape(name)}</th>" for name in head)]
    lines += ["".join(map(_cell, row)) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{value if isinstance(value, _Markup) else escape(str(value))}</td>"
