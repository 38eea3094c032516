"""Plan a rebuild, list the plans of a lake, and show one of them.

Only planning writes: it stores the plan. Nothing is launched.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from backfill_assets.calendar import ranges, without_no_day
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster, Launched
from backfill_assets.errors import (
    BackfillError,
    NothingToBuild,
    ServiceUnavailable,
    error_text,
    named,
)
from backfill_assets.grouping import grouped
from backfill_assets.plan.lifecycle import is_in_shadow
from backfill_assets.plan.make import Planned, make_plan
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Ending
from backfill_assets.plan.remaining import WorkState, remaining_reader
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.selection import Reason, ReasonKind, Selection
from backfill_assets.plan.shadow import built_in_shadows, workspace_of
from backfill_assets.plan.source_changes import changed_files
from backfill_assets.plan.status import DONE, State, runs_by_partition
from backfill_assets.plan.status_in_bulk import status_in_bulk
from backfill_assets.plan.store import (
    CLOSED,
    OUTCOME_COLUMNS,
    Ended,
    Event,
    Plans,
    event_words,
    how_ended,
    in_words,
)
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.rebuild.watch import Watch
from backfill_assets.verbs.downstream import assets_downstream
from backfill_assets.verbs.pages import write_page
from backfill_assets.verbs.picture import Cells, Mark, Shown, legend, strips, svg
from backfill_assets.verbs.report import (
    Line,
    Report,
    TableContents,
    by_partition,
    table_of,
)
from backfill_assets.verbs.run import RunReport
from backfill_assets.verbs.status import cells_of, with_released
from backfill_assets.workspace import Workspace

LAUNCHED_SHOWN = 100
# Reading all plans would take longer with each plan.
PLANS_SHOWN = 20
CHUNKS_SHOWN = 12
BLOCKED_SHOWN = 5
UNUSABLE_SHOWN = 5
# The number of days with changed files that are named.
CHANGED_SHOWN = 3
# Other states of a backfill are words already.
STATUSES = {"completed_success": "completed", "completed_failed": "completed, some failed"}
# The values in the two tables of a list, and the headings that differ from their names.
PLAN_VALUES = ("plan", "state", "started", "who", "days", "tables", "reason")
LAUNCHED_VALUES = ("kind", "id", "at", "status", "partitions", "title", "who")
HEADINGS = {"started": "started (UTC)", "at": "launched (UTC)"}


@dataclass(frozen=True)
class PlansReport(Report):
    """The newest plans, and the number of older plans that are not shown."""

    plans: Sequence[Mapping[str, Any]]
    launched: Sequence[Mapping[str, Any]]
    unavailable: str
    older: int = 0

    def lines(self) -> Iterator[Line]:
        if self.plans:
            plans = [
                {**plan, "tables": len(plan["tables"]), "state": plan_state(plan)}
                for plan in self.plans
            ]
            yield _table(PLAN_VALUES, plans)
        else:
            yield "There is no plan here yet: `backfill plan` makes one."
        if self.older:
            yield f"{self.older} older plan(s) are not shown: `backfill list --all`."
        outside = [
            {**launched, "status": STATUSES.get(launched["status"], in_words(launched["status"]))}
            for launched in self.launched
            if not launched["plan"]
        ]
        if outside:
            yield _table(LAUNCHED_VALUES, outside, title="launched outside a plan")
        if self.unavailable:
            yield self.unavailable


def list_plans(root: str, dagster: Dagster, *, every: bool = False) -> PlansReport:
    """List the newest plans of the lake, and the launches of the webserver, if it answers.

    `every`: list all plans. The plan started last is first; plans never started are last.
    """
    plans, older = newest_plans(Plans(root), every=every)
    try:
        launched = dagster.launched(limit=LAUNCHED_SHOWN)
        return PlansReport(plans, list(map(_launched, launched)), "", older)
    except ServiceUnavailable as error:
        why = error_text(error.what, next_step=error.next_step)
        unavailable = f"Runs and backfills launched outside a plan are not listed: {why}"
        return PlansReport(plans, [], unavailable, older)


def newest_plans(store: Plans, *, every: bool = False) -> tuple[list[dict[str, Any]], int]:
    """Return the values of the newest plans, and the number of older plans."""
    newest = store.newest_first()
    older = 0 if every else max(0, len(newest) - PLANS_SHOWN)
    plans = sorted(
        (
            _plan(store, plan_id, files)
            for plan_id, files in list(newest.items())[: len(newest) - older]
        ),
        key=lambda plan: str(plan["started"]),
        reverse=True,
    )
    return plans, older


def _plan(plans: Plans, plan_id: str, files: Sequence[str]) -> dict[str, Any]:
    values = {
        "plan": plan_id,
        "state": plans.last_change(plan_id, files)[0],
        "in_shadow": is_in_shadow(plan_id, plans, files),
        "left": plans.left(plan_id),
        "started": "",
        "who": "",
        "days": "",
        "tables": [],
    }
    first_start = [file for file in files if "-started-" in file][:1]
    try:
        values["state"] = plans.state(plan_id, files)
        for started in plans.events(plan_id, files=first_start):
            values["started"] = f"{started.at:%Y-%m-%d %H:%M}"
            values["who"] = started.facts.get("who", "")
        plan = plans.read(plan_id)
    except BackfillError as error:  # a plan that cannot be read must not hide the others
        return values | {"reason": error.what.rstrip(".")}
    days = plan.days()
    return values | {
        "days": ranges(days) if len(days) < 3 else f"{days[0]}..{days[-1]} ({len(days)})",
        "tables": list(plan.reasons),
        "reason": plan.options.reason,
        "into": plan.options.into,
    }


def plan_state(plan: Mapping[str, Any]) -> str:
    shadow = ", in its shadow" if plan["in_shadow"] else ""
    part = f", published in part ({plan['left']} left)" if plan["left"] else ""
    return f"{in_words(plan['state'])}{shadow}{part}"


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


def _table(
    names: Sequence[str], values: Sequence[Mapping[str, Any]], title: str | None = None
) -> Table:
    rows = [[value[name] for name in names] for value in values]
    return table_of([HEADINGS.get(name, name) for name in names], rows, title=title)


@dataclass(frozen=True)
class PlanReport(Report):
    """A new plan, the days that it leaves out, its expected time, and the days that will fail."""

    made: Planned
    price_per_hour: float | None
    downstream: Sequence[str] = ()

    @property
    def table(self) -> TableContents:
        return table_of_plan(self.made.plan)

    @property
    def cost(self) -> float | None:
        return self.made.expected.cost(self.price_per_hour)

    @property
    def expected(self) -> str:
        """The expected time and cost."""
        cost = self.cost
        price = "" if cost is None else f" At {self.price_per_hour:g} an hour, it costs {cost:.2f}."
        return f"{self.made.expected.text()}.{price}"

    def contents(self) -> Iterator[Line]:
        """Yield the lines without the last one, which has the command to carry the plan out."""
        yield from _plan_lines(self.made.plan)
        yield from self.made.columns
        yield from blocked_lines(self.made.selection)
        yield from never_built_lines(self.made.selection)
        if self.downstream:
            yield f"Assets of Dagster that read these days: {named(self.downstream)}."
        yield f"Expected: {self.expected}"
        unusable = self.made.unusable
        for (table, day), error in list(unusable.items())[:UNUSABLE_SHOWN]:
            yield f"{table} {day} will fail: {error.what}"
            yield f"  {error.next_step}"
        if len(unusable) > UNUSABLE_SHOWN:
            yield (
                f"and {len(unusable) - UNUSABLE_SHOWN} more days whose source cannot be used:"
                " `backfill status` names them"
            )

    def lines(self) -> Iterator[Line]:
        yield from self.contents()
        plan_id = self.made.plan.id
        yield f"Nothing was started. To carry it out: `backfill run {plan_id}`."

    def as_json(self) -> Mapping[str, Any]:
        made = self.made
        expected = made.expected
        return {
            "id": made.plan.id,
            "plan": made.plan.as_json(),
            "blocked": by_partition(made.selection.blocked),
            "never_built": made.selection.never_built,
            "will_fail": by_partition(made.unusable),
            "columns": made.columns,
            "minutes": round(expected.minutes, 2),
            "spread": round(expected.spread, 2),
            "unknown": expected.unknown,
            "cost": self.cost,
            "downstream": self.downstream,
        }


@dataclass(frozen=True)
class NothingBuilt(Report):
    """The answer to a request that needs no plan: everything requested is up to date."""

    why: str
    id: None = None
    plan: None = None
    ending: Ending = Ending.DONE

    def lines(self) -> Iterator[Line]:
        yield self.why


def plan_rebuild(
    request: RebuildRequest, workspace: Workspace, dagster: Dagster
) -> PlanReport | NothingBuilt:
    """Make a plan and store it. Nothing is launched. `dagster` names the assets downstream."""
    try:
        made = make_plan(request, workspace)
    except NothingToBuild as nothing:
        return NothingBuilt(str(nothing))
    downstream: list[str] = []
    with suppress(BackfillError):
        downstream = assets_downstream(dagster, made.plan.reasons, workspace)
    return PlanReport(made, workspace.settings.price_per_hour, downstream)


def table_of_plan(plan: Plan) -> TableContents:
    """Return a row for each table: its days, with their reasons."""
    days = grouped(plan.partitions())
    rows = [
        (name, str(len(days[name])), ranges(days[name]), _why(reasons))
        for name, reasons in plan.reasons.items()
    ]
    return ("table", "days", "which", "why"), rows


def _why(reasons: Mapping[date, Reason]) -> str:
    counts = Counter(
        "reads what is rebuilt" if reason.kind == ReasonKind.READS else str(reason)
        for reason in reasons.values()
    )
    return ", ".join(f"{n} {why}" for why, n in counts.most_common())


def _plan_lines(plan: Plan) -> Iterator[Line]:
    """Yield a plan's days and reasons by table, and its chunks in order."""
    yield table_of(*table_of_plan(plan), title=f"plan {plan.id}")
    yield from chunk_lines(plan)


