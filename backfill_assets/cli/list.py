"""`backfill list`: the plans of this lake, and the backfills that were launched in Dagster without a plan."""

import json
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from backfill_assets.calendar import ranges
from backfill_assets.cli.rendering import terminal
from backfill_assets.dagster_client import tags
from backfill_assets.errors import BackfillError, ServiceUnavailable
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import read_settings

BACKFILLS_SHOWN = 100


def run(*, as_json: bool) -> int:
    settings = read_settings()
    plans, unavailable = plans_of(Plans(settings.lake)), ""
    try:
        backfills = [_backfill(record) for record in dagster_of(settings).backfills(limit=BACKFILLS_SHOWN)]
    except ServiceUnavailable as error:
        backfills, unavailable = [], f"Backfills are not listed: {error}"
    if as_json:
        print(json.dumps({"plans": plans, "backfills": backfills, "unavailable": unavailable}))
    else:
        show(terminal(), plans, backfills, unavailable)
    return 0


def plans_of(plans: Plans) -> list[dict[str, Any]]:
    """A row for each plan: the last started first, then those never started."""
    rows = [_plan(plans, plan_id) for plan_id in plans.ids()]
    return sorted(rows, key=lambda row: str(row["started"]), reverse=True)


def _plan(plans: Plans, plan_id: str) -> dict[str, Any]:
    events = plans.events(plan_id)
    started = [event for event in events if event.kind == "started"]
    row = {
        "plan": plan_id,
        "state": plans.state(plan_id),
        "started": f"{started[0].at:%Y-%m-%d %H:%M}" if started else "",
        "who": started[0].facts.get("who", "") if started else "",
    }
    try:
        plan = plans.read(plan_id)
    except BackfillError as error:  # a plan that cannot be read must not hide the others
        return row | {"days": "", "tables": [], "reason": str(error).split(". ")[0]}
    return row | {"days": _span(plan), "tables": list(plan.reasons), "reason": plan.options.reason}


def _span(plan: Plan) -> str:
    days = plan.days()
    return ranges(days) if len(days) < 3 else f"{days[0]}..{days[-1]} ({len(days)})"


def _backfill(record: dict[str, Any]) -> dict[str, Any]:
    backfill_tags = record["tags"]
    return {
        "backfill": record["id"],
        "at": f"{datetime.fromtimestamp(record['creationTime'], UTC):%Y-%m-%d %H:%M}",
        "status": str(record["status"]).lower(),
        "days": record["numPartitions"],
        "plan": backfill_tags.get(tags.PLAN, ""),
        "title": record["title"] or "",
        "who": backfill_tags.get(tags.WHO) or backfill_tags.get("user") or "",
    }


def show(console: Console, plans: list[dict[str, Any]], backfills: list[dict[str, Any]], unavailable: str) -> None:
    table = Table("plan", "state", "started (UTC)", "who", "days", "tables", "reason")
    for plan in plans:
        row = plan | {"tables": str(len(plan["tables"]))}
        table.add_row(*(row[name] for name in ("plan", "state", "started", "who", "days", "tables", "reason")))
    console.print(table if plans else "There is no plan here yet: `backfill plan` makes one.")
    without_plan = [backfill for backfill in backfills if not backfill["plan"]]
    if without_plan:
        table = Table("backfill without a plan", "launched (UTC)", "status", "partitions", "title", "who")
        for backfill in without_plan:
            table.add_row(*(str(backfill[name]) for name in ("backfill", "at", "status", "days", "title", "who")))
        console.print(table)
    if unavailable:
        console.print(unavailable)
