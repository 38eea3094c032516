"""`backfill show`: one plan, what happened to it, and how far it is. Reads the lake and the landing area only."""

from __future__ import annotations

import json
from typing import Any

from backfill_assets.cli.plan import contents
from backfill_assets.cli.rendering import terminal
from backfill_assets.cli.run import as_values
from backfill_assets.cli.run import show as show_end
from backfill_assets.errors import BackfillError
from backfill_assets.plan.history import state_of, which
from backfill_assets.plan.plan import Plan, read
from backfill_assets.plan.planning import rebuild_of
from backfill_assets.plan.progress import Progress
from backfill_assets.plan.store import Event, Plans
from backfill_assets.rebuild.watch import looks
from backfill_assets.settings import Settings, read_settings


def run(plan_id: str, *, as_json: bool) -> int:
    chosen = read_settings()
    plans = Plans(chosen.lake)
    plan_id = which(plan_id, plans)
    plan, events = read(plans.read(plan_id), plan_id), plans.events(plan_id)
    now, why_not = how_far(plan, chosen)
    if as_json:
        told = {"state": state_of(events), "contents": json.loads(plan.contents()), "events": [_values(e) for e in events]}
        print(json.dumps((as_values(now) if now else {"plan": plan.id, "why": why_not}) | told))
        return 0
    console = terminal()
    contents(console, plan)
    for event in events:
        facts = ", ".join(f"{name} {value}" for name, value in event.facts.items())
        console.print(f"  {event.at:%Y-%m-%d %H:%M:%S} UTC {event.kind}: {facts}")
    if not events:
        console.print(f"It was never started. Carry it out with `backfill run {plan.id}`.")
    elif now:
        show_end(console, now, chosen)
    if why_not:
        console.print(f"How far it is cannot be told any more. {why_not}")
    return 0


def how_far(plan: Plan, chosen: Settings) -> tuple[Progress | None, str]:
    """A look at the plan; or why there is none: its tables or their code are others now."""
    try:
        return next(looks(rebuild_of(plan.id, chosen, who=""), known=False)), ""
    except BackfillError as error:
        return None, str(error)


def _values(event: Event) -> dict[str, Any]:
    return {"at": event.at.isoformat(), "kind": event.kind, **event.facts}
