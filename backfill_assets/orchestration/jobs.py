"""The configuration of the jobs `make_plan` and `run_plan`: the fields of `RebuildRequest`, under
the same names.

Dagster refuses unknown fields, wrong types and values outside an enumeration before a run begins.
Numbers that are too small, and tables and days that do not exist, are refused by the run's step
before anything is kept.

A plan, and how it ended, as the output metadata of the jobs' steps.

The jobs `make_plan` and `run_plan`, which plan and carry out a rebuild from the UI or over GraphQL.

`run_plan` does on the server what `backfill run` does in a terminal: it launches the chunks of a
plan at the webserver and follows them, and builds nothing itself. Its run ends with the plan, and
fails unless every day of it is built. Terminated in the UI, it leaves the plan open, as Ctrl-C
does: chunks that are running go on, and no other is launched. Re-executed, or retried by Dagster
after its process died, it continues the same plan.
"""

import time
from collections.abc import Callable, Iterator, Mapping
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
from backfill_assets.errors import BackfillError, NothingToBuild, UsageError
from backfill_assets.lake.lake import Lake
from backfill_assets.plan import text
from backfill_assets.plan.make import Planned, make_plan
from backfill_assets.plan.progress import COLUMNS, Ending, Progress, outcomes
from backfill_assets.plan.remaining import outdated_lines
from backfill_assets.plan.request import RebuildRequest, default_of
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.rebuild.carry_out import (
    after_nothing,
    after_plan,
    carry_out,
    log_changes,
    prepare_rebuild,
)
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import Settings
from backfill_assets.workspace import Workspace

PLAN = "plan"


def _fields() -> dict[str, Any]:
    """A pydantic field for each field of a request, with its type, default and help."""
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
        description="The id of a plan, in quotes; without one, the other fields make a new plan.",
    ),
)

PlanConfig: type[Config] = create_model(
    "PlanConfig", __base__=Config, **_FIELDS | {"partitions": _DAYS}
)
RunPlanConfig: type[Config] = create_model(
    "RunPlanConfig", __base__=Config, **_FIELDS | {PLAN: _PLAN}
)


def request_of(config: Mapping[str, Any]) -> RebuildRequest:
    """The same request as from the command line; UsageError for a value that is not allowed."""
    return RebuildRequest(**{name: value for name, value in config.items() if name != PLAN})


def plan_named(config: Mapping[str, Any]) -> str:
    """The id of the plan named, "" if none is. UsageError if other fields are given as well."""
    plan_id = str(config.get(PLAN, ""))
    given = request_of(config).given()
    if plan_id and given:
        raise UsageError(
            f"A plan is carried out as it was made: leave out {', '.join(given)}, or leave out"
            " plan. Nothing was started."
        )
    return plan_id


# Inputs are often missing for months in a row; the first rows show why.
BLOCKED_SHOWN = 100


def metadata_of_plan(made: Planned, price: float | None) -> Mapping[str, Any]:
    plan = made.plan
    expected = made.expected
    metadata: dict[str, Any] = {
        "plan": plan.id,
        "days": MetadataValue.md(
            text.markdown_table(("table", "days", "which", "why"), text.table_rows(plan))
        ),
        "partitions": len(plan.partitions()),
        "chunks": MetadataValue.md("\n".join(f"- {line}" for line in text.chunk_lines(plan))),
        "expected": text.expected_line(expected, price).removeprefix("Expected: "),
        "expected minutes": round(expected.minutes, 2),
        "blocked": len(made.selection.blocked),
        "runs of the plan": MetadataValue.url(tags.runs_of(plan.id)),
    }
    if made.columns:
        metadata["columns"] = MetadataValue.md("\n".join(f"- {line}" for line in made.columns))
    cost = expected.cost(price)
    if cost is not None:
        metadata["cost"] = cost
    if made.selection.blocked:
        rows = [(table, day, why) for (table, day), why in made.selection.blocked.items()][
            :BLOCKED_SHOWN
        ]
        metadata["blocked, and not in the plan"] = MetadataValue.md(
            text.markdown_table(("table", "day", "why"), rows)
        )
    return metadata


def metadata_of_ending(end: Progress, lake: Lake) -> Mapping[str, Any]:
    plan = end.plan
    tables = outcomes(lake.ledger, end.remaining.states, plan.id)
    metadata: dict[str, Any] = {
        "plan": plan.id,
        "ending": end.ending.value,
        "outcome": MetadataValue.md(
            text.markdown_table(COLUMNS, [table.row() for table in tables])
        ),
        "runs of the plan": MetadataValue.url(tags.runs_of(plan.id)),
    }
    unbuilt = "\n".join(f"- {line.strip()}" for line in text.not_built_lines(end))
    return metadata | ({"not built": MetadataValue.md(unbuilt)} if unbuilt else {})