def chunk_lines(plan: Plan) -> Iterator[str]:
    """A line for each chunk, in order, and the lake in which they are built, if it is not live."""
    for n, chunk in enumerate(plan.chunks[:CHUNKS_SHOWN]):
        canary = " (canary)" if n == 0 and plan.options.canary and len(plan.chunks) > 1 else ""
        days = without_no_day(day for _, day in chunk.partitions())
        yield f"chunk {n + 1}{canary}: {len(chunk.partitions())} partitions, {days[0]}..{days[-1]}"
    if len(plan.chunks) > CHUNKS_SHOWN:
        yield f"and {len(plan.chunks) - CHUNKS_SHOWN} more chunks"
    if plan.is_shadow:
        yield (
            "In a shadow: no reader sees these days until they are published. --into live writes"
            " them at once."
        )


def blocked_lines(selection: Selection) -> Iterator[str]:
    if selection.blocked:
        yield f"Blocked, and not in the plan: {len(selection.blocked)} partition(s)"
        for (table, day), why in list(selection.blocked.items())[:BLOCKED_SHOWN]:
            yield f"  {table} {day}: {why}"
        if selection.upstream_helps:
            yield "  With --upstream, a plan holds what they need too, where there is a delivery."


def never_built_lines(selection: Selection) -> Iterator[str]:
    """A sentence on the tables downstream whose first days are not in the plan."""
    if names := selection.never_built:
        yield (
            f"Downstream, but never built, and not in the plan: {', '.join(names)}."
            " --downstream=all adds their days."
        )


