"""The job `maintain`, which does from the UI, or every week, what `backfill maintain` does in a
terminal.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from dagster import (
    Config,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    ScheduleDefinition,
    in_process_executor,
    job,
    op,
)
from pydantic import Field

from backfill_assets.dagster_client import tags
from backfill_assets.lake.maintenance import (
    MAINTENANCE_COLUMNS,
    ending_lines,
    maintain,
    maintenance_rows,
    preview_maintenance,
)
from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.plan.lifecycle import refuse_half_done
from backfill_assets.plan.store import Plans
from backfill_assets.plan.text import markdown_table
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.workspace import Workspace

DESCRIPTION = (
    "Compact days of many small files, and remove the files that no release, no open shadow and no"
    " rollback needs any more. Retires releases older than BACKFILL_ROLLBACK_DAYS first. Changes"
    " nothing unless `apply` is set."
)
SUNDAY_MORNING = "0 4 * * 0"


class MaintainConfig(Config):
    apply: bool = Field(
        default=False, description="Do it. Without it, the run only shows what would be done."
    )
    table: str = Field(default="", description="One table; all, and the releases, if not given.")


def maintain_job(workspace: Workspace, now: Callable[[], datetime] = utc_now) -> JobDefinition:
    """A run of one small process that uses no engine. It fails if a table could not be looked
    after; the others are.
    """

    @op(name="upkeep", config_schema=MaintainConfig.to_config_schema().config_type)
    def upkeep(context: OpExecutionContext) -> None:
        """Compact days, retire releases and remove files; or show what would be done."""
        root = workspace.lake.root
        days = workspace.settings.rollback_days
        applied = context.op_config["apply"]
        with failing_without_retry():
            if applied:
                refuse_half_done(Plans(root), "Nothing was removed.")
                who = tags.launched_by(context.run.tags)
                result = maintain(root, days, now(), who, context.op_config["table"])
            else:
                result = preview_maintenance(root, days, now(), context.op_config["table"])
        message = "\n".join(ending_lines(result, days, applied=applied))
        metadata: dict[str, Any] = {
            "applied": applied,
            "retired_releases": len(result.retired),
            "compacted_days": sum(len(each.days) for each in result.tables),
            "removed_files": sum(len(each.removed) for each in result.tables),
            "removed_bytes": sum(each.removed_bytes for each in result.tables),
            "tables": MetadataValue.md(
                markdown_table(MAINTENANCE_COLUMNS, maintenance_rows(result))
            ),
        }
        if result.problems:
            raise Failure(message, metadata=metadata, allow_retries=False)
        context.log.info(message)
        context.add_output_metadata(metadata)

    @job(name="maintain", executor_def=in_process_executor, description=DESCRIPTION)
    def maintain_lake() -> None:
        upkeep()

    return maintain_lake


def weekly_maintenance(job: JobDefinition) -> ScheduleDefinition:
    """The schedule of the job `job`, with `apply`. It is stopped until someone starts it: it
    removes files.
    """
    return ScheduleDefinition(
        name="weekly_maintenance",
        job=job,
        cron_schedule=SUNDAY_MORNING,
        execution_timezone="UTC",
        run_config={"ops": {"upkeep": {"config": {"apply": True}}}},
        description=(
            "Runs the job maintain with `apply` every Sunday at 04:00 UTC. Stopped until someone"
            " starts it, because it removes files for good: look at `backfill maintain` first."
        ),
    )
