"""Sensors that rebuild outdated days: `backfill_late_rows` and `backfill_source_changes`.

Each sensor groups the days that it finds into batches, and requests one run of the job
`backfill_run_plan` for a batch. The plan writes to live, as a nightly run does. A batch waits until
nothing was added for a while and no other run is active. If some of its days are still outdated
after its run, the batch is requested again, each time after twice the wait. Both sensors are
stopped until someone starts them.

- `backfill_late_rows` finds days within the horizon that late rows have made outdated.
- `backfill_source_changes` finds built days whose files were added, changed or removed. It leaves a
  day to a person if the day's files are refused, if the day failed with these files, or if the day
  is beyond the horizon. Days that were never built are left to the nightly run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    RunRecord,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)
from pydantic import TypeAdapter

from backfill_assets.calendar import days_as_typed
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.names import own
from backfill_assets.digest import digest
from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.grouping import grouped
from backfill_assets.orchestration.local.unfinished import unfinished_runs, unfinished_runs_of_job
from backfill_assets.plan.late import Late, LateDay, late_rows
from backfill_assets.plan.source_changes import ChangedDay, SourceChanges, source_changes
from backfill_assets.plan.store import Plans
from backfill_assets.publish.live import last_commits
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.workspace import Workspace

# A batch is requested once nothing was added to it for QUIET, or LONGEST after its first change.
QUIET = timedelta(minutes=10)
LONGEST = timedelta(hours=2)

_JOB = own("run_plan")
_INTERVAL_S = 60
_RETRY_AFTER = LONGEST
_MAX_DOUBLINGS = 7
_PACE = (
    f"It starts {QUIET.seconds // 60} minutes after the last change, and at most"
    f" {LONGEST.seconds // 3600} hours after the first."
)
_CHANGED_BEYOND = "`backfill status` shows days beyond it."
# Reasons for a skip.
NO_LATE_ROWS = "There are no late rows within the horizon. `backfill late` lists days beyond it."
NO_COMMITS = "Nothing was committed since there were no late rows within the horizon."
NO_CHANGED_FILES = (
    "No files of built days within the horizon have changed, not counting protected days."
    f" {_CHANGED_BEYOND}"
)


@dataclass(frozen=True)
class Batch:
    """Days that one plan rebuilds.

    `request` has the plan's options that differ from their defaults. `key` changes whenever
    something is added. `first` and `last` are the times of the first and the last change.
    """

    key: str
    request: Mapping[str, Any]
    first: datetime
    last: datetime


@dataclass(frozen=True)
class _Tick:
    """What a sensor found: batches or the reason for a skip, and the cursor for the next tick."""

    batches: Sequence[Batch]
    skip_reason: str
    cursor: str | None


# Finds the batches, from the last tick's cursor and the time.
_Find = Callable[[str | None, datetime], _Tick]


def late_rows_sensor(
    workspace: Workspace, now: Callable[[], datetime] = utc_now
) -> SensorDefinition:
    """Sensor that rebuilds the days within the horizon that late rows have made outdated."""

    def find(cursor: str | None, _: datetime) -> _Tick:
        # Protection also determines which days are late.
        protected = [workspace.settings.protected_days, *(t.protected for t in workspace.tables)]
        commits = _key([last_commits(workspace), *map(str, protected)])
        if commits == cursor:
            return _Tick((), NO_COMMITS, cursor)
        late = late_rows(workspace)
        # A run that computes late days may end without a commit: the cursor must not skip these
        # days.
        may_change = bool(late.within()) or late.is_computed
        return _Tick(late_batches(late), NO_LATE_ROWS, cursor if may_change else commits)

    description = (
        "Rebuilds the days within the horizon that late rows have made outdated, with everything"
        f" downstream, in one plan into live. {_PACE} `backfill late` lists late rows."
    )
    return _rebuild_sensor("late_rows", "Late rows", description, workspace, find, now)


def source_changes_sensor(
    workspace: Workspace, now: Callable[[], datetime] = utc_now
) -> SensorDefinition:
    """Sensor that rebuilds built days whose files were added, changed or removed."""

    def find(cursor: str | None, at: datetime) -> _Tick:
        changes = source_changes(workspace)
        batches, seen = source_batches(changes, cursor, at)
        refused = [item for source in changes for item in source.refused.items()]
        skip_reason = NO_CHANGED_FILES
        if refused:
            (table, _), why = refused[0]
            skip_reason = f"{len(refused)} day(s) wait for a decision. {table}: {why}"
        return _Tick(batches, skip_reason, seen)

    description = (
        "Rebuilds built days within the horizon of their source whose files were added, changed or"
        f" removed, with everything downstream, in one plan into live. {_PACE} Refused files and"
        f" days beyond the horizon need a decision. {_CHANGED_BEYOND}"
    )
    return _rebuild_sensor("source_changes", "Changed files", description, workspace, find, now)


def late_batches(late: Late) -> list[Batch]:
    """One batch for each table with late days within the horizon."""
    by_table = grouped((late_day.table, late_day) for late_day in late.within())
    return [_late_batch(table, days) for table, days in by_table.items()]


def _late_batch(table: str, days: Sequence[LateDay]) -> Batch:
    parts = [f"{table} {late.day} {late.rows} {late.last_built.isoformat()}" for late in days]
    rows = sum(late.rows for late in days)
    request = _request(
        [late.day for late in days], [table], f"late rows: {rows:+,} about {len(days)} day(s)"
    )
    first = min(late.first_built for late in days)
    last = max(late.last_built for late in days)
    return Batch(_key(parts), request, first, last)


class _BatchHistory(NamedTuple):
    """The batch of a source at the last tick: its key, and the times of its changes.

    `first` is the time of the source's first batch, `last` the time at which the batch got this
    key.
    """

    key: str
    first: datetime
    last: datetime


_HISTORY = TypeAdapter(dict[str, _BatchHistory])


def source_batches(
    changes: Sequence[SourceChanges], cursor: str | None, now: datetime
) -> tuple[list[Batch], str]:
    """One batch for each source with changed days, and the cursor.

    A removed file has no time, so the cursor stores the time at which each change was first seen.
    """
    before = _read_history(cursor)
    history = {}
    batches = []
    for source in changes:
        days = source.days
        if not days:
            continue
        parts = [
            f"{changed.table} {changed.day} {changed.delivered} {changed.built.isoformat()}"
            for changed in days
        ]
        key = _key(parts)
        name = ",".join(source.tables)
        earlier = before.get(name, _BatchHistory("", now, now))
        last = earlier.last if earlier.key == key else now
        history[name] = _BatchHistory(key, earlier.first, last)
        batches.append(Batch(key, _source_request(days, source.since), earlier.first, last))
    return batches, _HISTORY.dump_json(history).decode()


def _read_history(cursor: str | None) -> dict[str, _BatchHistory]:
    with suppress(ValueError):
        return _HISTORY.validate_json(cursor or "{}")
    return {}


def _source_request(changed: Sequence[ChangedDay], since: date) -> dict[str, Any]:
    days = sorted({change.day for change in changed})
    tables = dict.fromkeys(change.table for change in changed)
    why = next((change.why for change in changed if change.why), "other contents")
    request = _request(days, tables, f"source changed on {len(days)} day(s): {why}")
    has_failed = any(change.has_failed for change in changed)
    return request | {
        "only": "outdated,failed" if has_failed else "outdated",
        "downstream_since": str(since),
    }


def _key(parts: Iterable[str]) -> str:
    return digest(*parts, length=16)


def _request(days: Iterable[date], tables: Iterable[str], reason: str) -> dict[str, Any]:
    return {
        "partitions": days_as_typed(days),
        "target": ",".join(tables),
        "only": "outdated",
        "downstream": "built",
        "leave_protected": True,
        "into": "live",
        "reason": reason,
    }


def _rebuild_sensor(
    name: str,
    subject: str,
    description: str,
    workspace: Workspace,
    find: _Find,
    now: Callable[[], datetime],
) -> SensorDefinition:
    def rebuild(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        def runs_of(batch: Batch) -> Sequence[RunRecord]:
            requested = RunsFilter(job_name=_JOB, tags={tags.BATCH: batch.key})
            return context.instance.get_run_records(requested)

        def active() -> Iterator[str]:
            return _active_work(workspace, context.instance)

        try:
            tick = find(context.cursor, now())
            decision = next_request(tick.batches, now(), runs_of, active) if tick.batches else ""
        except BackfillError as error:
            return SkipReason(str(error))
        if tick.cursor is not None:
            context.update_cursor(tick.cursor)
        if isinstance(decision, RunRequest):
            return SensorResult([decision])
        if decision:
            return SkipReason(f"{subject} are waiting: {decision}.")
        return SkipReason(tick.skip_reason)

    return SensorDefinition(
        name=own(name),
        job_name=_JOB,
        evaluation_fn=rebuild,
        minimum_interval_seconds=_INTERVAL_S,
        description=description,
    )


def next_request(
    batches: Sequence[Batch],
    now: datetime,
    runs_of: Callable[[Batch], Sequence[RunRecord]],
    active: Callable[[], Iterator[str]],
) -> RunRequest | str:
    """Request the first batch that is ready, or return the reason why none is requested now.

    `runs_of` returns the earlier runs of a batch, the latest first. `active` is called only if a
    batch is ready, because it reads all plans.
    """
    reasons = []
    for batch in batches:
        runs = runs_of(batch)
        if reason := _not_ready(batch, runs, now):
            reasons.append(reason)
            continue
        if work := next(active(), ""):
            return work
        # Dagster ignores a run key that it has seen.
        run_key = f"{batch.key}-{len(runs) + 1}" if runs else batch.key
        run_config = {"ops": {own("run"): {"config": dict(batch.request)}}}
        return RunRequest(run_key, run_config, {tags.BATCH: batch.key})
    return reasons[0]


def _not_ready(batch: Batch, runs: Sequence[RunRecord], now: datetime) -> str:
    """The reason why a batch is not rebuilt yet; "" if it is ready."""
    quiet_at = min(batch.last + QUIET, batch.first + LONGEST)
    if now < quiet_at:
        return f"more may arrive until {quiet_at:%H:%M} UTC"
    if not runs:
        return ""
    latest = runs[0].dagster_run
    run = f"run {latest.run_id[:8]} of {_JOB}"
    days = batch.request["partitions"]
    if not latest.is_finished:
        return f"{run} is not finished"
    if latest.status == DagsterRunStatus.CANCELED:
        return f"{run} ({days}) was canceled. It is not requested again until more arrives"
    ended_s = runs[0].end_time or runs[0].update_timestamp.timestamp()
    doublings = min(len(runs) - 1, _MAX_DOUBLINGS)
    retry_at = datetime.fromtimestamp(ended_s, UTC) + _RETRY_AFTER * 2**doublings
    if now < retry_at:
        return (
            f"{run} has ended, and days of {days} are still outdated. The next attempt is at"
            f" {retry_at:%Y-%m-%d %H:%M} UTC"
        )
    return ""


def _active_work(workspace: Workspace, instance: DagsterInstance) -> Iterator[str]:
    """The work that a rebuild must wait for: runs of the tables, and open plans into live."""
    for run in unfinished_runs(instance, workspace.names):
        yield f"{run} is not finished"
    for run in unfinished_runs_of_job(instance, _JOB):
        yield f"{run} of {_JOB} is not finished"
    plans = Plans(workspace.lake.root)
    for plan_id in plans.open():
        try:
            plan = plans.read(plan_id)
        except UsageError:  # a plan that cannot be read cannot run either
            continue
        if not plan.is_shadow and plan.code.keys() & set(workspace.names):
            commands = f"`backfill resume {plan_id}`, or `backfill cancel {plan_id}`"
            yield f"plan {plan_id} is open ({commands})"
