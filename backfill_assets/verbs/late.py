"""The built days that late rows have made outdated, and the commands that rebuild them.

With `--html`, a page has the same lines and a picture of the arrival of rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from backfill_assets.calendar import ranges
from backfill_assets.errors import first_of
from backfill_assets.grouping import grouped
from backfill_assets.plan.arrivals_picture import data_uri
from backfill_assets.plan.late import (
    Arrivals,
    Late,
    LateDay,
    Unplaced,
    arrivals_of,
    late_rows,
    rebuild_commands,
)
from backfill_assets.plan.status import latest_builds
from backfill_assets.verbs.report import Line, Report, refuse_page, table_of, write_page
from backfill_assets.workspace import Workspace

PAGE_WIDTH = 132
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Late rows</title></head>
<body style="font-family: system-ui, sans-serif; margin: 2rem auto; max-width: 75rem;
 padding: 0 1rem">
<h1>Late rows</h1>
{images}
<pre style="white-space: pre-wrap">{code}</pre>
</body></html>
"""


@dataclass(frozen=True)
class LateReport(Report):
    late: Late
    ask_above_days: int
    html: str = ""

    def lines(self) -> Iterator[Line]:
        if not self.late.since:
            yield "No table reads rows by the day that they are about, so no row can be late."
            return
        if not self.late.days:
            yield "No late rows have made a built day outdated."
        for days, words in ((self.late.within(), WITHIN), (self.late.beyond(), BEYOND)):
            if days:
                names = dict.fromkeys(day.table for day in days)
                since = ", ".join(f"{name}: from {self.late.since[name]} on" for name in names)
                yield words.format(n=len(days), since=since)
                yield _table(days)
                for command in rebuild_commands(days, self.ask_above_days):
                    yield f"  {command}"
        yield from _unplaced_lines(self.late)
        if self.html:
            yield f"Written to {self.html}."

    def as_json(self) -> dict[str, Any]:
        return {
            "within_horizon": self._part(self.late.within()),
            "beyond_horizon": self._part(self.late.beyond()),
            "in_no_day": [asdict(rows) for rows in self.late.unplaced],
            "horizon_since": self.late.since,
            "html": self.html,
        }

    def _part(self, days: list[LateDay]) -> dict[str, Any]:
        commands = rebuild_commands(days, self.ask_above_days)
        return {"days": [asdict(day) for day in days], "commands": commands}


def find_late(workspace: Workspace, html: Path | None = None) -> LateReport:
    """Find the built days that late rows have made outdated. With `html`, write a page too."""
    if html:
        refuse_page(html, "Nothing was read.")
    report = LateReport(late_rows(workspace), workspace.settings.ask_above_days)
    if html:
        arrivals = arrivals_of(workspace, latest_builds(workspace))
        write_page(page(arrivals, report), html)
    return replace(report, html=str(html) if html else "")


def page(arrivals: Sequence[Arrivals], report: LateReport) -> str:
    """Return the whole page: the pictures, and below them the lines of the report."""
    console = Console(
        record=True,
        file=StringIO(),
        width=PAGE_WIDTH,
        highlight=False,
        markup=False,
        soft_wrap=True,
        legacy_windows=False,
    )
    for line in report.lines():
        console.print(line)
    images = [
        f'<img style="max-width: 100%" alt="Rows of {table.table}" src="{data_uri(table)}">'
        for table in arrivals
        if table.rows
    ]
    code_format = PAGE.replace("{images}", "\n".join(images))
    return console.export_html(code_format=code_format, inline_styles=True)


WITHIN = (
    "Late rows have made {n} day(s) within the horizon outdated ({since}). Rebuild them, and what"
    " is made from them:"
)
BEYOND = (
    "Late rows have made {n} day(s) beyond the horizon outdated ({since}). These are rebuilt only"
    " on request. To rebuild them:"
)


def _table(days: list[LateDay]) -> Table:
    rows = [
        (late.table, late.day, f"{late.rows:+,}", ranges(day for _, day in late.arrived))
        for late in days
    ]
    return table_of(("table", "event day", "rows", "arrived on"), rows, right=slice(2, 3))


def _unplaced_lines(late: Late) -> list[str]:
    """Return a line for each table with rows of an input that are in no day."""
    by_table = grouped(((unplaced.table, unplaced.input), unplaced) for unplaced in late.unplaced)
    return [
        f"{sum(unplaced.rows for unplaced in rows):,} row(s) of {name} are in no day of {table}:"
        f" they arrived before their day, or beyond its horizon. They stay in {name}:"
        f" {_examples(rows)}."
        for (table, name), rows in by_table.items()
    ]


def _examples(rows: list[Unplaced]) -> str:
    return "; ".join(first_of([f"{of.rows:,} of {of.day}, about {of.about}" for of in rows], 3))
