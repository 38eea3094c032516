"""The sensor `late_rows`: it lets the job run_plan rebuild the days that late rows have made outdated.

Only days within the horizon (`plan.late`), all of them in one plan into live, as a night would build them. It waits until no
late row has arrived for a while, and for what is under way; a batch that it has requested once it does not request again.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dagster import (
    DagsterInstance,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from backfill_assets.calendar import days_as_typed
from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.orchestration.unfinished import unfinished_runs
from backfill_assets.plan.late import Late, LateDay, late_rows
from backfill_assets.plan.store import Plans
from backfill_assets.publish.live import last_commits
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.workspace import Workspace

SENSOR, JOB, EVERY_S = "late_rows", "run_plan", 60
# A batch is rebuilt once nothing has been added to it for so long, or its first rows have waited for so long.
QUIET, LONGEST = timedelta(minutes=10), timedelta(hours=2)


@dataclass(frozen=True)
class Waiting:
    """There are late rows, and they are not rebuilt now."""

    why: str


@dataclass(frozen=True)
class Batch:
    """Late days of one table that are rebuilt by one plan. Its key is another whenever a row arrives."""

    days: tuple[LateDay, ...]

    @property
    def key(self) -> str:
        parts = [f"{each.table} {each.day} {each.rows} {each.last_built.isoformat()}" for each in self.days]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @property
    def request(self) -> dict[str, Any]:
        """The fields of the plan's request that are not at their default."""
        rows = sum(each.rows for each in self.days)
        return {
            "partitions": days_as_typed(each.day for each in self.days),
            "target": self.days[0].table,
            "only": "outdated",
            "downstream": True,
            "into": "live",
            "reason": f"late rows: {rows:+,} about {len(self.days)} day(s)",
        }


def decide(late: Late, now: datetime, busy: Callable[[], Iterator[str]]) -> Batch | Waiting | None:
    """The batch to rebuild now, of the first table that has late rows. `busy`, what is under way, is asked last."""
    within = late.within()
    days = tuple(each for each in within if each.table == within[0].table)
    if not days:
        return None
    quiet, longest = max(each.last_built for each in days) + QUIET, min(each.first_built for each in days) + LONGEST
    if now < min(quiet, longest):
        return Waiting(f"more may arrive until {min(quiet, longest):%H:%M} UTC")
    if reason := next(busy(), ""):
        return Waiting(reason)
    return Batch(days)


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


def late_rows_sensor(workspace: Workspace, now: Callable[[], datetime] = utc_now) -> SensorDefinition:
    """The sensor. It is stopped until someone starts it."""

    @sensor(
        name=SENSOR,
        job_name=JOB,
        minimum_interval_seconds=EVERY_S,
        description=(
            "Rebuilds the days within the horizon that late rows have made outdated, and what is made from them, in one plan "
            f"into live: {QUIET.seconds // 60} minutes after the last of them arrived, or {LONGEST.seconds // 3600} hours "
            "after the first. `backfill late` shows them."
        ),
    )
    def late(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        commits = last_commits(workspace)
        if commits == context.cursor:
            return SkipReason("Nothing was committed since there were no late rows within the horizon.")
        try:
            decision = decide(late_rows(workspace), now(), lambda: under_way(workspace, context.instance))
        except BackfillError as error:
            return SkipReason(str(error))
        if isinstance(decision, Batch):
            return SensorResult([RunRequest(decision.key, {"ops": {"run": {"config": decision.request}}})])
        if isinstance(decision, Waiting):
            return SkipReason(f"There are late rows, which wait: {decision.why}.")
        context.update_cursor(commits)
        return SkipReason("There are no late rows within the horizon. `backfill late` names those beyond it.")

    return late
