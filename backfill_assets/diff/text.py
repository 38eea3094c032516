"""The text of a diff for the terminal, and its HTML page.

The page needs no other file. Every value is escaped, because rows come from sources.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from backfill_assets.calendar import ranges
from backfill_assets.diff.diff import ColumnDiff, DayDiff, Diff, NumberChanges, TableDiff

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
_LONGEST_SHOWN = 60


def diff_heading(diff: Diff) -> str:
    return f"{diff.before} → {diff.after}"


def summary_rows(diff: Diff) -> list[tuple[str, ...]]:
    """A row a table that differs."""
    return [_row(table) for table in diff.tables if table.differs]


def _row(table: TableDiff) -> tuple[str, ...]:
    days = table.days_that_differ
    counts = [
        f"{table.total(f):,}" for f in ("rows_before", "rows_after", "added", "removed", "changed")
    ]
    most = sorted(table.columns, key=lambda column: (-column.changed, column.name))
    columns = [f"{column.name} ({column.changed:,})" for column in most[:_COLUMNS_SHOWN]]
    more = [f"{len(most) - _COLUMNS_SHOWN} more"] if len(most) > _COLUMNS_SHOWN else []
    return (
        table.name,
        f"{len(days)}: {ranges(days)}" if days else "0",
        *counts,
        ", ".join([*columns, *more]),
    )


def detail_lines(diff: Diff) -> Iterator[str]:
    """What the table of `rows` does not tell: columns that came or went, numbers, keys that repeat,
    examples; what is the same.
    """
    for table in diff.tables:
        if table.differs:
            yield from _lines_of(table)
    same = [table for table in diff.tables if not table.differs]
    if same:
        total = sum(table.total("unchanged") for table in same)
        yield f"The same: {', '.join(table.name for table in same)} ({total:,} rows)."
    unread = sum(len(table.same_days) for table in diff.tables)
    if unread:
        yield (
            f"{unread} partition(s) with the same files or fingerprints on both sides were not"
            " read."
        )
    if not diff.tables:
        yield "There is nothing to compare: no table has any of these days."


def _lines_of(table: TableDiff) -> Iterator[str]:
    for words, names in (("added", table.columns_added), ("removed", table.columns_removed)):
        if names:
            yield f"{table.name}: columns that were {words}: {', '.join(names)}"
    for name, words in table.columns_retyped.items():
        yield f"{table.name}: {name} has another type: {words}"
    repeated = [table.total(f"repeated_keys_{side}") for side in ("before", "after")]
    if any(repeated):
        yield (
            f"{table.name}: keys that stand more than once: {repeated[0]:,} before, {repeated[1]:,}"
            " after. Of their rows those that have no equal on the other side count as added and"
            " removed."
        )
    if not table.keyed:
        yield (
            f"{table.name}: it has no key; rows are compared as a whole, and are only added and"
            " removed."
        )
    for column in _most_changed(table):
        if column.numbers:
            yield f"{table.name}: {column.name}: {_distribution(column.numbers)}"
    yield from [f"  {table.name} {example}" for example in _examples(table)][:_EXAMPLES_SHOWN]


def _most_changed(table: TableDiff) -> Sequence[ColumnDiff]:
    return sorted(table.columns, key=lambda column: (-column.changed, column.name))[:_COLUMNS_SHOWN]


def _examples(table: TableDiff) -> Iterator[str]:
    """A changed value of each column in turn, those that changed most first; then rows added and
    removed.
    """
    most = sorted(table.columns, key=lambda column: (-column.changed, column.name))
    deepest = max((len(column.examples) for column in most), default=0)
    for n in range(deepest):
        for column in most:
            for example in column.examples[n : n + 1]:
                where = " ".join([example.day, *_keys(example.key)])
                yield f"{where}: {column.name} {_value(example.before)} → {_value(example.after)}"
        if n == 0:
            yield from _rows_in_words(table)
    if not deepest:
        yield from _rows_in_words(table)


def _rows_in_words(table: TableDiff) -> Iterator[str]:
    for words, of_rows in (("added", table.added_rows), ("removed", table.removed_rows)):
        for row in of_rows[:1]:
            yield f"{' '.join([row.day, *_keys(row.values)])}: {words}"


def _keys(key: Mapping[str, Any]) -> list[str]:
    return [f"{name}={_value(of)}" for name, of in key.items()]


def _value(of: Any) -> str:
    """A value as JSON has it: a text, a number and null differ; a long one is cut off."""
    text = json.dumps(of, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _distribution(numbers: NumberChanges) -> str:
    """How much numbers changed, in one line."""
    changed = numbers.up + numbers.down
    others = f"{numbers.other:,} from or to null, NaN or infinity" if numbers.other else ""
    if not changed:
        return others
    spread = ", ".join(
        f"{name} {_number(of)}"
        for name, of in (
            ("least", numbers.least),
            ("median", numbers.median),
            ("mean", numbers.mean),
            ("most", numbers.most),
        )
    )
    sums = f"their sum {_number(numbers.sum_before)} → {_number(numbers.sum_after)}"
    return "; ".join(
        filter(None, [f"{numbers.up:,} up, {numbers.down:,} down: {spread}", sums, others])
    )


def _number(of: float) -> str:
    """As many digits as tell it apart: whole numbers in full."""
    return f"{of:,.0f}" if of == round(of) and abs(of) < 1e15 else f"{of:,.4g}"


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
_BAR_PIXELS = 160  # pixels
_DAY_FIGURES = ("rows_before", "rows_after", "added", "removed", "changed", "unchanged")


def html_page(diff: Diff) -> str:
    """The whole page. The same diff gives the same page."""
    title = escape(diff_heading(diff))
    differing = [table for table in diff.tables if table.differs]
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="note">Diff {escape(diff.id)}, made at {escape(diff.at)}.</p>',
        _table(SUMMARY_COLUMNS, summary_rows(diff)) if differing else "<p>Nothing differs.</p>",
        *(part for table in differing for part in _of_table(table)),
        *_same(diff),
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


def _same(diff: Diff) -> Iterator[str]:
    same = [table for table in diff.tables if not table.differs]
    if same:
        names = ((table.name, f"{table.total('unchanged'):,}") for table in same)
        yield f"<h2>The same</h2>{_table(('table', 'rows'), names)}"


def _of_table(table: TableDiff) -> Iterator[str]:
    yield f"<h2>{escape(table.name)}</h2>"
    key = (
        f"key: {', '.join(table.key) or 'the day'}"
        if table.keyed
        else "no key: rows are compared as a whole"
    )
    not_read = (
        f"; {len(table.same_days)} day(s) with the same files or fingerprints were not read"
        if table.same_days
        else ""
    )
    yield f'<p class="note">{escape(f"{table.before} → {table.after}; {key}{not_read}")}</p>'
    for words, names in (("added", table.columns_added), ("removed", table.columns_removed)):
        if names:
            yield f"<p>Columns that were {words}: {escape(', '.join(names))}</p>"
    for name, words in table.columns_retyped.items():
        yield f"<p>{escape(name)} has another type: {escape(words)}</p>"
    if table.columns:
        yield _table(
            ("column", "rows changed", "down and up", "how"),
            map(_column, _by_changes(table.columns)),
        )
    examples = [(e.day, ", ".join(_keys(e.key)), c.name, _value(e.before), _value(e.after))
                for c in _by_changes(table.columns) for e in c.examples]  # fmt: skip
    if examples:
        yield f"<h3>Examples</h3>{_table(('day', 'key', 'column', 'before', 'after'), examples)}"
    for words, rows in (("added", table.added_rows), ("removed", table.removed_rows)):
        if rows:
            listed = "".join(
                f"<li>{escape(', '.join([row.day, *_keys(row.values)]))}</li>" for row in rows
            )
            yield f'<h3 class="{words}">Rows {words}: examples</h3><ul>{listed}</ul>'
    yield "<h3>By day</h3>" + _table(
        ("day", *map(_spaced, _DAY_FIGURES), "columns"), map(_day, table.days)
    )


def _by_changes(columns: Iterable[ColumnDiff]) -> list[ColumnDiff]:
    return sorted(columns, key=lambda column: (-column.changed, column.name))


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _day(day: DayDiff) -> tuple[Any, ...]:
    columns = ", ".join(
        f"{column.name} ({column.changed:,})" for column in _by_changes(day.columns)
    )
    repeated = day.repeated_keys_before + day.repeated_keys_after
    notes = [columns, f"{repeated:,} repeated key(s)" if repeated else ""]
    return (
        day.day,
        *(getattr(day, figure) for figure in _DAY_FIGURES),
        "; ".join(filter(None, notes)),
    )


class _Markup(str):
    """HTML that is escaped already."""


def _column(column: ColumnDiff) -> tuple[Any, ...]:
    if column.numbers:
        return column.name, column.changed, _bar(column), _distribution(column.numbers)
    changes = (f"{_value(c.before)} → {_value(c.after)} ({c.rows:,})" for c in column.frequent)
    return column.name, column.changed, "", _Markup("<br>".join(map(escape, changes)))


def _bar(column: ColumnDiff) -> _Markup:
    """How many went down and how many up, as the two parts of a bar."""
    numbers = column.numbers
    total = (numbers.down + numbers.up) if numbers else 0
    if not numbers or not total:
        return _Markup()
    down = round(_BAR_PIXELS * numbers.down / total)
    parts = (("down", down, numbers.down), ("up", _BAR_PIXELS - down, numbers.up))
    return _Markup(
        "".join(
            f'<span class="bar {n}" style="width:{w}px" title="{c:,} {n}"></span>'
            for n, w, c in parts
            if w
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
