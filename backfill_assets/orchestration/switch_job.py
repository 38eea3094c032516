"""The job `switch`, which gives readers of a table's name another table, as `backfill switch` does
in a terminal.
"""

from dagster import Config, JobDefinition, OpExecutionContext, in_process_executor, job, op
from pydantic import Field

from backfill_assets.dagster_client import tags
from backfill_assets.lake.releases import STABLE
from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.publish.switch import Switch
from backfill_assets.publish.text import switched_line
from backfill_assets.workspace import Workspace


class SwitchConfig(Config):
    table: str = Field(description="The table that readers name, such as features/region_daily.")
    to: str = Field(description="The table whose rows they get; the same one to switch back.")
    channel: str = Field(default=STABLE, description="Whose readers get it: stable, candidate.")
    reason: str = Field(default="", description="Why; kept in the release.")
    allow_breaking: bool = Field(
        default=False, description="Although readers lose columns or days by it."
    )


def switch_job(workspace: Workspace) -> JobDefinition:
    """A run of one small process that uses no engine. It fails, and readers get what they got,
    unless all is switched.
    """

    @op(name="switch_readers", config_schema=SwitchConfig.to_config_schema().config_type)
    def switch_readers(context: OpExecutionContext) -> None:
        """Give readers of a table's name another table, in one release."""
        config = context.op_config
        with failing_without_retry():
            switched = Switch(config["table"], config["to"], config["channel"])
            who = tags.launched_by(context.run.tags)
            allow = config["allow_breaking"]
            release = switched.carry_out(workspace, who, config["reason"], allow_breaking=allow)
        context.log.info(switched_line(switched, release))
        context.add_output_metadata(
            {"release": release.number if release else None, "readers get": switched.to}
        )

    @job(
        name="switch",
        executor_def=in_process_executor,
        description=(
            "Give readers of a table's name another table, such as a new version of it, in one"
            " release."
        ),
    )
    def switch() -> None:
        switch_readers()

    return switch
