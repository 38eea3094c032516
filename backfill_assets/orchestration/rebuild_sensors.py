"""Sensors that let the job run_plan rebuild what has become outdated: one plan into live for a
batch, as a night would do it.

A batch waits until nothing has been added to it for a while, and for what is under way. One that
was requested before, and is still there although its run has ended, is requested again after a
while, each time twice as long after; others go before it. One whose run somebody canceled is not,
until something is added to it. Every such sensor is stopped until someone starts it.

The sensor `late_rows`: it lets the job run_plan rebuild the days within the horizon that late rows
have made outdated.

The sensor `source_changes`: it lets the job run_plan rebuild built days whose files came, changed
or went since.

Days that were never built are the nights'. A day whose files are refused, one that has failed with
these files, and one beyond the horizon of its source wait for a person.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

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

from backfill_assets.calendar import days_as_typed, ranges
from backfill_assets.dagster_client import tags
from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.orchestration.unfinished import unfinished_runs
from backfill_assets.plan.late import Late, LateDay, late_rows
from backfill_assets.plan.source_changes import ChangedDay, SourceChanges, source_changes
from backfill_assets.plan.store import Plans
from backfill_assets.publish.live import last_commits
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.workspace import Workspace

JOB = "run_plan"
EVERY_S = 60
# A batch is rebuilt once nothing has been added to it for so long, or its first part has waited for
# so long.
QUIET = timedelta(minutes=10)
LONGEST = timedelta(hours=2)
# After its first run has ended in vain. Doubled so many times at most.
AGAIN = LONGEST
DOUBLED = 7
PACE = (
    f"{QUIET.seconds // 60} minutes after the last of them, or {LONGEST.seconds // 3600} hours"
    " after the first"
)


@dataclass(frozen=True)
class Batch:
    """Days that one plan rebuilds: the fields of its request that are not at their default. Its key
    is another whenever something is added to it, which was first done at `first`, and at `last` for
    the last time.
    """

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
    """What a look has found: the batches, or why there is none; and the cursor to leave for the
    next look.
    """

    batches: Sequence[Batch]
    nothing: str
    cursor: str | None


# What is there to rebuild, given the cursor that the look before it left and the time.
Look = Callable[[str | None, datetime], Found]
# The runs of a batch that were requested before, the latest first.
RunsOf = Callable[[Batch], Sequence[RunRecord]]


def decide(
    batches: Sequence[Batch], now: datetime, runs_of: RunsOf, busy: Callable[[], Iterator[str]]
) -> RunRequest | Waiting:
    """The request for the first batch that is to be rebuilt now. `busy`, what is under way, is
    asked last.
    """
    reasons = []
    for batch in batches:
        before = runs_of(batch)
        if why := _waits(batch, before, now):
            reasons.append(why)
        elif reason := next(busy(), ""):
            return Waiting(reason)
        else:
            key = f"{batch.key}-{len(before) + 1}" if before else batch.key
            return RunRequest(
                key, {"ops": {"run": {"config": dict(batch.request)}}}, {tags.BATCH: batch.key}
            )
    return Waiting(reasons[0])


def _waits(batch: Batch, before: Sequence[RunRecord], now: datetime) -> str:
    """Why a batch is not rebuilt yet; "" if it is to be."""
    until = min(batch.last + QUIET, batch.first + LONGEST)
    if now < until:
        return f"more may arrive until {until:%H:%M} UTC"
    if not before:
        return ""
    last = before[0].dagster_run
    run = f"run {last.run_id[:8]} of {JOB}"
    days = batch.request["partitions"]
    if not last.is_finished:
        return f"{run} is not finished"
    if last.status == DagsterRunStatus.CANCELED:
        return f"{run}, of {days}, was canceled; they are not rebuilt unasked until more arrives"
    ended = datetime.fromtimestamp(
        before[0].end_time or before[0].update_timestamp.timestamp(), UTC
    )
    until = ended + AGAIN * 2 ** min(len(before) - 1, DOUBLED)
    if now < until:
        return (
            f"{run} has ended, and of {days} something is still outdated; it is tried again at"
            f" {until:%Y-%m-%d %H:%M} UTC"
        )
    return ""


def under_way(workspace: Workspace, instance: DagsterInstance) -> Iterator[str]:
    """What keeps a batch from being rebuilt now: runs of the tables, a plan that is made, one into
    live that is open.
    """
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
            yield (
                f"plan {plan_id} is open (`backfill resume {plan_id}`, or `backfill cancel"
                f" {plan_id}`)"
            )


def rebuild_sensor(
    name: str,
    there_are: str,
    description: str,
    workspace: Workspace,
    look: Look,
    now: Callable[[], datetime],
) -> SensorDefinition:
    """The sensor of that name. `there_are`: what a batch is of, as a sentence begins."""

    def rebuild(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        def runs_of(batch: Batch) -> Sequence[RunRecord]:
            return context.instance.get_run_records(
                RunsFilter(job_name=JOB, tags={tags.BATCH: batch.key})
            )

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
        return SkipReason(
            f"{there_are}, which wait: {decision.why}." if decision else found.nothing
        )

    return SensorDefinition(
        name=name,
        job_name=JOB,
        evaluation_fn=rebuild,
        minimum_interval_seconds=EVERY_S,
        description=description,
    )


LATE_ROWS = "late_rows"
LATE_BEYOND = "`backfill late` names those beyond the horizon."
NOTHING = "There are no late rows within the horizon. `backfill late` names those beyond it."


def late_batches(late: Late, protected: Collection[date] = ()) -> list[Batch]:
    """The late days within the horizon that no setting protects, a batch for each table."""
    within = [each for each in late.within() if each.day not in protected]
    return [
        _batch([each for each in within if each.table == table])
        for table in dict.fromkeys(each.table for each in within)
    ]


def late_skip_reason(late: Late) -> str:
    """That no day is to be rebuilt, and which late ones are protected."""
    protected = sorted({each.day for each in late.within()})
    return (
        f"Only protected days have late rows, and stay as they are: {ranges(protected)}."
        f" {LATE_BEYOND}"
        if protected
        else NOTHING
    )


def _batch(days: Sequence[LateDay]) -> Batch:
    parts = [f"{each.table} {each.day} {each.rows} {each.last_built.isoformat()}" for each in days]
    request = {
        "partitions": days_as_typed(each.day for each in days),
        "target": days[0].table,
        "only": "outdated",
        "downstream": True,
        "leave_protected": True,
        "into": "live",
        "reason": f"late rows: {sum(each.rows for each in days):+,} about {len(days)} day(s)",
    }
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return Batch(
        key, request, min(each.first_built for each in days), max(each.last_built for each in days)
    )


def late_rows_sensor(
    workspace: Workspace, now: Callable[[], datetime] = utc_now
) -> SensorDefinition:
    """The sensor. Its cursor is what was committed when there were no late rows, and no run that
    could end without a word.
    """

    def look(cursor: str | None, _: datetime) -> Found:
        commits = last_commits(workspace)
        if commits == cursor:
            return Found(
                (),
                "Nothing was committed since there were no late rows within the horizon.",
                cursor,
            )
        late = late_rows(workspace)
        batches = late_batches(late, workspace.settings.protected())
        return Found(
            batches,
            late_skip_reason(late),
            cursor if late.within() or late.is_computed else commits,
        )

    description = (
        "Rebuilds the days within the horizon that late rows have made outdated, and what is made"
        f" from them, in one plan into live: {PACE}. `backfill late` shows them."
    )
    return rebuild_sensor(LATE_ROWS, "There are late rows", description, workspace, look, now)


SOURCE_CHANGES = "source_changes"
SOURCE_BEYOND = "`backfill status` names those of days beyond it."


class Seen(NamedTuple):
    """What the sensor saw of a source: the key of its batch, since when it has one, and since when
    it is this one.
    """

    key: str
    first: datetime
    last: datetime


def source_batches(
    changes: Sequence[SourceChanges],
    cursor: str | None,
    now: datetime,
    protected: Collection[date] = (),
) -> tuple[list[Batch], str]:
    """The changed days that no setting protects, a batch for each source, and the cursor. What goes
    has no time of its own: it counts from when it was first seen to be gone.
    """
    before = _seen(cursor)
    seen = {}
    batches = []
    for of_source in changes:
        if days := [each for each in of_source.days if each.day not in protected]:
            parts = [
                f"{each.table} {each.day} {each.delivered} {each.built.isoformat()}"
                for each in days
            ]
            key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
            name = ",".join(of_source.tables)
            known = before.get(name, Seen("", now, now))
            seen[name] = Seen(key, known.first, known.last if known.key == key else now)
            batches.append(
                Batch(key, _request(days, of_source.since), seen[name].first, seen[name].last)
            )
    return batches, json.dumps(seen, default=str)


def _seen(cursor: str | None) -> dict[str, Seen]:
    with suppress(ValueError, TypeError):
        seen = json.loads(cursor or "{}").items()
        return {
            name: Seen(key, datetime.fromisoformat(first), datetime.fromisoformat(last))
            for name, (key, first, last) in seen
        }
    return {}


def _request(changed: Sequence[ChangedDay], since: date) -> dict[str, Any]:
    days = sorted({each.day for each in changed})
    return {
        "partitions": days_as_typed(days),
        "target": ",".join(dict.fromkeys(each.table for each in changed)),
        "only": "outdated,failed" if any(each.has_failed for each in changed) else "outdated",
        "downstream": True,
        "downstream_since": str(since),
        "leave_protected": True,
        "into": "live",
        "reason": (
            f"source changed on {len(days)} day(s):"
            f" {next((each.why for each in changed if each.why), 'other contents')}"
        ),
    }


def source_skip_reason(changes: Sequence[SourceChanges]) -> str:
    """That no day is to be rebuilt, and which of them are protected, or wait for their files or for
    a person.
    """
    refused = [(partition, why) for each in changes for partition, why in each.refused.items()]
    protected = sorted({changed.day for each in changes for changed in each.days})
    said = (
        [f"Files of protected days changed, which stay as they are: {ranges(protected)}."]
        if protected
        else []
    )
    if refused:
        (table, _), why = refused[0]
        said.append(f"{len(refused)} day(s) stay as they are. {table}: {why}")
    return (
        " ".join(said) or f"No files of built days within the horizon have changed. {SOURCE_BEYOND}"
    )


def source_changes_sensor(
    workspace: Workspace, now: Callable[[], datetime] = utc_now
) -> SensorDefinition:
    """The sensor."""

    def look(cursor: str | None, at: datetime) -> Found:
        changes = source_changes(workspace)
        batches, seen = source_batches(changes, cursor, at, workspace.settings.protected())
        return Found(batches, source_skip_reason(changes), seen)

    description = (
        "Rebuilds built days within the horizon of their source whose files came, changed or went,"
        f" and what is made from them, in one plan into live: {PACE}. Files that are refused and"
        f" days beyond the horizon are left to a person. {SOURCE_BEYOND}"
    )
    return rebuild_sensor(
        SOURCE_CHANGES, "There are changed files", description, workspace, look, now
    )
