"""`backfill show`: one plan, what happened to it, and how far it is. Reads the lake and the landing area only."""

from __future__ import annotations

import json
from typing import Any

from backfill_assets.backfill.history import state_of, which
from backfill_assets.backfill.watch import looks
from backfill_assets.commands.plan import contents
from backfill_assets.commands.run import as_values
from backfill_assets.commands.run import show as show_end
from backfill_assets.commands.tables import terminal
from backfill_assets.lake.plans import Event, Plans
from backfill_assets.planning import rebuild_of
from backfill_assets.settings import read_settings


def run(plan_id: str, *, as_json: bool) -> int:
    chosen = read_settings()
    plans = Plans(chosen.lake)
    rebuild = rebuild_of(which(plan_id, plans), chosen, who="")
    plan, events = rebuild.plan, plans.events(rebuild.plan.id)
    now = next(looks(rebuild, known=False))
    if as_json:
        told = {"state": state_of(events), "contents": json.loads(plan.contents()), "events": [_values(e) for e in events]}
        print(json.dumps(as_values(now) | told))
        return 0
    console = terminal()
    contents(console, plan)
    for event in events:
        facts = ", ".join(f"{name} {value}" for name, value in event.facts.items())
        console.print(f"  {event.at:%Y-%m-%d %H:%M:%S} UTC {event.kind}: {facts}")
    if events:
        show_end(console, now, chosen)
    else:
        console.print(f"It was never started. Carry it out with `backfill run {plan.id}`.")
    return 0


def _values(event: Event) -> dict[str, Any]:
    return {"at": event.at.isoformat(), "kind": event.kind, **event.facts}
