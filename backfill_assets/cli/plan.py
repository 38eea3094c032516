"""`backfill plan`: which partitions a rebuild would build, why, in which order, in how many minutes. Writes only the plan."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from backfill_assets.cli.rendering import terminal
from backfill_assets.errors import NothingToBuild
from backfill_assets.plan.make import Planned, make_plan
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.text import blocked_lines, chunk_lines, expected_line, table_rows, unusable_lines
from backfill_assets.workspace import open_workspace


def run(request: RebuildRequest, *, as_json: bool) -> int:
    workspace = open_workspace(only_reading=True)
    price = workspace.settings.price_per_hour
    try:
        made = make_plan(request, workspace)
    except NothingToBuild as nothing:
        print(json.dumps({"id": None}) if as_json else nothing)
        return 0
    if as_json:
        print(json.dumps(as_values(made, price)))
    else:
        show(terminal(), made, price)
    return 0


def as_values(made: Planned, price: float | None) -> dict[str, Any]:
    plan, selection, expected = made.plan, made.selection, made.expected
    return {
        "id": plan.id,
        "plan": json.loads(plan.contents()),
        "blocked": {f"{table} {day}": why for (table, day), why in selection.blocked.items()},
        "will_fail": {f"{table} {day}": why for (table, day), why in made.unusable.items()},
        "columns": list(made.columns),
        "minutes": round(expected.minutes, 2),
        "spread": round(expected.spread, 2),
        "unknown": list(expected.unknown),
        "cost": expected.cost(price),
    }


def show(console: Console, made: Planned, price: float | None) -> None:
    contents(console, made.plan)
    for line in (*made.columns, *blocked_lines(made.selection)):
        console.print(line)
    console.print(expected_line(made.expected, price))
    for line in unusable_lines(made.unusable):
        console.print(line)
    console.print(f"Nothing was started. Carry it out with `backfill run {made.plan.id}`.")


def contents(console: Console, plan: Plan) -> None:
    """A plan's days and reasons by table, and its chunks in order."""
    table = Table("table", "days", "which", "why", title=f"plan {plan.id}")
    for row in table_rows(plan):
        table.add_row(*map(str, row))
    console.print(table)
    for line in chunk_lines(plan):
        console.print(line)
