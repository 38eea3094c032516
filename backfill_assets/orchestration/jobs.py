"""The jobs `make_plan` and `run_plan`, which plan and carry out a rebuild from the UI or GraphQL.

Their configuration has the fields of `RebuildRequest`, under the same names. Dagster refuses
unknown fields, wrong types and values outside an enumeration before a run begins. The run's step
refuses small numbers, and tables and days that do not exist, before anything is stored.

`run_plan` does on the server what `backfill run` does in a terminal: it launches the chunks of a
plan at the webserver and follows them, and builds nothing. Its run ends with the plan, and fails
unless every day of it is built. If it is terminated in the UI, the plan stays open, as after
Ctrl-C: chunks that are running go on, and no other is launched. Re-executed, or retried by Dagster
after its process died, it continues the same plan.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from dagster import (
    MAX_RUNTIME_SECONDS_TAG,
    Config,
    DagsterExecutionInterruptedError,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    in_process_executor,
    job,
    op,
)
from pydantic import Field, create_model

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.plan import text
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Ending, Progress
from backfill_assets.plan.request import RebuildRequest, default_of
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.carry_out import after_nothing, log_changes
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import Settings
from backfill_assets.verbs.plan import PlanContents, plan_rebuild
from backfill_assets.verbs.report import TableContents, sentences
from backfill_assets.verbs.run import RunReport, run_plan
from backfill_assets.workspace import Workspace

PLAN = "plan"


def _fields() -> dict[str, Any]:
    """Return a pydantic field for each field of a request, with its type, default and help."""
    types = get_type_hints(RebuildRequest)
    return {
        option.name: (
            dict[str, str] if option.default is MISSING else types[option.name],
            Field(default=default_of(option), description=option.metadata["help"]),
        )
        for option in fields(RebuildRequest)
    }


_FIELDS = _fields()
# `make_plan` always needs days; `run_plan` does not if a plan is named.
_DAYS = (str, Field(description=_FIELDS["partitions"][1].description))
_PLAN = (
    str,
    Field(
        default="",
        description="The id of a plan, in quotes. Without one, the other fields make a new plan.",
    ),
)

PlanConfig: type[Config] = create_model(
    "PlanConfig", __base__=Config, **_FIELDS | {"partitions": _DAYS}
)
RunPlanConfig: type[Config] = create_model(
    "RunPlanConfig", __base__=Config, **_FIELDS | {PLAN: _PLAN}
)


def request_of(config: Mapping[str, Any]) -> RebuildRequest:
    """Return the same request as from the command line. UsageError for a value not allowed."""
    return RebuildRequest(**{name: value for name, value in config.items() if name != PLAN})


def plan_named(config: Mapping[str, Any]) -> str:
    """Return the id of the plan named, or "". UsageError if other fields are given as well."""
    plan_id = str(config.get(PLAN, ""))
    given = request_of(config).given()
    if plan_id and given:
        raise UsageError(
            "A plan is carried out as it was made.",
            unchanged="Nothing was started.",
            next_step=f"Leave out {', '.join(given)}, or leave out plan.",
        )
    return plan_id


# Inputs are often missing for months in a row; the first rows show why.
BLOCKED_SHOWN = 100


def as_table(table: TableContents) -> MetadataValue:
    return MetadataValue.md(text.markdown_table(*table))


def as_list(lines: Iterable[str]) -> MetadataValue:
    return MetadataValue.md("\n".join(f"- {line}" for line in lines))


def metadata_of_plan(contents: PlanContents) -> Mapping[str, Any]:
    made = contents.made
    expected = made.expected
    expected_line = text.expected_line(expected, contents.price_per_hour)
    cost = expected.cost(contents.price_per_hour)
    metadata: dict[str, Any] = {
        "plan": made.plan.id,
        "days": as_table(contents.table),
        "partitions": len(made.plan.partitions()),
        "chunks": as_list(text.chunk_lines(made.plan)),
        "expected": expected_line.removeprefix("Expected: "),
        "expected minutes": round(expected.minutes, 2),
        "blocked": len(made.selection.blocked),
        "runs of the plan": MetadataValue.url(tags.runs_of(made.plan.id)),
    }
    if made.columns:
        metadata["columns"] = as_list(made.columns)
    if cost is not None:
        metadata["cost"] = cost
    blocked = [(table, str(day), why) for (table, day), why in made.selection.blocked.items()]
    if blocked:
        shown = (("table", "day", "why"), blocked[:BLOCKED_SHOWN])
        metadata["blocked, and not in the plan"] = as_table(shown)
    return metadata


def metadata_of_ending(report: RunReport) -> Mapping[str, Any]:
    end = report.end
    metadata: dict[str, Any] = {
        "plan": end.plan.id,
        "ending": end.ending.value,
        "outcome": as_table(report.table),
        "runs of the plan": MetadataValue.url(tags.runs_of(end.plan.id)),
    }
    unbuilt = [line.strip() for line in text.not_built_lines(end)]
    return metadata | ({"not built": as_list(unbuilt)} if unbuilt else {})


LEFT_OPEN = """This run was terminated; plan {0} stays open.
Chunks that are running go on; no other is launched.
  continue:  re-execute this run, or `backfill resume {0}`
  follow:    `backfill watch {0}`
  cancel:    `backfill cancel {0}`"""


def plan_jobs(
    workspace: Workspace,
    dagster: Callable[[Settings], Dagster] = dagster_of,
    sleep: Callable[[float], None] = time.sleep,
) -> list[JobDefinition]:
    """Return the two jobs. Each of their runs is one process without an engine."""

    @op(name="plan", config_schema=PlanConfig.to_config_schema().config_type)
    def plan(context: OpExecutionContext) -> None:
        """Plan a rebuild: which days of which tables, why, and for how long. Starts nothing."""
        with failing_without_retry():
            report = plan_rebuild(request_of(context.op_config), workspace)
        if report.contents is None:
            context.log.info(report.nothing)
            return
        plan_id = log_plan(context, report.contents)
        how = f'launch the job run_plan with `plan: "{plan_id}"`, or type `backfill run {plan_id}`'
        context.log.info(f"Nothing was started. To carry it out, {how}.")
        metadata = metadata_of_plan(report.contents)
        context.add_output_metadata({**metadata, "to carry it out": how})

    @op(name="run", config_schema=RunPlanConfig.to_config_schema().config_type)
    def run(context: OpExecutionContext) -> None:
        """Carry a plan out, canary first, and follow it to its end."""
        with failing_without_retry():
            plan_id = plan_named(context.op_config) or plan_of_parent(context)
            if not plan_id:
                request = request_of(context.op_config)
                planned = plan_rebuild(request, workspace)
                if planned.contents is None:
                    webserver = dagster(workspace.settings)
                    after_nothing(request, workspace, webserver, context.log.warning)
                    context.log.info(planned.nothing)
                    built = "nothing: every day is up to date"
                    context.add_output_metadata({"ending": Ending.DONE.value, "built": built})
                    return
                plan_id = log_plan(context, planned.contents)
            report = carry_out(context, Plans(workspace.lake.root).read(plan_id))
        message = sentences(report)
        metadata = metadata_of_ending(report)
        if report.end.ending != Ending.DONE:
            message = f"{message}\nOr re-execute this run."
            raise Failure(message, metadata=metadata, allow_retries=False)
        context.log.info(message)
        context.add_output_metadata(metadata)

    def carry_out(context: OpExecutionContext, plan: Plan) -> RunReport:
        context.instance.add_run_tags(context.run_id, {tags.PLAN: plan.id})

        def follow(updates: Iterable[Progress]) -> Progress:
            return log_changes(updates, context.log.info)

        try:
            return run_plan(
                plan.id,
                workspace,
                dagster(workspace.settings),
                follow,
                who=tags.launched_by(context.run.tags),
                warn=context.log.warning,
                sleep=sleep,
            )
        except DagsterExecutionInterruptedError:
            context.log.warning(LEFT_OPEN.format(plan.id))
            raise

    @job(
        name="make_plan",
        executor_def=in_process_executor,
        description="Preview a rebuild; nothing runs.",
    )
    def make_plan_job() -> None:
        plan()

    # dagster.yaml limits the number of runs with the first tag: they must leave room for the runs
    # that they wait for. The second tag, 0, lifts the limit of time: those may take long.
    @job(
        name="run_plan",
        executor_def=in_process_executor,
        tags={tags.LAUNCHER: "run_plan", MAX_RUNTIME_SECONDS_TAG: "0"},
        description="Carry out the plan that is named. Without one, make a plan from the fields.",
    )
    def run_plan_job() -> None:
        run()

    return [make_plan_job, run_plan_job]


def plan_of_parent(context: OpExecutionContext) -> str:
    """Return the plan of the run that this one re-executes, or "".

    That plan is open, so a new plan of the same days would be refused.
    """
    return context.run.tags.get(tags.PLAN, "") if context.run.parent_run_id else ""


def log_plan(context: OpExecutionContext, contents: PlanContents) -> str:
    """Write the plan to the run's log, tag the run with it, and return its id."""
    plan_id = contents.made.plan.id
    _, rows = contents.table
    days = [f"  {table}: {count} day(s), {which}: {why}" for table, count, which, why in rows]
    context.log.info("\n".join([f"Plan {plan_id}", *days, sentences(contents)]))
    context.instance.add_run_tags(context.run_id, {tags.PLAN: plan_id})
    return plan_id


@contextmanager
def failing_without_retry() -> Iterator[None]:
    """Turn a BackfillError into a Failure without a retry, which would meet the same error."""
    try:
        yield
    except BackfillError as error:
        flags = (
            "\n(In a run's configuration, flags are fields of the same names: `budget: 2h`, `'yes':"
            " true`.)"
        )
        message = f"{error}{flags if '--' in str(error) else ''}"
        raise Failure(message, allow_retries=False) from None