@dataclass(frozen=True)
class PlanDetails(Report):
    """A plan, its events, and its progress or its end."""

    plan: Plan
    events: Sequence[Event]
    state: str
    files_changed: Mapping[str, str]
    progress: RunReport | None
    ended: Ended | None
    why_no_progress: str
    # What a strip shows of each day, without what readers have.
    cells: Cells
    svg: str = ""

    def as_json(self) -> Mapping[str, Any]:
        if self.progress:
            values = self.progress.progress_values()
        else:
            ending = vars(self.ended) if self.ended else {}
            values = {"plan": self.plan.id, "why": self.why_no_progress, **ending}
        return {
            **values,
            "files_changed": self.files_changed,
            "svg": self.svg,
            "state": self.state,
            "contents": self.plan.as_json(),
            "events": [
                {"at": event.at.isoformat(), "kind": event.kind, **event.facts}
                for event in self.events
            ],
        }

    def lines(self) -> Iterator[Line]:
        plan_id = self.plan.id
        yield from _plan_lines(self.plan)
        for event in self.events:
            yield f"  {event.at:%Y-%m-%d %H:%M:%S} UTC {event_words(event)}"
        for partition, files in list(self.files_changed.items())[:CHANGED_SHOWN]:
            yield f"  {partition}: {files}"
        if len(self.files_changed) > CHANGED_SHOWN:
            more = len(self.files_changed) - CHANGED_SHOWN
            yield (
                f"  Files of {more} more day(s) changed: `backfill status --why TABLE DAY` names"
                " them."
            )
        if self.ended:
            if self.ended.tables:
                yield table_of(OUTCOME_COLUMNS, self.ended.rows())
            yield from self.ended.early_stops
            yield self.ended.line(plan_id)
        if self.state in CLOSED:
            yield (
                f"It was {in_words(self.state)} since. `backfill status` shows its days as they"
                " are now."
            )
        elif not self.events:
            yield f"It was never started. To carry it out: `backfill run {plan_id}`."
        elif self.progress:
            for name, days in self.cells.items():
                yield name
                yield from strips(days)
            yield legend(self.cells)
            yield from self.progress.ending_lines()
        if self.why_no_progress:
            yield f"Its progress cannot be computed any more. {self.why_no_progress}"
        if self.svg:
            yield f"Written to {self.svg}."


