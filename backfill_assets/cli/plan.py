"""`backfill list`: the plans of this lake, and the runs and backfills of tables that were launched
without a plan.

`backfill plan`: which partitions a rebuild would build, why, in which order, in how many minutes.
Writes only the plan.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from backfill_assets.calendar import ranges
from backfill_assets.cli.terminal import terminal
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Launched
from backfill_assets.errors import BackfillError, NothingToBuild, ServiceUnavailable
from backfill_assets.plan.lifecycle import is_in_shadow
from backfill_assets.plan.make import Planned, make_plan
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.store import PUBLISHING, Plans, in_words
from backfill_assets.plan.text import (
    blocked_lines,
    chunk_lines,
    expected_line,
    table_rows,
    unusable_lines,
)
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import read_settings
from backfill_assets.workspace import open_workspace

LAUNCHED_SHOWN = 100
# Dagster's names of what a backfill has come to; its others are words already.
STATUSES = {"completed_success": "completed", "completed_failed": "completed, some failed"}


def run_list(*, as_json: bool) -> int:
    settings = read_settings()
    plans = plans_of(Plans(settings.lake))
    unavailable = ""
    try:
        launched = [_launched(each) for each in dagster_of(settings).launched(limit=LAUNCHED_SHOWN)]
    except ServiceUnavailable as error:
        launched = []
        unavailable = f"Runs and backfills without a plan are not listed: {error}"
    if as_json:
        print(json.dumps({"plans": plans, "launched": launched, "unavailable": unavailable}))
    else:
        show_list(terminal(), plans, launched, unavailable)
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
        "in_shadow": is_in_shadow(plan_id, plans),
        "started": f"{started[0].at:%Y-%m-%d %H:%M}" if started else "",
        "who": started[0].facts.get("who", "") if started else "",
    }
    try:
        plan = plans.read(plan_id)
    except BackfillError as error:  # a plan that cannot be read must not hide the others
        return row | {"days": "", "tables": [], "reason": error.what.rstrip(".")}
    return row | {
        "days": _span(plan),
        "tables": list(plan.reasons),
        "reason": plan.options.reason,
        "into": plan.options.into,
    }


def _state(row: Mapping[str, Any]) -> str:
    in_shadow = row["in_shadow"] and row["state"] != PUBLISHING
    return f"{in_words(row['state'])}, in its shadow" if in_shadow else in_words(row["state"])


def _span(plan: Plan) -> str:
    days = plan.days()
    return ranges(days) if len(days) < 3 else f"{days[0]}..{days[-1]} ({len(days)})"


def _launched(launched: Launched) -> dict[str, Any]:
    return {
        "id": launched.id,
        "kind": "run" if launched.is_run else "backfill",
        "at": f"{datetime.fromtimestamp(launched.created, UTC):%Y-%m-%d %H:%M}",
        "status": launched.status.lower(),
        "partitions": launched.partitions,
        "plan": launched.tags.get(tags.PLAN, ""),
        "title": launched.title,
        "who": launched.tags.get(tags.WHO) or launched.tags.get("user") or "",
    }


def show_list(
    console: Console, plans: list[dict[str, Any]], launched: list[dict[str, Any]], unavailable: str
) -> None:
    table = Table("plan", "state", "started (UTC)", "who", "days", "tables", "reason")
    for plan in plans:
        row = plan | {"tables": str(len(plan["tables"])), "state": _state(plan)}
        table.add_row(
            *(row[name] for name in ("plan", "state", "started", "who", "days", "tables", "reason"))
        )
    console.print(table if plans else "There is no plan here yet: `backfill plan` makes one.")
    without_plan = [each for each in launched if not each["plan"]]
    if without_plan:
        table = Table(
            "without a plan", "id", "launched (UTC)", "status", "partitions", "title", "who"
        )
        for each in without_plan:
            row = each | {"status": STATUSES.get(each["status"], in_words(each["status"]))}
            table.add_row(
                *(
                    str(row[name])
                    for name in ("kind", "id", "at", "status", "partitions", "title", "who")
                )
            )
        console.print(table)
    if unavailable:
        console.print(unavailable)


def run_plan(request: RebuildRequest, *, as_json: bool) -> int:
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
        show_plan(terminal(), made, price)
    return 0


def as_values(made: Planned, price: float | None) -> dict[str, Any]:
    plan = made.plan
    selection = made.selection
    expected = made.expected
    return {
        "id": plan.id,
        "plan": plan.as_json(),
        "blocked": {f"{table} {day}": why for (table, day), why in selection.blocked.items()},
        "will_fail": {f"{table} {day}": why for (table, day), why in made.unusable.items()},
        "columns": list(made.columns),
        "minutes": round(expected.minutes, 2),
        "spread": round(expected.spread, 2),
        "unknown": list(expected.unknown),
        "cost": expected.cost(price),
    }


def show_plan(console: Console, made: Planned, price: float | None) -> None:
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
