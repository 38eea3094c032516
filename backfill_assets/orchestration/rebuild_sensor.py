"""Sensors that let the job run_plan rebuild what has become outdated: one plan into live for a batch, as a night would do it.

A batch waits until nothing has been added to it for a while, and for what is under way. One that was requested before, and is
still there although its run has ended, is requested again after a while, each time twice as long after; others go before it.
One whose run somebody canceled is not, until something is added to it. Every such sensor is stopped until someone starts it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from dagster import (  # fmt: skip
    DagsterInstance,
    DagsterRunStatus,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES, RunRecord

from backfill_assets.dagster_client import tags
from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.orchestration.unfinished import unfinished_runs
from backfill_assets.plan.store import Plans
from backfill_assets.workspace import Workspace

JOB, EVERY_S = "run_plan", 60
# A batch is rebuilt once nothing has been added to it for so long, or its first part has waited for so long.
QUIET, LONGEST = timedelta(minutes=10), timedelta(hours=2)
# After its first run has ended in vain. Doubled so many times at most.
AGAIN, DOUBLED = LONGEST, 7
PACE = f"{QUIET.seconds // 60} minutes after the last of them, or {LONGEST.seconds // 3600} hours after the first"


@dataclass(frozen=True)
class Batch:
    """Days that one plan rebuilds: the fields of its request that are not at their default. Its key is another whenever
    something is added to it, which was first done at `first`, and at `last` for the last time."""

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
    """What a look has found: the batches, or why there is none; and the cursor to leave for the next look."""

    batches: Sequence[Batch]
    nothing: str
    cursor: str | None


# What is there to rebuild, given the cursor that the look before it left and the time.
Look = Callable[[str | None, datetime], Found]
# The runs of a batch that were requested before, the latest first.
RunsOf = Callable[[Batch], Sequence[RunRecord]]


def decide(batches: Sequence[Batch], now: datetime, runs_of: RunsOf, busy: Callable[[], Iterator[str]]) -> RunRequest | Waiting:
    """The request for the first batch that is to be rebuilt now. `busy`, what is under way, is asked last."""
    reasons = []
    for batch in batches:
        before = runs_of(batch)
        if why := _waits(batch, before, now):
            reasons.append(why)
        elif reason := next(busy(), ""):
            return Waiting(reason)
        else:
            key = f"{batch.key}-{len(before) + 1}" if before else batch.key
            return RunRequest(key, {"ops": {"run": {"config": dict(batch.request)}}}, {tags.BATCH: batch.key})
    return Waiting(reasons[0])


def _waits(batch: Batch, before: Sequence[RunRecord], now: datetime) -> str:
    """Why a batch is not rebuilt yet; "" if it is to be."""
    until = min(batch.last + QUIET, batch.first + LONGEST)
    if now < until:
        return f"more may arrive until {until:%H:%M} UTC"
    if not before:
        return ""
    last = before[0].dagster_run
    run, days = f"run {last.run_id[:8]} of {JOB}", batch.request["partitions"]
    if not last.is_finished:
        return f"{run} is not finished"
    if last.status == DagsterRunStatus.CANCELED:
        return f"{run}, of {days}, was canceled; they are not rebuilt unasked until more arrives"
    ended = datetime.fromtimestamp(before[0].end_time or before[0].update_timestamp.timestamp(), UTC)
    until = ended + AGAIN * 2 ** min(len(before) - 1, DOUBLED)
    if now < until:
        return f"{run} has ended, and of {days} something is still outdated; it is tried again at {until:%Y-%m-%d %H:%M} UTC"
    return ""


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
        def runs_of(batch: Batch) -> Sequence[RunRecord]:
            return context.instance.get_run_records(RunsFilter(job_name=JOB, tags={tags.BATCH: batch.key}))

        def busy() -> Iterator[str]:
            return under_way(workspace, context.instance)

        try:
            found = look(context.cursor, now())
            decision = decide(found.batches, now(), runs_of, busy) if found.batches else None
        except BackfillError as error:
            return SkipReason(str(error))
        if found.cursor is not None:
            context.update_cursor(found.cursor)
        if isinstance(decision, RunRequest):
            return SensorResult([decision])
        return SkipReason(f"{there_are}, which wait: {decision.why}." if decision else found.nothing)

    return SensorDefinition(
        name=name, job_name=JOB, evaluation_fn=rebuild, minimum_interval_seconds=EVERY_S, description=description
    )
