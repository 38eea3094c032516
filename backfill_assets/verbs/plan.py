"""Plan a rebuild, list the plans of a lake, and show one of them.

Only planning writes: it stores the plan. Nothing is launched.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from backfill_assets.calendar import ranges
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster, Launched
from backfill_assets.errors import BackfillError, NothingToBuild, ServiceUnavailable
from backfill_assets.plan.lifecycle import is_in_shadow, what_is_half_done
from backfill_assets.plan.make import Planned, make_plan
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import remaining_reader
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.source_changes import changed_files
from backfill_assets.plan.store import (
    CLOSED,
    OUTCOME_COLUMNS,
    PUBLISHING,
    Ended,
    Event,
    Plans,
    event_words,
    how_ended,
    in_words,
)
from backfill_assets.plan.text import (
    blocked_lines,
    chunk_lines,
    expected_line,
    table_rows,
    unusable_lines,
)
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.rebuild.watch import Watch
from backfill_assets.verbs.report import Line, TableContents, by_partition, table_of
from backfill_assets.verbs.run import RunReport
from backfill_assets.workspace import Workspace

LAUNCHED_SHOWN = 100
# Other states of a backfill are words already.
STATUSES = {"completed_success": "completed", "completed_failed": "completed, some failed"}


PLAN_COLUMNS = ("plan", "state", "started (UTC)", "who", "days", "tables", "reason")
LAUNCHED_COLUMNS = ("kind", "id", "launched (UTC)", "status", "partitions", "title", "who")


@dataclass(frozen=True)
class PlansReport:
    plans: Sequence[Mapping[str, Any]]
    launched: Sequence[Mapping[str, Any]]
    unavailable: str

    def lines(self) -> Iterator[Line]:
        if self.plans:
            names = ("plan", "state", "started", "who", "days", "tables", "reason")
            shown = [
                {**plan, "tables": len(plan["tables"]), "state": _state(plan)}
                for plan in self.plans
            ]
            yield table_of(PLAN_COLUMNS, [[plan[name] for name in names] for plan in shown])
        else:
            yield "There is no plan here yet: `backfill plan` makes one."
        outside = [launched for launched in self.launched if not launched["plan"]]
        if outside:
            yield table_of(LAUNCHED_COLUMNS, map(_launched_row, outside), title=OUTSIDE)
        if self.unavailable:
            yield self.unavailable

    def as_json(self) -> dict[str, Any]:
        return vars(self)


OUTSIDE = "launched outside a plan"


def _launched_row(launched: Mapping[str, Any]) -> list[object]:
    status = launched["status"]
    shown = {**launched, "status": STATUSES.get(status, in_words(status))}
    return [shown[name] for name in ("kind", "id", "at", "status", "partitions", "title", "who")]


def list_plans(root: str, dagster: Dagster) -> PlansReport:
    """List the plans of the lake, and what the webserver has launched if it answers."""
    plans = plans_of(Plans(root))
    try:
        launched = [_launched(each) for each in dagster.launched(limit=LAUNCHED_SHOWN)]
    except ServiceUnavailable as error:
        unavailable = f"Runs and backfills launched outside a plan are not listed: {error}"
        return PlansReport(plans, [], unavailable)
    return PlansReport(plans, launched, "")


def plans_of(plans: Plans) -> list[dict[str, Any]]:
    """Return a row for each plan. The last started is first; plans never started are last."""
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


@dataclass(frozen=True)
class PlanContents:
    """A plan, what it leaves out, how long it takes, and which days will fail."""

    made: Planned
    price_per_hour: float | None

    @property
    def table(self) -> TableContents:
        return plan_table(self.made.plan)

    def lines(self) -> Iterator[Line]:
        yield from plan_lines(self.made.plan)
        yield from self.made.columns
        yield from blocked_lines(self.made.selection)
        yield expected_line(self.made.expected, self.price_per_hour)
        yield from unusable_lines(self.made.unusable)


@dataclass(frozen=True)
class PlanReport:
    """A new plan. If there is nothing to build, `contents` is None and `nothing` says why."""

    contents: PlanContents | None
    nothing: str = ""

    def lines(self) -> Iterator[Line]:
        if self.contents is None:
            yield self.nothing
            return
        yield from self.contents.lines()
        plan_id = self.contents.made.plan.id
        yield f"Nothing was started. To carry it out: `backfill run {plan_id}`."

    def as_json(self) -> dict[str, Any]:
        if self.contents is None:
            return {"id": None}
        made = self.contents.made
        expected = made.expected
        return {
            "id": made.plan.id,
            "plan": made.plan.as_json(),
            "blocked": by_partition(made.selection.blocked),
            "will_fail": by_partition(made.unusable),
            "columns": list(made.columns),
            "minutes": round(expected.minutes, 2),
            "spread": round(expected.spread, 2),
            "unknown": list(expected.unknown),
            "cost": expected.cost(self.contents.price_per_hour),
        }


def plan_rebuild(request: RebuildRequest, workspace: Workspace) -> PlanReport:
    """Make a plan and store it. Nothing is launched."""
    try:
        made = make_plan(request, workspace)
    except NothingToBuild as nothing:
        return PlanReport(None, str(nothing))
    return PlanReport(PlanContents(made, workspace.settings.price_per_hour))


def plan_table(plan: Plan) -> TableContents:
    """Return a row for each table: its days, and why they are in the plan."""
    rows = [tuple(map(str, row)) for row in table_rows(plan)]
    return ("table", "days", "which", "why"), rows


def plan_lines(plan: Plan) -> Iterator[Line]:
    """Yield a plan's days and reasons by table, and its chunks in order."""
    yield table_of(*plan_table(plan), title=f"plan {plan.id}")
    yield from chunk_lines(plan)


