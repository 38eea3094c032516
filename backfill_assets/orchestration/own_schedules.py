"""The schedules of tables that have one of their own (`@table(cron=...)`): each builds the newest day that is complete by then.

Like the nightly one, they are stopped until someone starts them. Other days are built on request.
"""

from dagster import RunRequest, ScheduleDefinition, ScheduleEvaluationContext, SkipReason, define_asset_job, schedule
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.launched import own_job
from backfill_assets.dagster_client.loaded_table import step_of
from backfill_assets.orchestration.assets import asset_key
from backfill_assets.step.due import incomplete
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def own_schedules(workspace: Workspace) -> list[ScheduleDefinition]:
    """A schedule for each table that declares one."""
    return [_schedule_of(table, workspace) for table in workspace.tables if table.cron]


def _schedule_of(table: Table, workspace: Workspace) -> ScheduleDefinition:
    description = f"Builds the newest day of {table.name} that is complete, unless it is up to date. Other days: on request."
    name = f"schedule_{step_of(table.name)}"
    job = define_asset_job(own_job(table.name), [asset_key(table)], description=description)

    @schedule(name=name, job=job, cron_schedule=table.cron, execution_timezone="UTC", description=description)
    def newest(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        calendar = table.calendar_of(workspace.calendar)
        day = next((day for day in reversed(calendar.days()) if not incomplete(table, day, workspace.calendar)), None)
        if day is None:
            return SkipReason(f"No day of {table.name} is complete yet.")
        scheduled = context.scheduled_execution_time
        range_of_one = {ASSET_PARTITION_RANGE_START_TAG: str(day), ASSET_PARTITION_RANGE_END_TAG: str(day)}
        return RunRequest(scheduled.isoformat(), tags=range_of_one | {tags.REASON: f"schedule of {scheduled.date()}"})

    return newest
