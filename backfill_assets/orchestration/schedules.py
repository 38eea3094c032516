"""Schedules: the nightly run, and one for each table with its own `cron`.

The nightly run is one run over one range of days and all tables. The range has yesterday, the days
that late rows may have made outdated, and missed days of the last month. Days that are up to date
are not computed again. The schedule of a table builds its newest complete day; its other days are
built on demand. All schedules are stopped until someone starts them.
"""

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Any

from dagster import (
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    define_asset_job,
    schedule,
)

from backfill_assets.calendar import NO_DAY, Calendar, Partition, between
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.names import OPTIONS, own, own_job, step_of
from backfill_assets.grouping import grouped
from backfill_assets.orchestration.assets import asset_key, executor, live_assets
from backfill_assets.step.verdict import waiting_for_calendar
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import days_until_complete, on_request
from backfill_assets.workspace import Workspace


def own_schedules(workspace: Workspace) -> list[ScheduleDefinition]:
    """One schedule for each table with its own `cron`."""
    return [_schedule_of(table, workspace) for table in workspace.tables if table.cron]


def _schedule_of(table: Table, workspace: Workspace) -> ScheduleDefinition:
    description = (
        f"Builds the newest complete day of {table.name}, unless it is up to date. Other days are"
        " built on demand."
    )
    name = own(f"schedule_{step_of(table.name)}")
    job = define_asset_job(
        own_job(table.name), [asset_key(table)], description=description, executor_def=executor
    )

    @schedule(
        name=name,
        job=job,
        cron_schedule=table.cron,
        execution_timezone=workspace.calendar.zone,
        description=description,
    )
    def newest(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        calendar = table.calendar_of(workspace.calendar)
        day = next(
            (
                day
                for day in reversed(calendar.days())
                if not waiting_for_calendar(table, day, workspace.calendar)
            ),
            None,
        )
        if day is None:
            return SkipReason(f"No day of {table.name} is complete yet.")
        return _run_request(context, "schedule", day, day)

    return newest


# More than a month of missed nights needs a plan, and must not start unattended.
CATCH_UP_DAYS = 31


def days_of_the_night(
    calendar: Calendar, days_back: int, accepted: Iterable[Partition]
) -> list[date]:
    """The days of a nightly run, without gaps.

    These are the newest day, missed days before it, and the `days_back` days before the first of
    these: a delivery on a missed day may have rows about them. A day is missed if a table has an
    accepted build of an earlier day, but not of this day.
    """
    newest = calendar.last
    oldest = max(calendar.first, newest - timedelta(days=CATCH_UP_DAYS - 1))
    built = {name: set(days) for name, days in grouped(accepted).items()}
    missed = {
        day
        for days in built.values()
        for day in between(oldest, newest)
        if day not in days and day > min(days)
    }
    begun = min((min(days) for days in built.values()), default=calendar.first)
    first = max(
        min([newest, *missed]) - timedelta(days=days_back), calendar.first, min(begun, newest)
    )
    return list(between(first, newest))


def nightly_schedule(workspace: Workspace) -> ScheduleDefinition:
    """The schedule of the nightly run."""
    calendar = workspace.calendar
    late_rows = workspace.settings.nightly_late_rows
    # Tables with their own schedule are built by it.
    tables = [table for table in workspace.tables if not table.cron]
    days_back = max(
        (days_until_complete(table, late_rows=late_rows) for table in tables), default=0
    )
    newest = f"newest {days_back + 1} days" if days_back else "newest day"
    description = (
        f"Builds missing and outdated days of the {newest}, all tables in one run. Catches up on as"
        f" many as {CATCH_UP_DAYS} missed nights. Days that are up to date are not computed again."
    )
    job = define_asset_job(
        own("nightly"), live_assets(tables), description=description, executor_def=executor
    )

    @schedule(
        name=own("nightly"),
        job=job,
        cron_schedule=workspace.settings.nightly_cron,
        execution_timezone=workspace.calendar.zone,
        description=description,
    )
    def nightly(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        names = [t.name for t in tables if not (on_request(t) or t.without_days)]
        accepted = workspace.lake.latest(dict.fromkeys(names)).accepted
        days = days_of_the_night(calendar, days_back, accepted)
        if not days:
            return SkipReason(f"The calendar from {calendar.first} has no day before today.")
        # Days that still wait for later days are built in later nights.
        config = {"resources": {OPTIONS: {"config": {"skip_not_due": True}}}}
        return _run_request(context, "nightly", days[0], days[-1], config)

    return nightly


def _run_request(
    context: ScheduleEvaluationContext,
    name: str,
    first: date,
    last: date,
    config: Mapping[str, Any] | None = None,
) -> RunRequest:
    """The request for a run on a range of days, once for each time of the schedule."""
    scheduled = context.scheduled_execution_time
    reason = f"{name} of {scheduled.date()}"
    range_tags = {tags.FIRST_DAY: str(first), tags.LAST_DAY: str(last)} if last != NO_DAY else {}
    return RunRequest(scheduled.isoformat(), config, range_tags | {tags.REASON: reason})


def weekly_maintenance(zone: str) -> ScheduleDefinition:
    """Return the schedule of the job `backfill_maintain`, with `apply`.

    The job removes files, so the schedule is stopped until someone starts it.
    """
    return ScheduleDefinition(
        name=own("weekly_maintenance"),
        job_name=own("maintain"),
        cron_schedule="0 4 * * 0",
        execution_timezone=zone,
        run_config={"ops": {own("upkeep"): {"config": {"apply": True}}}},
        description=(
            f"Runs the job backfill_maintain with `apply` every Sunday at 04:00 ({zone}). It"
            " deletes files for good, so it is stopped until someone starts it. Look at `backfill"
            " maintain` first."
        ),
    )
