"""A diff as one HTML page that needs nothing else. Every value is escaped: rows hold whatever a source sent."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from backfill_assets.diff import diff_text as text
from backfill_assets.diff.diff import ColumnDiff, DayDiff, Diff, TableDiff

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1c2430; }
table { border-collapse: collapse; margin: .6rem 0 1.2rem; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #d8dde5; padding: .25rem .7rem; text-align: left; vertical-align: top; }
th { background: #f1f4f8; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
.added { color: #14733c; } .removed { color: #a61b29; } .note { color: #586273; }
.bar { display: inline-block; height: .7rem; } .bar.down { background: #d9777f; } .bar.up { background: #6fb98b; }
"""
BAR = 160  # pixels
DAY_FIGURES = ("rows_before", "rows_after", "added", "removed", "changed", "unchanged")


def page(diff: Diff) -> str:
    """The whole page. The same diff gives the same page."""
    title = escape(text.heading(diff))
    differing = [table for table in diff.tables if table.differs]
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="note">Diff {escape(diff.id)}, made at {escape(diff.at)}.</p>',
        _table(text.COLUMNS, text.rows(diff)) if differing else "<p>Nothing differs.</p>",
        *(part for table in differing for part in _of_table(table)),
        *_same(diff),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'


def _same(diff: Diff) -> Iterator[str]:
    same = [table for table in diff.tables if not table.differs]
    if same:
        names = ((table.name, f"{table.total('unchanged'):,}") for table in same)
        yield f"<h2>The same</h2>{_table(('table', 'rows'), names)}"


def _of_table(table: TableDiff) -> Iterator[str]:
    yield f"<h2>{escape(table.name)}</h2>"
    key = f"key: {', '.join(table.key) or 'the day'}" if table.keyed else "no key: rows are compared as a whole"
    not_read = f"; {len(table.same_days)} day(s) with the same files or fingerprints were not read" if table.same_days else ""
    yield f'<p class="note">{escape(f"{table.before} → {table.after}; {key}{not_read}")}</p>'
    for words, names in (("came", table.columns_added), ("went", table.columns_removed)):
        if names:
            yield f"<p>Columns that {words}: {escape(', '.join(names))}</p>"
    for name, words in table.columns_retyped.items():
        yield f"<p>{escape(name)} has another type: {escape(words)}</p>"
    if table.columns:
        yield _table(("column", "rows changed", "down and up", "how"), map(_column, _by_changes(table.columns)))
    examples = [(e.day, ", ".join(text.keys(e.key)), c.name, text.value(e.before), text.value(e.after))
                for c in _by_changes(table.columns) for e in c.examples]  # fmt: skip
    if examples:
        yield f"<h3>Examples</h3>{_table(('day', 'key', 'column', 'before', 'after'), examples)}"
    for words, rows in (("added", table.added_rows), ("removed", table.removed_rows)):
        if rows:
            listed = "".join(f"<li>{escape(', '.join([row.day, *text.keys(row.values)]))}</li>" for row in rows)
            yield f'<h3 class="{words}">Rows {words}: examples</h3><ul>{listed}</ul>'
    yield "<h3>By day</h3>" + _table(("day", *map(_spaced, DAY_FIGURES), "columns"), map(_day, table.days))


def _by_changes(columns: Iterable[ColumnDiff]) -> list[ColumnDiff]:
    return sorted(columns, key=lambda column: (-column.changed, column.name))


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _day(day: DayDiff) -> tuple[Any, ...]:
    columns = ", ".join(f"{column.name} ({column.changed:,})" for column in _by_changes(day.columns))
    repeated = day.repeated_keys_before + day.repeated_keys_after
    notes = [columns, f"{repeated:,} repeated key(s)" if repeated else ""]
    return day.day, *(getattr(day, figure) for figure in DAY_FIGURES), "; ".join(filter(None, notes))


class Markup(str):
    """HTML that is escaped already."""


def _column(column: ColumnDiff) -> tuple[Any, ...]:
    if column.numbers:
        return column.name, column.changed, _bar(column), text.distribution(column.numbers)
    changes = (f"{text.value(c.before)} → {text.value(c.after)} ({c.rows:,})" for c in column.frequent)
    return column.name, column.changed, "", Markup("<br>".join(map(escape, changes)))


def _bar(column: ColumnDiff) -> Markup:
    """How many went down and how many up, as the two parts of a bar."""
    numbers = column.numbers
    total = (numbers.down + numbers.up) if numbers else 0
    if not numbers or not total:
        return Markup()
    down = round(BAR * numbers.down / total)
    parts = (("down", down, numbers.down), ("up", BAR - down, numbers.up))
    return Markup("".join(f'<span class="bar {n}" style="width:{w}px" title="{c:,} {n}"></span>' for n, w, c in parts if w))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["".join(f"<th>{escape(name)}</th>" for name in head)]
    lines += ["".join(map(_cell, row)) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{value if isinstance(value, Markup) else escape(str(value))}</td>"
