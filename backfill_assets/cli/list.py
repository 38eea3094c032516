"""`backfill list`: the plans of this lake, and the backfills that Dagster knows, whoever launched them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.calendar import ranges
from backfill_assets.cli.rendering import terminal
from backfill_assets.dagster_client import tags
from backfill_assets.errors import BackfillError, ServiceUnavailable
from backfill_assets.plan.history import state_of
from backfill_assets.plan.plan import Plan, read
from backfill_assets.plan.store import Plans
from backfill_assets.servers.place import dagster_of
from backfill_assets.settings import read_settings

BACKFILLS_SHOWN = 100


def run(*, as_json: bool) -> int:
    settings = read_settings()
    plans, silent = plans_of(Plans(settings.lake)), ""
    try:
        backfills = [_backfill(each) for each in dagster_of(settings).backfills(limit=BACKFILLS_SHOWN)]
    except ServiceUnavailable as gone:
        backfills, silent = [], f"Backfills are not listed: {gone}"
    if as_json:
        print(json.dumps({"plans": plans, "backfills": backfills, "silent": silent}))
    else:
        show(terminal(), plans, backfills, silent)
    return 0


def plans_of(plans: Plans) -> list[dict[str, Any]]:
    """What there is to say of each plan in a line, those started last first, then those never started."""
    found = [_plan(plans, plan_id) for plan_id in plans.ids()]
    return sorted(found, key=lambda each: str(each["started"]), reverse=True)


def _plan(plans: Plans, plan_id: str) -> dict[str, Any]:
    events = plans.events(plan_id)
    started = [event for event in events if event.kind == "started"]
    line = {
        "plan": plan_id,
        "state": state_of(events),
        "started": f"{started[0].at:%Y-%m-%d %H:%M}" if started else "",
        "who": started[0].facts.get("who", "") if started else "",
    }
    try:
        plan = read(plans.read(plan_id), plan_id)
    except BackfillError as error:  # one plan that cannot be read must not hide the others
        return line | {"days": "", "tables": [], "reason": str(error).split(". ")[0]}
    return line | {"days": _span(plan), "tables": list(plan.reasons), "reason": plan.options.reason}


def _span(plan: Plan) -> str:
    days = plan.days()
    return ranges(days) if len(days) < 3 else f"{days[0]}..{days[-1]} ({len(days)})"


def _backfill(found: dict[str, Any]) -> dict[str, Any]:
    tagged = found["tags"]
    return {
        "backfill": found["id"],
        "at": f"{datetime.fromtimestamp(found['creationTime'], UTC):%Y-%m-%d %H:%M}",
        "status": str(found["status"]).lower(),
        "days": found["numPartitions"],
        "plan": tagged.get(tags.PLAN, ""),
        "title": found["title"] or "",
        "who": tagged.get(tags.WHO) or tagged.get("user") or "",
    }


def show(console: Console, plans: list[dict[str, Any]], backfills: list[dict[str, Any]], silent: str) -> None:
    drawn = Drawn("plan", "state", "started (UTC)", "who", "days", "tables", "reason")
    for each in plans:
        row = (
            each["plan"],
            each["state"],
            each["started"],
            each["who"],
            each["days"],
            str(len(each["tables"])),
            each["reason"],
        )
        drawn.add_row(*row)
    console.print(drawn if plans else "There is no plan here yet: `backfill plan` makes one.")
    by_hand = [each for each in backfills if not each["plan"]]
    if by_hand:
        drawn = Drawn("backfill without a plan", "launched (UTC)", "status", "table-days", "title", "who")
        for each in by_hand:
            drawn.add_row(*(str(each[name]) for name in ("backfill", "at", "status", "days", "title", "who")))
        console.print(drawn)
    if silent:
        console.print(silent)
