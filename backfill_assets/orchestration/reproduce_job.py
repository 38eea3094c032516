"""The job `reproduce`, which builds a day again beside the lake and compares, from the UI, over
GraphQL, or for `backfill reproduce`. The day's asset gets an observation of it, which changes no
status.
"""

from typing import Any

from dagster import (
    AssetKey,
    AssetObservation,
    Config,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    ResourceParam,
    in_process_executor,
    job,
    op,
)
from pydantic import Field

from backfill_assets.dagster_client.requests import REPRODUCE, REPRODUCTION
from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.orchestration.run import SparkResource
from backfill_assets.reproduce import reproduction as text
from backfill_assets.reproduce.inputs import inputs_or_refusal, recorded_build
from backfill_assets.reproduce.reproduce import reproduce
from backfill_assets.reproduce.reproduction import Reproduction, ReproductionResult
from backfill_assets.workspace import Workspace


class ReproduceConfig(Config):
    table: str = Field(description="The table, by its name.")
    day: str = Field(description="The day, in quotes.")
    release: int = Field(
        default=0,
        description="A release's number: the build whose rows its readers get. 0: live's.",
    )


def reproduce_job(workspace: Workspace) -> JobDefinition:
    """A run of one process that uses the engine and writes nothing to the lake. It fails unless the
    day comes out the same.
    """

    @op(
        name="build_again",
        config_schema=ReproduceConfig.to_config_schema().config_type,
        pool="spark",
    )
    def build_again(context: OpExecutionContext, spark: ResourceParam[SparkResource]) -> None:
        """Build a day again from its recorded code and inputs, and compare."""
        config = context.op_config
        with failing_without_retry():
            recorded = recorded_build(
                config["table"], config["day"], config["release"] or None, workspace
            )
            basis = inputs_or_refusal(recorded, workspace)
            if isinstance(basis, Reproduction):
                reproduction = basis
            else:
                reproduction = reproduce(
                    recorded, workspace, spark.session(recorded.build.spark_conf)
                )
        metadata = metadata_of(reproduction)
        message = "\n".join(
            [text.reproduction_heading(reproduction), *text.reproduction_lines(reproduction)]
        )
        key = AssetKey(reproduction.table.split("/"))
        context.log_event(
            AssetObservation(
                key, partition=reproduction.day, description=message, metadata=metadata
            )
        )
        if reproduction.result != ReproductionResult.SAME:
            raise Failure(message, metadata=metadata, allow_retries=False)
        context.log.info(message)
        context.add_output_metadata(metadata)

    @job(
        name=REPRODUCE,
        executor_def=in_process_executor,
        description=(
            "Build a day again from its recorded code and inputs, beside the lake, and compare."
            " Changes nothing."
        ),
    )
    def reproduce_day() -> None:
        build_again()

    return reproduce_day


def metadata_of(reproduction: Reproduction) -> dict[str, Any]:
    """The reproduction as the run shows it, and all of it as JSON."""
    # As code: values of rows are whatever a source sent.
    details = "\n".join(text.reproduction_lines(reproduction)).replace("```", "'''")
    return {
        "reproduced": reproduction.result.value,
        "reproduced from": MetadataValue.md(f"```\n{details}\n```"),
        REPRODUCTION: MetadataValue.json(reproduction.contents()),
    }