LEFT_OPEN = """This run was terminated; plan {0} stays open. Chunks that are running go on; no other is launched.
  continue:  re-execute this run, or `backfill resume {0}`
  follow:    `backfill watch {0}`
  cancel:    `backfill cancel {0}`"""


def plan_jobs(
    workspace: Workspace,
    dagster: Callable[[Settings], Dagster] = dagster_of,
    sleep: Callable[[float], None] = time.sleep,
) -> list[JobDefinition]:
    """The two jobs. Their runs are one process each and use no engine: their steps only read and
    write small records.
    """

    price = workspace.settings.price_per_hour

    @op(name="plan", config_schema=PlanConfig.to_config_schema().config_type)
    def plan(context: OpExecutionContext) -> None:
        """Plan a rebuild: which days of which tables, why, in which order, in how many minutes.
        Starts nothing.
        """
        with failing_without_retry():
            try:
                made = make_plan(request_of(context.op_config), workspace)
            except NothingToBuild as nothing:
                context.log.info(str(nothing))
                return
        log_plan(context, made, price)
        how = (
            f'launch the job run_plan with `plan: "{made.plan.id}"`, or type `backfill run'
            f" {made.plan.id}`"
        )
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
                    after_nothing(
                        request, workspace, dagster(workspace.settings), context.log.warning
                    )
                    context.log.info(str(nothing))
                    context.add_output_metadata(
                        {"ending": Ending.DONE.value, "built": "nothing: every day is up to date"}
                    )
                    return
                plan_id = log_plan(context, made, price)
            carry_out_plan(context, plan_id)

    def carry_out_plan(context: OpExecutionContext, plan_id: str) -> None:
        who = tags.launched_by(context.run.tags)
        webserver = dagster(workspace.settings)
        rebuild = prepare_rebuild(plan_id, workspace, dagster=webserver, who=who, sleep=sleep)
        context.instance.add_run_tags(context.run_id, {tags.PLAN: plan_id})
        try:
            end = carry_out(rebuild, lambda updates: log_changes(updates, context.log.info))
        except DagsterExecutionInterruptedError:
            context.log.warning(LEFT_OPEN.format(plan_id))
            raise
        readers = after_plan(end, workspace, webserver, context.log.warning)
        building = workspace_of(end.plan, workspace)
        outdated = outdated_lines(readers.outdated, workspace.settings.ask_above_days)
        lines = text.ending_lines(end, in_shadow=building is not workspace)
        message = "\n".join([*lines, *outdated])
        metadata = metadata_of_ending(end, building.lake)
        if end.ending != Ending.DONE:
            raise Failure(
                f"{message}\nOr re-execute this run.", metadata=metadata, allow_retries=False
            )
        context.log.info(message)
        context.add_output_metadata(metadata)

    @job(
        name="make_plan",
        executor_def=in_process_executor,
        description="Make a plan from its configuration, and start nothing.",
    )
    def make_plan_job() -> None:
        plan()

    # dagster.yaml limits runs with the first tag: they must leave room for the runs that they wait
    # for, for as long as those take; by the second, 0, its limit of time does not hold for them.
    @job(
        executor_def=in_process_executor,
        tags={tags.LAUNCHER: "run_plan", MAX_RUNTIME_SECONDS_TAG: "0"},
        description="Carry out the plan whose id is given, or else a new plan of the other fields.",
    )
    def run_plan() -> None:
        run()

    return [make_plan_job, run_plan]


def plan_of_parent(context: OpExecutionContext) -> str:
    """The plan of the run that this one re-executes: a new plan of the same days would be refused,
    since that one is open.
    """
    return context.run.tags.get(tags.PLAN, "") if context.run.parent_run_id else ""


def log_plan(context: OpExecutionContext, made: Planned, price: float | None) -> str:
    """Write the plan to the run's log, and tag the run with it; the plan's id."""
    rows = [
        f"  {table}: {days} day(s), {which}: {why}"
        for table, days, which, why in text.table_rows(made.plan)
    ]
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
    """Turn a BackfillError into a Failure with its message and no retry, since a retry would meet
    the same error.
    """
    try:
        yield
    except BackfillError as error:
        flags = (
            "\n(In a run's configuration, flags are fields of the same names: `budget: 2h`, `'yes':"
            " true`.)"
        )
        raise Failure(
            f"{error}{flags if '--' in str(error) else ''}", allow_retries=False
        ) from None
