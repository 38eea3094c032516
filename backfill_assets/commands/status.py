"""`backfill status`: every day of every table, and why it is not up to date. Reads the lake and the landing area only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date

from rich.console import Console
from rich.text import Text

from backfill_assets.backfill.status import Finding, State, Status, ranges, status_of
from backfill_assets.commands.tables import terminal
from backfill_assets.errors import UsageError
from backfill_assets.lake.latest import Latest, latest
from backfill_assets.lake.store import Lake
from backfill_assets.layers.catalog import TABLES
from backfill_assets.settings import Settings, read_settings
from backfill_assets.table import Table

# A letter and a colour a state: a strip of days must be read without colours too.
SHOWN = {
    State.UP_TO_DATE: ("=", "green"),
    State.MISSING: (".", "red"),
    State.CODE_CHANGED: ("c", "yellow"),
    State.INPUT_CHANGED: ("i", "yellow"),
    State.SOURCE_CHANGED: ("s", "yellow"),
    State.FAILED: ("X", "bold red"),
    State.RUNNING: (">", "cyan"),
    State.NOT_DUE: ("-", "dim"),
}
REASONS_SHOWN = 3


def run(days: str, target: str, *, as_json: bool) -> int:
    chosen, console = read_settings(), terminal()
    tables = named(target) if target else list(TABLES)
    asked = chosen.calendar.select(days) if days else chosen.calendar.days()
    status = status_of(tables, asked, latest=record_of(chosen), calendar=chosen.calendar)
    if as_json:
        print(json.dumps(as_values(status)))
    else:
        show(console, status)
    return 0


def named(target: str) -> list[Table]:
    """The tables of a comma-separated list, in the catalog's order; UsageError for one there is not."""
    known = {table.name: table for table in TABLES}
    names = [name.strip() for name in target.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UsageError(f"There is no table {name}. Nothing was started. The tables are {', '.join(known)}.")
    return [table for name, table in known.items() if name in names]


def record_of(chosen: Settings) -> Latest:
    return latest(Lake(chosen.lake).ledger, [table.name for table in TABLES])


def as_values(status: Status) -> dict[str, object]:
    """For machines: of each table, its days by state; and why, for each day that is not up to date."""
    cells = {
        name: {str(day): {"state": cell.state, "why": cell.why} for day in status.days if (cell := status.cells[name, day])}
        for name in status.tables
    }
    return {"tables": cells}


def show(console: Console, status: Status) -> None:
    """A strip of days a table, oldest first, and what is not up to date below it."""
    used: set[State] = set()
    for name in status.tables:
        found = status.of(name)
        used |= found.keys()
        counts = ", ".join(f"{len(days)} {state}" for state, days in found.items())
        console.print(Text(f"{name}  ", style="bold").append(counts or "no days", style="not bold"))
        for month in _months(status.days):
            console.print(_strip(month, [status.cells[name, day] for day in month]))
        for state, days in found.items():
            if state != State.UP_TO_DATE:
                _tell(console, name, state, days, status)
    console.print("  ".join(f"{SHOWN[state][0]} {state}" for state in State if state in used))


def _months(days: Sequence[date]) -> list[list[date]]:
    months: dict[tuple[int, int], list[date]] = {}
    for day in days:
        months.setdefault((day.year, day.month), []).append(day)
    return list(months.values())


def _strip(days: Sequence[date], cells: Sequence[Finding]) -> Text:
    text = Text(f"  {days[0]:%Y-%m} " + " " * (days[0].day - 1))
    for n, (day, cell) in enumerate(zip(days, cells, strict=True)):
        gap = (day - days[n - 1]).days - 1 if n else 0
        text.append(" " * gap).append(*SHOWN[cell.state])
    return text


def _tell(console: Console, name: str, state: State, days: list[date], status: Status) -> None:
    reasons: dict[str, list[date]] = {}
    for day in days:
        reasons.setdefault(status.cells[name, day].why, []).append(day)
    console.print(f"  {state}: {ranges(days)}")
    for reason, of in list(reasons.items())[:REASONS_SHOWN]:
        console.print(f"    {ranges(of)}: {reason}" if len(reasons) > 1 else f"    {reason}")
    if len(reasons) > REASONS_SHOWN:
        console.print(f"    and {len(reasons) - REASONS_SHOWN} more reasons: backfill status --why {name} DAY")
