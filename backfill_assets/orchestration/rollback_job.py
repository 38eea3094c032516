"""The job `rollback`, which takes a plan back from the UI or over GraphQL, as `backfill rollback`
does in a terminal.
"""

from collections.abc import Callable
from typing import Any

from dagster import (
    Config,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    in_process_executor,
    job,
    op,
)
from pydantic import Field

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError
from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.plan.remaining import readers_left
from backfill_assets.plan.store import Plans
from backfill_assets.plan.text import markdown_table
from backfill_assets.publish import text
from backfill_assets.publish.publish import left_with_plan
from backfill_assets.publish.rollback import roll_back
from backfill_assets.rebuild.carry_out import after_publication
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import Settings
from backfill_assets.workspace import Workspace


class RollbackConfig(Config):
    plan: str = Field(description="The id of the plan to take back, in quotes.")
    reason: str = Field(default="", description="Why; kept in the commits and the ledger.")
    force: bool = Field(
        default=False, description="Put back days too that others built since; those rows are lost."
    )


def rollback_job(
    workspace: Workspace, dagster: Callable[[Settings], Dagster] = dagster_of
) -> JobDefinition:
    """A run of one small process that uses no engine. It fails unless nothing of the plan is left
    in the tables.
    """

    @op(name="restore", config_schema=RollbackConfig.to_config_schema().config_type)
    def restore(context: OpExecutionContext) -> None:
        """Put the days that a plan changed back as they were before it."""
        config = context.op_config
        plans = Plans(workspace.lake.root)
        with failing_without_retry():
            plan = plans.read(plans.full_id(config["plan"]))
            who = tags.launched_by(context.run.tags)
            options = {"reason": config["reason"], "force": config["force"]}
            decisions, restored = roll_back(plan, workspace, who=who, now=utc_now, **options)
        context.instance.add_run_tags(context.run_id, {tags.PLAN: plan.id})
        try:
            after_publication(
                plan,
                restored,
                readers_left(plan, workspace),
                workspace,
                dagster(workspace.settings),
            )
        except BackfillError as error:
            context.log.warning(text.not_reported(error))
        left = text.lines_of_left(decisions)
        ending = text.ending_lines(plan.id, decisions)
        message = "\n".join(filter(None, [*ending, *left, left_with_plan(plan, workspace)]))
        metadata: dict[str, Any] = {
            "plan": plan.id,
            "days": MetadataValue.md(markdown_table(text.COLUMNS, text.rows(decisions))),
        }
        if not text.is_complete(decisions.values()):
            raise Failure(message, metadata=metadata, allow_retries=False)
        context.log.info(message)
        context.add_output_metadata(metadata)

    @job(
        name="rollback",
        executor_def=in_process_executor,
        description="Take a plan back: put the days that it changed back as they were before it.",
    )
    def rollback_of_plan() -> None:
        restore()

    return rollback_of_plan
