"""The jobs `make_plan` and `run_plan`, which plan and carry out a rebuild from the UI or over GraphQL.

`run_plan` does on the server what `backfill run` does in a terminal: it launches the chunks of a plan at the webserver and
follows them, and builds nothing itself. Its run ends with the plan, and fails unless every day of it is built. Terminated in
the UI, it leaves the plan open, as Ctrl-C does: chunks that are running go on, and no other is launched. Re-executed, or
retried by Dagster after its process died, it continues the same plan.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dagster import (
    DagsterExecutionInterruptedError,
    Failure,
    JobDefinition,
    OpExecutionContext,
    in_process_executor,
    job,
    op,
)
from dagster._core.storage.tags import MAX_RUNTIME_SECONDS_TAG

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError, NothingToBuild
from backfill_assets.orchestration.job_config import PlanConfig, RunPlanConfig, plan_named, request_of
from backfill_assets.orchestration.job_metadata import metadata_of_ending, metadata_of_plan
from backfill_assets.plan import text
from backfill_assets.plan.make import Planned, make_plan
from backfill_assets.plan.progress import Ending
from backfill_assets.plan.readers_left import outdated_lines
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.rebuild.carry_out import carry_out, log_changes
from backfill_assets.rebuild.ended import after_nothing, after_plan
from backfill_assets.rebuild.start import rebuild_of
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import Settings
from backfill_assets.workspace import Workspace

LEFT_OPEN = """This run was terminated; plan {0} stays open. Chunks that are running go on; no other is launched.
  continue:  re-execute this run, or `backfill resume {0}`
  follow:    `backfill watch {0}`
  cancel:    `backfill cancel {0}`"""


def plan_jobs(
    workspace: Workspace,
    dagster: Callable[[Settings], Dagster] = dagster_of,
    sleep: Callable[[float], None] = time.sleep,
) -> list[JobDefinition]:
    """The two jobs. Their runs are one process each and use no engine: their steps only read and write small records."""

    price = workspace.settings.price_per_hour

    @op(name="plan", config_schema=PlanConfig.to_config_schema().config_type)
    def plan(context: OpExecutionContext) -> None:
        """Plan a rebuild: which days of which tables, why, in which order, in how many minutes. Starts nothing."""
        with failing_without_retry():
            try:
                made = make_plan(request_of(context.op_config), workspace)
            except NothingToBuild as nothing:
                context.log.info(str(nothing))
                return
        log_plan(context, made, price)
        how = f'launch the job run_plan with `plan: "{made.plan.id}"`, or type `backfill run {made.plan.id}`'
        context.log.info(f"Nothing was started. To carry it out, {how}.")
        context.add_output_metadata({**metadata_of_plan(made, price), "to carry it out": how})

    @op(name="run", config_schema=RunPlanConfig.to_config_schema().config_type)
    def run(context: OpExecutionContext) -> None:
        """Carry a plan out, canary first, and follow it to its end."""
        with failing_without_retry():
            plan_id = plan_named(context.op_config) or plan_of_parent(context)
            if not plan_id:
                try:
                    made = make_plan(request_of(context.op_config), workspace)
                except NothingToBuild as nothing:
                    request = request_of(context.op_config)
                    after_nothing(request, workspace, dagster(workspace.settings), context.log.warning)
                    context.log.info(str(nothing))
                    context.add_output_metadata({"ending": Ending.DONE.value, "built": "nothing: every day is up to date"})
                    return
                plan_id = log_plan(context, made, price)
            carry_out_plan(context, plan_id)

    def carry_out_plan(context: OpExecutionContext, plan_id: str) -> None:
        who, webserver = tags.launched_by(context.run.tags), dagster(workspace.settings)
        rebuild = rebuild_of(plan_id, workspace, dagster=webserver, who=who, sleep=sleep)
        context.instance.add_run_tags(context.run_id, {tags.PLAN: plan_id})
        try:
            end = carry_out(rebuild, lambda updates: log_changes(updates, context.log.info))
        except DagsterExecutionInterruptedError:
            context.log.warning(LEFT_OPEN.format(plan_id))
            raise
        readers, building = after_plan(end, workspace, webserver, context.log.warning), workspace_of(end.plan, workspace)
        outdated = outdated_lines(readers.outdated, workspace.settings.ask_above_days)
        lines = text.ending_lines(end, in_shadow=building is not workspace)
        message, metadata = "\n".join([*lines, *outdated]), metadata_of_ending(end, building.lake)
        if end.ending != Ending.DONE:
            raise Failure(f"{message}\nOr re-execute this run.", metadata=metadata, allow_retries=False)
        context.log.info(message)
        context.add_output_metadata(metadata)

    @job(
        name="make_plan", executor_def=in_process_executor, description="Make a plan from its configuration, and start nothing."
    )
    def make_plan_job() -> None:
        plan()

    # dagster.yaml limits runs with the first tag: they must leave room for the runs that they wait for, for as long as those
    # take; by the second, 0, its limit of time does not hold for them.
    @job(
        executor_def=in_process_executor,
        tags={tags.LAUNCHER: "run_plan", MAX_RUNTIME_SECONDS_TAG: "0"},
        description="Carry out the plan whose id is given, or else a new plan of the other fields.",
    )
    def run_plan() -> None:
        run()

    return [make_plan_job, run_plan]


def plan_of_parent(context: OpExecutionContext) -> str:
    """The plan of the run that this one re-executes: a new plan of the same days would be refused, since that one is open."""
    return context.run.tags.get(tags.PLAN, "") if context.run.parent_run_id else ""


def log_plan(context: OpExecutionContext, made: Planned, price: float | None) -> str:
    """Write the plan to the run's log, and tag the run with it; the plan's id."""
    rows = [f"  {table}: {days} day(s), {which}: {why}" for table, days, which, why in text.table_rows(made.plan)]
    lines = [
        *text.chunk_lines(made.plan),
        *made.columns,
        *text.blocked_lines(made.selection),
        text.expected_line(made.expected, price),
        *text.unusable_lines(made.unusable),
    ]
    context.log.info("\n".join([f"Plan {made.plan.id}", *rows, *lines]))
    context.instance.add_run_tags(context.run_id, {tags.PLAN: made.plan.id})
    return made.plan.id


@contextmanager
def failing_without_retry() -> Iterator[Any]:
    """Turn a BackfillError into a Failure with its message and no retry, since a retry would meet the same error."""
    try:
        yield
    except BackfillError as error:
        flags = "\n(In a run's configuration, flags are fields of the same names: `budget: 2h`, `'yes': true`.)"
        raise Failure(f"{error}{flags if '--' in str(error) else ''}", allow_retries=False) from None
