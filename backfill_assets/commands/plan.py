"""`backfill plan`: what a rebuild would build, why, in which order and how long it takes. Writes the plan and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.backfill.choose import READS
from backfill_assets.backfill.estimate import Estimate
from backfill_assets.backfill.plan import Plan
from backfill_assets.calendar import ranges
from backfill_assets.commands.tables import terminal
from backfill_assets.planning import Asked, Planned, planned
from backfill_assets.settings import Settings, read_settings

CHUNKS_SHOWN = 12


def run(asked: Asked, *, as_json: bool) -> int:
    chosen = read_settings()
    made = planned(asked, chosen)
    if as_json:
        print(json.dumps(as_values(made, chosen)))
    else:
        show(terminal(), made, chosen)
    return 0


def as_values(made: Planned, chosen: Settings) -> dict[str, Any]:
    plan, choice, takes = made.plan, made.choice, made.takes
    return {
        "id": plan.id,
        "plan": json.loads(plan.contents()),
        "left out": {f"{table} {day}": why for (table, day), why in choice.left_out.items()},
        "minutes": round(takes.minutes, 2),
        "spread": round(takes.spread, 2),
        "unknown": list(takes.unknown),
        "cost": _cost(takes, chosen),
    }


def _cost(takes: Estimate, chosen: Settings) -> float | None:
    return round(takes.minutes / 60 * chosen.price_per_hour, 2) if chosen.price_per_hour else None


def show(console: Console, made: Planned, chosen: Settings) -> None:
    plan, choice, takes = made.plan, made.choice, made.takes
    contents(console, plan)
    if choice.left_out:
        console.print(f"Left out, because it cannot be built: {len(choice.left_out)} table-day(s)")
        for (table, day), why in list(choice.left_out.items())[:5]:
            console.print(f"  {table} {day}: {why}")
        console.print("  --upstream plans what they need along with them, where there is a delivery.")
    cost = _cost(takes, chosen)
    price = "" if cost is None else f" At {chosen.price_per_hour:g} an hour, it costs {cost:.2f}."
    console.print(f"Expected: {takes.told()}.{price}")
    console.print(f"Nothing was started. Carry it out with `backfill run {plan.id}`.")


def contents(console: Console, plan: Plan) -> None:
    """What a plan holds: days and reasons by table, and its chunks in order."""
    drawn = Drawn("table", "days", "which", "why", title=f"plan {plan.id}")
    for name, reasons in plan.reasons.items():
        days = [day for table, day in plan.cells() if table == name]
        drawn.add_row(name, str(len(days)), ranges(days), _why(reasons))
    console.print(drawn)
    for n, chunk in enumerate(plan.chunks[:CHUNKS_SHOWN]):
        canary = " (canary)" if n == 0 and plan.how.canary and len(plan.chunks) > 1 else ""
        console.print(f"chunk {n + 1}{canary}: {len(chunk.cells())} table-days, {_span(chunk.days)}")
    if len(plan.chunks) > CHUNKS_SHOWN:
        console.print(f"and {len(plan.chunks) - CHUNKS_SHOWN} more chunks")


def _why(reasons: Mapping[str, str]) -> str:
    counts = Counter("reads what is rebuilt" if why.startswith(READS) else why for why in reasons.values())
    return ", ".join(f"{n} {why}" for why, n in counts.most_common())


def _span(days: Mapping[str, Sequence[Any]]) -> str:
    every = sorted({day for each in days.values() for day in each})
    return f"{every[0]}..{every[-1]}"
