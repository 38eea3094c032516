"""Sensors that let the job run_plan rebuild what has become outdated: one plan into live for a batch, as a night would do it.

A batch waits until nothing has been added to it for a while, and for what is under way; one that was requested once is not
requested again. Every such sensor is stopped until someone starts it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dagster import DagsterInstance, RunRequest, RunsFilter, SensorDefinition, SensorEvaluationContext, SensorResult, SkipReason
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.orchestration.unfinished import unfinished_runs
from backfill_assets.plan.store import Plans
from backfill_assets.workspace import Workspace

JOB, EVERY_S = "run_plan", 60
# A batch is rebuilt once nothing has been added to it for so long, or its first part has waited for so long.
QUIET, LONGEST = timedelta(minutes=10), timedelta(hours=2)
PACE = f"{QUIET.seconds // 60} minutes after the last of them, or {LONGEST.seconds // 3600} hours after the first"


@dataclass(frozen=True)
class Batch:
    """Days that one plan rebuilds: the fields of its request that are not at their default. Its key is another whenever
    something is added to it, which was `first` and `last` done then."""

    key: str
    request: Mapping[str, Any]
    first: datetime
    last: datetime


@dataclass(frozen=True)
class Waiting:
    """There is a batch, and it is not rebuilt now."""

    why: str


@dataclass(frozen=True)
class Found:
    """What a look has found: a batch, or why there is none; and the cursor to leave for the next look."""

    batch: Batch | None
    nothing: str
    cursor: str | None


# What is there to rebuild, given the cursor that the look before it left and the time.
Look = Callable[[str | None, datetime], Found]


def decide(batch: Batch, now: datetime, busy: Callable[[], Iterator[str]]) -> Batch | Waiting:
    """The batch, if it is to be rebuilt now. `busy`, what is under way, is asked last."""
    until = min(batch.last + QUIET, batch.first + LONGEST)
    if now < until:
        return Waiting(f"more may arrive until {until:%H:%M} UTC")
    if reason := next(busy(), ""):
        return Waiting(reason)
    return batch


def under_way(workspace: Workspace, instance: DagsterInstance) -> Iterator[str]:
    """What keeps a batch from being rebuilt now: runs of the tables, a plan that is made, one into live that is open."""
    for run in unfinished_runs(instance, workspace.names):
        yield f"{run} is not finished"
    for launcher in instance.get_runs(RunsFilter(job_name=JOB, statuses=NOT_FINISHED_STATUSES)):
        yield f"run {launcher.run_id[:8]} of {JOB} is not finished"
    plans = Plans(workspace.lake.root)
    for plan_id in plans.open():
        try:
            plan = plans.read(plan_id)
        except UsageError:  # it cannot be carried out either
            continue
        if not plan.is_shadow and plan.code.keys() & set(workspace.names):
            yield f"plan {plan_id} is open (`backfill resume {plan_id}`, or `backfill cancel {plan_id}`)"


def rebuild_sensor(
    name: str, there_are: str, description: str, workspace: Workspace, look: Look, now: Callable[[], datetime]
) -> SensorDefinition:
    """The sensor of that name. `there_are`: what a batch is of, as a sentence begins."""

    def rebuild(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        try:
            found = look(context.cursor, now())
            decision = decide(found.batch, now(), lambda: under_way(workspace, context.instance)) if found.batch else None
        except BackfillError as error:
            return SkipReason(str(error))
        if found.cursor is not None:
            context.update_cursor(found.cursor)
        if isinstance(decision, Batch):
            return SensorResult([RunRequest(decision.key, {"ops": {"run": {"config": dict(decision.request)}}})])
        return SkipReason(f"{there_are}, which wait: {decision.why}." if decision else found.nothing)

    return SensorDefinition(
        name=name, job_name=JOB, evaluation_fn=rebuild, minimum_interval_seconds=EVERY_S, description=description
    )
