"""What `backfill late` prints as one HTML page that needs nothing else, with a picture of when rows
arrived.

`backfill late`: the built days that late rows have made outdated, and what to type. Starts nothing.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from backfill_assets.calendar import ranges
from backfill_assets.cli.terminal import WIDTH_OF_A_PIPE, refuse_page, terminal, write_page
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
from backfill_assets.workspace import open_workspace

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Late rows</title></head>
<body style="font-family: system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem">
<h1>Late rows</h1>
{images}
<pre style="overflow-x: auto">{code}</pre>
</body></html>
"""


def page(arrivals: Sequence[Arrivals], show: Callable[[Console], None]) -> str:
    """The whole page: the pictures, and below them what `show` prints."""
    console = Console(
        record=True,
        file=StringIO(),
        width=WIDTH_OF_A_PIPE,
        highlight=False,
        markup=False,
        soft_wrap=True,
        legacy_windows=False,
    )
    show(console)
    images = [
        f'<img style="max-width: 100%" alt="Rows of {each.table}" src="{data_uri(each)}">'
        for each in arrivals
        if each.rows
    ]
    return console.export_html(
        code_format=PAGE.replace("{images}", "\n".join(images)), inline_styles=True
    )


def run(*, html: Path | None, as_json: bool) -> int:
    if html:
        refuse_page(html, "read")
    workspace = open_workspace(only_reading=True)
    late = late_rows(workspace)
    ask_above = workspace.settings.ask_above_days
    if html:
        arrivals = arrivals_of(workspace, latest_builds(workspace))
        write_page(page(arrivals, lambda console: show(console, late, ask_above)), html)
    if as_json:
        print(json.dumps(as_values(late, ask_above) | {"html": str(html) if html else ""}))
    else:
        show(terminal(), late, ask_above)
        if html:
            print(f"Written to {html}.")
    return 0


def as_values(late: Late, ask_above_days: int) -> dict[str, Any]:
    def part(days: list[LateDay]) -> dict[str, Any]:
        return {
            "days": [asdict(each) for each in days],
            "commands": rebuild_commands(days, ask_above_days),
        }

    values = {
        "within_horizon": part(late.within()),
        "beyond_horizon": part(late.beyond()),
        "in_no_day": [asdict(each) for each in late.unplaced],
        "horizon_since": dict(late.since),
    }
    return json.loads(json.dumps(values, default=str))


def show(console: Console, late: Late, ask_above_days: int) -> None:
    if not late.since:
        console.print("No table reads rows by the day that they are about: none can be late.")
        return
    if not late.days:
        console.print("No late rows have made a built day outdated.")
    for days, words in ((late.within(), WITHIN), (late.beyond(), BEYOND)):
        if days:
            since = ", ".join(
                f"{name}: from {late.since[name]} on"
                for name in dict.fromkeys(each.table for each in days)
            )
            console.print(words.format(n=len(days), since=since))
            console.print(_table(days))
            for command in rebuild_commands(days, ask_above_days):
                console.print(f"  {command}")
    for line in _unplaced_lines(late):
        console.print(line)


WITHIN = (
    "Late rows have made {n} day(s) within the horizon outdated ({since}). Rebuild them, and what"
    " is made from them:"
)
BEYOND = (
    "Late rows have made {n} day(s) beyond the horizon outdated ({since}). Nothing rebuilds these"
    " unasked: they stay as they are until you decide. To rebuild them:"
)


def _table(days: list[LateDay]) -> Table:
    table = Table("table", "event day", "rows", "arrived on")
    table.columns[2].justify = "right"
    for each in days:
        table.add_row(
            each.table, str(each.day), f"{each.rows:+,}", ranges(day for _, day in each.arrived)
        )
    return table


def _unplaced_lines(late: Late) -> list[str]:
    """A line for each table and input whose rows it has in no day."""
    by_table: dict[tuple[str, str], list[Unplaced]] = {}
    for each in late.unplaced:
        by_table.setdefault((each.table, each.input), []).append(each)
    return [
        f"{sum(each.rows for each in rows):,} row(s) of {name} are in no day of {table}: they"
        f" arrived before their day, or beyond its horizon. They stay in {name}: {_examples(rows)}."
        for (table, name), rows in by_table.items()
    ]


def _examples(rows: list[Unplaced]) -> str:
    shown = "; ".join(f"{each.rows:,} of {each.day}, about {each.about}" for each in rows[:3])
    return f"{shown}; and {len(rows) - 3} more days" if len(rows) > 3 else shown
