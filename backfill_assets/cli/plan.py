"""`backfill plan`: what a rebuild would build, why, in which order and how long it takes. Writes the plan and nothing else."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.cli.rendering import terminal
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.planning import Planned, planned
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.text import chunks_of, expected, left_out, rows_of
from backfill_assets.settings import Settings, read_settings


def run(asked: RebuildRequest, *, as_json: bool) -> int:
    chosen = read_settings()
    made = planned(asked, chosen)
    if as_json:
        print(json.dumps(as_values(made, chosen)))
    else:
        show(terminal(), made, chosen)
    return 0


def as_values(made: Planned, chosen: Settings) -> dict[str, Any]:
    plan, selection, takes = made.plan, made.selection, made.takes
    return {
        "id": plan.id,
        "plan": json.loads(plan.contents()),
        "left out": {f"{table} {day}": why for (table, day), why in selection.left_out.items()},
        "minutes": round(takes.minutes, 2),
        "spread": round(takes.spread, 2),
        "unknown": list(takes.unknown),
        "cost": takes.cost(chosen.price_per_hour),
    }


def show(console: Console, made: Planned, chosen: Settings) -> None:
    contents(console, made.plan)
    for line in left_out(made.selection):
        console.print(line)
    console.print(expected(made.takes, chosen.price_per_hour))
    console.print(f"Nothing was started. Carry it out with `backfill run {made.plan.id}`.")


def contents(console: Console, plan: Plan) -> None:
    """What a plan holds: days and reasons by table, and its chunks in order."""
    drawn = Drawn("table", "days", "which", "why", title=f"plan {plan.id}")
    for row in rows_of(plan):
        drawn.add_row(*map(str, row))
    console.print(drawn)
    for line in chunks_of(plan):
        console.print(line)
