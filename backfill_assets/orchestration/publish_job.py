"""The job `publish`, which publishes a plan's shadow from the UI or over GraphQL, as `backfill
publish` does in a terminal.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from dagster import (
    Config,
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
from backfill_assets.lake.releases import STABLE
from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.orchestration.local.unfinished import unfinished_runs
from backfill_assets.plan.remaining import outdated_lines, readers_left
from backfill_assets.plan.store import Plans
from backfill_assets.plan.text import markdown_table
from backfill_assets.publish import text
from backfill_assets.publish.publish import Publication
from backfill_assets.rebuild.carry_out import after_publication
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import Settings
from backfill_assets.verify.verify import require_verified
from backfill_assets.workspace import Workspace


class PublishConfig(Config):
    plan: str = Field(description="The id of the plan to publish, in quotes.")
    channel: str = Field(default=STABLE, description="Whose readers get it: stable, candidate.")
    reason: str = Field(
        default="", description="Why; kept in the commits, the ledger and the release."
    )
    allow_breaking: bool = Field(
        default=False, description="Although columns that live has are gone, or have another type."
    )
    with_plans: list[str] = Field(
        default=[], description="Other plans that these readers may get with it."
    )


def publish_job(
    workspace: Workspace, dagster: Callable[[Settings], Dagster] = dagster_of
) -> JobDefinition:
    """A run of one small process that uses no engine. It fails, and readers get what they got,
    unless all is published.
    """

    @op(name="put_into_live", config_schema=PublishConfig.to_config_schema().config_type)
    def put_into_live(context: OpExecutionContext) -> None:
        """Put the days of a plan's shadow into live, one commit a table, and release them."""
        config = context.op_config
        plans = Plans(workspace.lake.root)
        with failing_without_retry():
            plan = plans.read(plans.full_id(config["plan"]))
            who = tags.launched_by(context.run.tags)
            context.instance.add_run_tags(context.run_id, {tags.PLAN: plan.id})
            others = tuple(map(plans.full_id, config["with_plans"]))
            publication = Publication(plan, workspace, who, config["reason"], together_with=others)
            approve = require_verified(plan, workspace)
            allow = config["allow_breaking"]
            runs = partial(unfinished_runs, context.instance, workspace.names, but=context.run_id)
            published = publication.publish(
                config["channel"], utc_now, approve, runs=runs, allow_breaking=allow
            )
        readers = readers_left(plan, workspace)
        try:
            after_publication(
                plan, published.builds, readers, workspace, dagster(workspace.settings)
            )
        except BackfillError as error:
            context.log.warning(text.not_reported(error))
        outdated = outdated_lines(readers.outdated, workspace.settings.ask_above_days)
        context.log.info(
            "\n".join([*text.published_lines(plan.id, published, config["channel"]), *outdated])
        )
        metadata: dict[str, Any] = {
            "plan": plan.id,
            "release": published.release.number,
            "days": MetadataValue.md(
                markdown_table(text.PUBLISHED, text.published_rows(published))
            ),
        }
        context.add_output_metadata(metadata)

    @job(
        name="publish",
        executor_def=in_process_executor,
        description=(
            "Publish a plan that was verified in its shadow: its days go live, and into one"
            " release."
        ),
    )
    def publish() -> None:
        put_into_live()

    return publish
