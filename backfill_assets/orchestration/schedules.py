"""The nightly run: yesterday, the days that are still provisional, and nights that were missed.

One run over one range of days and all tables. Days within it that are up to date cost nothing, so the range may be
generous: from the oldest day that has no accepted build (of the last 31), and at least the watermark's days back.
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

from backfill_assets.calendar import Calendar, between
from backfill_assets.dagster_client import tags
from backfill_assets.plan.make import latest_builds
from backfill_assets.workspace import Workspace

# More than a month of missed nights is a rebuild to be planned, not something to start unasked at night.
CATCH_UP_DAYS = 31


def days_of_the_night(calendar: Calendar, watermark: int, built: Iterable[date]) -> list[date]:
    """The days a nightly run covers, without gaps: the newest day, `watermark` days before it, and missed ones before."""
    newest = calendar.last
    rolling = newest - timedelta(days=watermark)
    have, reach = set(built), max(calendar.first, newest - timedelta(days=CATCH_UP_DAYS - 1))
    missed = [day for day in between(reach, newest) if day not in have]
    # Before the first day ever built nothing was missed: it was never begun.
    begun = [day for day in missed if have and day > min(have)]
    first = max(min([rolling, *begun]), calendar.first)
    return list(between(first, newest)) if first <= newest else []


def nightly_schedule(workspace: Workspace) -> ScheduleDefinition:
    """The schedule of the nightly run. It is off until it is turned on."""
    calendar = workspace.calendar
    # The most days that a day of any table waits for: until they are in, it is provisional.
    watermark = max((window.last_needed for table in workspace.tables for _, window in table.windows()), default=0)
    job = define_asset_job("nightly", AssetSelection.all())

    @schedule(name="nightly", job=job, cron_schedule=workspace.settings.nightly_cron, execution_timezone="UTC")
    def nightly(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        accepted = latest_builds(workspace).accepted
        have = [{day for table, day in accepted if table == name} for name in workspace.names]
        days = days_of_the_night(calendar, max(watermark, 0), set.intersection(*have) if have else set())
        if not days:
            return SkipReason(f"The calendar from {calendar.first} has no day before today.")
        at = context.scheduled_execution_time
        return RunRequest(
            run_key=f"{at.isoformat()}",
            tags={
                ASSET_PARTITION_RANGE_START_TAG: str(days[0]),
                ASSET_PARTITION_RANGE_END_TAG: str(days[-1]),
                tags.REASON: f"nightly of {at.date()}",
            },
        )

    return nightly
