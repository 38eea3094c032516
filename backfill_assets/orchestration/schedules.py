"""The nightly run: yesterday, the days that late rows may have made outdated, and nights that were missed.

One run over one range of days and all tables. Days in it that are up to date cost nothing, so the range runs from the oldest
of the last 31 days without an accepted build, and covers at least the days of the horizon.
"""

from collections.abc import Iterable
from datetime import date, timedelta

from dagster import (
    AssetSelection,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    define_asset_job,
    schedule,
)
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from backfill_assets.calendar import Calendar, Partition, between
from backfill_assets.dagster_client import tags
from backfill_assets.plan.make import latest_builds
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# More than a month of missed nights is a rebuild to plan, not one to start unattended.
CATCH_UP_DAYS = 31


def days_of_the_night(calendar: Calendar, days_back: int, built: Iterable[date]) -> list[date]:
    """The days of a nightly run, without gaps: the newest day, missed days before it, and the `days_back` days before those.

    What was delivered on a missed day may be about any of the days before it.
    """
    newest = calendar.last
    days_built, oldest = set(built), max(calendar.first, newest - timedelta(days=CATCH_UP_DAYS - 1))
    # Days before the first one ever built were not missed: the table did not exist yet.
    missed = [day for day in between(oldest, newest) if day not in days_built and days_built and day > min(days_built)]
    begun = min(days_built, default=calendar.first)
    first = max(min([newest, *missed]) - timedelta(days=days_back), calendar.first, min(begun, newest))
    return list(between(first, newest)) if first <= newest else []


def _built(table: Table, calendar: Calendar, accepted: Iterable[Partition]) -> set[date]:
    """The days of a table that need no building: those before its first day, too."""
    first = table.calendar_of(calendar).first
    return {day for name, day in accepted if name == table.name} | {day for day in calendar.days() if day < first}


def days_that_may_change(tables: Iterable[Table], *, late_rows: bool) -> int:
    """How many days before the newest a delivery may change: those that wait for it, or with `late_rows` all that read it."""
    windows = [window for table in tables for _, window in table.windows()]
    return max([0, *(window.last if late_rows else window.last_needed for window in windows)])


def nightly_schedule(workspace: Workspace) -> ScheduleDefinition:
    """The schedule of the nightly run. It is stopped until someone starts it."""
    calendar = workspace.calendar
    days_back = days_that_may_change(workspace.tables, late_rows=workspace.settings.nightly_late_rows)
    job = define_asset_job("nightly", AssetSelection.all())

    @schedule(name="nightly", job=job, cron_schedule=workspace.settings.nightly_cron, execution_timezone="UTC")
    def nightly(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        accepted = latest_builds(workspace).accepted
        built = [_built(table, calendar, accepted) for table in workspace.tables]
        days = days_of_the_night(calendar, days_back, set.intersection(*built) if built else set())
        if not days:
            return SkipReason(f"The calendar from {calendar.first} has no day before today.")
        scheduled = context.scheduled_execution_time
        return RunRequest(
            run_key=f"{scheduled.isoformat()}",
            tags={
                ASSET_PARTITION_RANGE_START_TAG: str(days[0]),
                ASSET_PARTITION_RANGE_END_TAG: str(days[-1]),
                tags.REASON: f"nightly of {scheduled.date()}",
            },
        )

    return nightly
