"""Plans as jobs, so that one can be made, started and seen in the UI and over GraphQL: `make_plan` and `run_plan`.

`run_plan` does on the server what `backfill run` does in a terminal: it launches chunks at the webserver, looks, and
builds nothing itself. It ends with the plan, failed unless every day of it is built. Cancelled in the UI it leaves the plan
open, as Ctrl-C does: chunks at work go on, nothing new is launched. Re-executed, or tried again by Dagster because its
process died, it goes on with the plan it had.
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

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError, NothingToBuild
from backfill_assets.orchestration.job_config import PlanConfig, RunPlanConfig, plan_named, request_of
from backfill_assets.orchestration.job_metadata import of_ending, of_plan
from backfill_assets.plan import text
from backfill_assets.plan.make import Planned, make_plan
from backfill_assets.plan.progress import Ending
from backfill_assets.rebuild.carry_out import carry_out, log_changes
from backfill_assets.rebuild.start import rebuild_of
from backfill_assets.servers.place import dagster_of
from backfill_assets.settings import Settings
from backfill_assets.workspace import Workspace

LEFT_OPEN = """This run was cancelled; plan {0} stays open. What it has at work goes on; nothing new is started meanwhile.
  go on:    re-execute this run, or `backfill resume {0}`
  look:     `backfill watch {0}`
  give up:  `backfill cancel {0}`"""


def plan_jobs(
    workspace: Workspace,
    dagster: Callable[[Settings], Dagster] = dagster_of,
    sleep: Callable[[float], None] = time.sleep,
) -> list[JobDefinition]:
    """The two jobs. One process a run, and no engine: their steps only read and write small records."""

    price = workspace.settings.price_per_hour

    @op(name="plan", config_schema=PlanConfig.to_config_schema().config_type)
    def plan(context: OpExecutionContext) -> None:
        """Tell what a rebuild would build, why, in which order and how long it takes, and keep it as a plan."""
        with as_failure():
            made = make_plan(request_of(context.op_config), workspace)
        tell(context, made, price)
        how = f'launch the job run_plan with `plan: "{made.plan.id}"`, or type `backfill run {made.plan.id}`'
        context.log.info(f"Nothing was started. To carry it out, {how}.")
        context.add_output_metadata({**of_plan(made, price), "to carry it out": how})

    @op(name="run", config_schema=RunPlanConfig.to_config_schema().config_type)
    def run(context: OpExecutionContext) -> None:
        """Carry a plan out, canary first, and follow it to its end."""
        with as_failure():
            plan_id = plan_named(context.op_config) or had_before(context)
            if not plan_id:
                try:
                    made = make_plan(request_of(context.op_config), workspace)
                except NothingToBuild as nothing:
                    context.log.info(str(nothing))
                    context.add_output_metadata({"ending": Ending.DONE.value, "built": "nothing had to be"})
                    return
                plan_id = tell(context, made, price)
            launch_plan(context, plan_id)

    def launch_plan(context: OpExecutionContext, plan_id: str) -> None:
        rebuild = rebuild_of(plan_id, workspace, who=tags.who_asked(context.run.tags), sleep=sleep, dagster=dagster)
        context.instance.add_run_tags(context.run_id, {tags.PLAN: plan_id})
        try:
            end = carry_out(rebuild, lambda updates: log_changes(updates, context.log.info))
        except DagsterExecutionInterruptedError:
            context.log.warning(LEFT_OPEN.format(plan_id))
            raise
        said = "\n".join(text.ending_lines(end))
        if end.ending != Ending.DONE:
            raise Failure(f"{said}\nOr re-execute this run.", metadata=of_ending(end, workspace.lake), allow_retries=False)
        context.log.info(said)
        context.add_output_metadata(of_ending(end, workspace.lake))

    @job(
        name="make_plan", executor_def=in_process_executor, description="Make a plan from its configuration, and start nothing."
    )
    def make_plan_job() -> None:
        plan()

    # Its tag is what dagster.yaml counts these runs by: they must leave room for the runs that they wait for.
    @job(
        executor_def=in_process_executor,
        tags={tags.LAUNCHER: "run_plan"},
        description="Carry a plan out: one that was made (its id), or one made from the rest of the configuration.",
    )
    def run_plan() -> None:
        run()

    return [make_plan_job, run_plan]


def had_before(context: OpExecutionContext) -> str:
    """The plan of the run that this one tries again; planned anew, its days would meet those of its own open plan."""
    return context.run.tags.get(tags.PLAN, "") if context.run.parent_run_id else ""


def tell(context: OpExecutionContext, made: Planned, price: float | None) -> str:
    """Say in the run's log what was planned, and tie the run to it; the plan's id."""
    rows = [f"  {table}: {days} day(s), {which}: {why}" for table, days, which, why in text.table_rows(made.plan)]
    more = [*text.chunk_lines(made.plan), *text.blocked_lines(made.selection), text.expected_line(made.expected, price)]
    context.log.info("\n".join([f"Plan {made.plan.id}", *rows, *more]))
    context.instance.add_run_tags(context.run_id, {tags.PLAN: made.plan.id})
    return made.plan.id


@contextmanager
def as_failure() -> Iterator[Any]:
    """What the user can act on fails the run with its words alone, once: trying again would be told the same."""
    try:
        yield
    except BackfillError as error:
        flags = "\n(In a run's configuration, flags are fields of the same names: `budget: 2h`, `'yes': true`.)"
        raise Failure(f"{error}{flags if '--' in str(error) else ''}", allow_retries=False) from None
