"""The job `verify`, which fills the checklist of a plan from the UI or over GraphQL, as `backfill
verify` does.
"""

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
from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.verify.text import ending_lines, markdown
from backfill_assets.verify.verify import Verdicts, verify
from backfill_assets.workspace import Workspace


class VerifyConfig(Config):
    plan: str = Field(description="The id of the plan to verify, in quotes.")
    accept: list[str] = Field(
        default=[],
        description="Lines that need a decision, by name; nothing is verified anew then.",
    )
    reason: str = Field(default="", description="Why they are accepted.")


def verify_job(workspace: Workspace) -> JobDefinition:
    """A run of one small process that uses no engine. It fails unless the verdict passes, and
    publishes nothing.
    """

    @op(name="fill_checklist", config_schema=VerifyConfig.to_config_schema().config_type)
    def fill_checklist(context: OpExecutionContext) -> None:
        """Check what a plan has built in its shadow, a line a check, with its figures."""
        config = context.op_config
        plans = Plans(workspace.lake.root)
        who = tags.launched_by(context.run.tags)
        with failing_without_retry():
            plan = plans.read(plans.full_id(config["plan"]))
            context.instance.add_run_tags(context.run_id, {tags.PLAN: plan.id})
            if config["accept"]:
                verdicts = Verdicts(workspace.lake.root)
                verdict = verdicts.accept(
                    plan.id, config["accept"], who=who, reason=config["reason"], at=utc_now()
                )
            else:
                verdict = verify(plan, workspace, who=who, now=utc_now)
        metadata: dict[str, Any] = {
            "plan": plan.id,
            "verdict": verdict.result.value,
            "checklist": MetadataValue.md(markdown(verdict)),
        }
        message = "\n".join(ending_lines(verdict))
        if not verdict.passed:
            raise Failure(message, metadata=metadata, allow_retries=False)
        context.log.info(message)
        context.add_output_metadata(metadata)

    @job(
        name="verify",
        executor_def=in_process_executor,
        description=(
            "Fill the checklist of a plan that was built in its shadow. Nothing is published."
        ),
    )
    def verify_plan() -> None:
        fill_checklist()

    return verify_plan