def show_plan(
    plan_id: str, workspace: Workspace, not_imported: str, file: Path | None = None
) -> PlanDetails:
    """Read a plan, its events and its progress. With `file`, draw its days.

    `not_imported` says why the project cannot be imported: then there is no progress.
    """
    plans = Plans(workspace.lake.root)
    plan = plans.read(plan_id)
    events = plans.history(plan_id)
    state = plans.state(plan_id)
    changed = by_partition(changed_files(plan, workspace.lake))
    ended = how_ended(events) if state in CLOSED else None
    progress = None
    why = "" if state in CLOSED else not_imported
    try:
        if state not in CLOSED and not not_imported:
            watch = Watch(plan, plans, remaining_reader(plan, workspace), utc_now)
            progress = RunReport.of(watch.progress(), workspace)
    except BackfillError as error:  # the project lacks one of its tables
        why = str(error)
    cells = _cells(plan, workspace, progress) if progress or file else {}
    if file:
        values = _plan(plans, plan_id, plans.files_of(plan_id))
        title = f"Plan {plan_id} ({plan_state(values)}): {values['reason']}".rstrip(": ")
        write_page(svg(with_released(cells, workspace.lake), title, plan.partitions()), file)
    return PlanDetails(plan, events, state, changed, progress, ended, why, cells, str(file or ""))


def _cells(
    plan: Plan, workspace: Workspace, progress: RunReport | None
) -> dict[str, dict[date, Shown]]:
    """Return the state of each day of a plan in each of its tables, and what is left to do."""
    tables = workspace.among(plan.reasons)
    running = runs_by_partition(workspace_of(plan, workspace))
    days = [day for day in plan.days() if day in workspace.calendar]
    status = status_in_bulk(workspace, tables, days, running)
    cells = cells_of(status, built_in_shadows(workspace.lake.root, plan.id))
    for (name, day), state in progress.end.remaining.states.items() if progress else ():
        if state == WorkState.FAILED and day in cells[name]:
            cells[name][day] = State.FAILED
        elif state != WorkState.DONE and cells[name].get(day) in DONE:
            cells[name][day] = Mark.PLANNED
    return cells