# How many days with changed files are named.
NAMED = 3


@dataclass(frozen=True)
class PlanDetails:
    """A plan, its events, and its progress or how it ended."""

    plan: Plan
    events: Sequence[Event]
    state: str
    half_done: str
    files_changed: Mapping[str, str]
    progress: RunReport | None
    ended: Ended | None
    why_no_progress: str

    def as_json(self) -> dict[str, Any]:
        if self.progress:
            values = self.progress.progress_values()
        else:
            ending = vars(self.ended) if self.ended else {}
            values = {"plan": self.plan.id, "why": self.why_no_progress, **ending}
        return {
            **values,
            "files_changed": dict(self.files_changed),
            "state": self.state,
            "half_done": self.half_done,
            "contents": self.plan.as_json(),
            "events": [
                {"at": event.at.isoformat(), "kind": event.kind, **event.facts}
                for event in self.events
            ],
        }

    def lines(self) -> Iterator[Line]:
        plan_id = self.plan.id
        yield from plan_lines(self.plan)
        for event in self.events:
            yield f"  {event.at:%Y-%m-%d %H:%M:%S} UTC {event_words(event)}"
        for partition, files in list(self.files_changed.items())[:NAMED]:
            yield f"  {partition}: {files}"
        if len(self.files_changed) > NAMED:
            more = len(self.files_changed) - NAMED
            yield (
                f"  Files of {more} more day(s) changed: `backfill status --why TABLE DAY` names"
                " them."
            )
        if self.ended:
            yield from _ended_lines(plan_id, self.ended)
        if self.half_done:
            sentence = self.half_done[0].upper() + self.half_done[1:]
            yield f"{sentence}. Until then nothing of live is released."
        elif self.state in CLOSED:
            yield (
                f"It was {in_words(self.state)} since. `backfill status` shows its days as they"
                " are now."
            )
        elif not self.events:
            yield f"It was never started. To carry it out: `backfill run {plan_id}`."
        elif self.progress:
            yield from self.progress.ending_lines()
        if self.why_no_progress:
            yield f"Its progress cannot be computed any more. {self.why_no_progress}"


def _ended_lines(plan_id: str, ended: Ended) -> Iterator[Line]:
    if ended.tables:
        yield table_of(OUTCOME_COLUMNS, ended.rows())
    yield from ended.early_stops
    yield ended.line(plan_id)


def show_plan(plan_id: str, workspace: Workspace, not_imported: str) -> PlanDetails:
    """Read a plan, its events and its progress.

    `not_imported` says why the project has no tables here, if so: then there is no progress.
    """
    plans = Plans(workspace.lake.root)
    plan = plans.read(plan_id)
    events = plans.events(plan_id)
    state = plans.state(plan_id)
    half = what_is_half_done(plan_id, plans) if plans.half_done(plan_id) else ""
    changed = by_partition(changed_files(plan, workspace.lake))
    if state in CLOSED or half:
        return PlanDetails(plan, events, state, half, changed, None, how_ended(events), "")
    progress = None
    why_not = not_imported
    if not not_imported:
        progress, why_not = _progress(plan, workspace)
    return PlanDetails(plan, events, state, half, changed, progress, None, why_not)


def _progress(plan: Plan, workspace: Workspace) -> tuple[RunReport | None, str]:
    """Return the plan's progress, or why there is none: the project lacks one of its tables."""
    try:
        reader = remaining_reader(plan, workspace)
        watch = Watch(plan, Plans(workspace.lake.root), reader, utc_now)
        return RunReport(watch.progress(), workspace), ""
    except BackfillError as error:
        return None, str(error)
