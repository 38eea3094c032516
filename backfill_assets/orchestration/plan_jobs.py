"""The jobs `backfill_make_plan` and `backfill_run_plan`: rebuild from the UI or GraphQL.

Their configuration has the fields of a request, under the same names. Dagster refuses unknown
fields, wrong types and values outside an enumeration before a run begins. The run's step refuses
numbers that are too small, and unknown tables and days, before anything is stored.

`run_plan` works on the server as `backfill run` does in a terminal: it launches the chunks of a
plan at the webserver and follows them, and builds nothing. Its run ends with the plan, and fails
unless every day of it is built. If it is terminated in the UI, the plan stays open, as after
Ctrl-C: running chunks continue, and no other chunk is launched. If the run is re-executed, or
retried by Dagster after its process died, it continues the same plan.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dagster import (
    MAX_RUNTIME_SECONDS_TAG,
    DagsterExecutionInterruptedError,
    MetadataValue,
)

from backfill_assets.dagster_client import tags
from backfill_assets.orchestration.jobs import VerbJob, VerbRun, as_list, as_table
from backfill_assets.plan.progress import Ending, Progress
from backfill_assets.plan.request import DAYS, RebuildRequest, RunRequest, option
from backfill_assets.rebuild.carry_out import after_nothing, log_changes
from backfill_assets.verbs.plan import NothingBuilt, PlanReport, chunk_lines, plan_rebuild
from backfill_assets.verbs.report import sentences
from backfill_assets.verbs.run import RunReport, not_built_lines, run_plan


@dataclass(frozen=True, kw_only=True)
class PlanRequest(RebuildRequest):
    """The request for a plan. A job always needs days for it."""

    partitions: str = option("", DAYS, is_required=True)


def _make_plan(run: VerbRun, request: PlanRequest) -> None:
    report = plan_rebuild(request, run.workspace, run.dagster())
    if isinstance(report, NothingBuilt):
        run.show_report(report, {})
        return
    plan_id = log_plan(run, report)
    launch = f'launch the job backfill_run_plan with `plan: "{plan_id}"`'
    how = f"{launch}, or type `backfill run {plan_id}`"
    metadata = {**metadata_of_plan(report), "to carry it out": how}
    run.show(f"Nothing was started. To carry it out, {how}.", metadata)


def _run_plan(run: VerbRun, request: RunRequest) -> None:
    plan_id = request.plan
    if run.context.run.parent_run_id:
        # The plan of the re-executed run is open, so a new one of the same days would be refused.
        plan_id = plan_id or run.context.run.tags.get(tags.PLAN, "")
    if not plan_id:
        planned = plan_rebuild(request, run.workspace, run.dagster())
        if isinstance(planned, NothingBuilt):
            after_nothing(request, run.workspace, run.dagster(), run.context.log.warning)
            built = "nothing: every day is up to date"
            run.show_report(planned, {"ending": Ending.DONE.value, "built": built})
            return
        plan_id = log_plan(run, planned)
    report = carry_out_in_run(run, run.plan(plan_id).id)
    message = sentences(report.lines())
    if not report.is_complete:
        message = f"{message}\nOr re-execute this run."
    run.show(message, metadata_of_ending(report), is_complete=report.is_complete)


LEFT_OPEN = """This run was terminated; plan {0} stays open.
Chunks that are running go on; no other is launched.
  continue:  re-execute this run, or `backfill resume {0}`
  follow:    `backfill watch {0}`
  cancel:    `backfill cancel {0}`"""


def carry_out_in_run(run: VerbRun, plan_id: str) -> RunReport:
    """Carry the plan out, and follow it to its end. It stays open if the run is terminated."""
    log = run.context.log

    def follow(updates: Iterable[Progress]) -> Progress:
        return log_changes(updates, log.info)

    try:
        return run_plan(
            plan_id,
            run.workspace,
            run.dagster(),
            follow,
            who=run.who,
            warn=log.warning,
            sleep=run.sleep,
        )
    except DagsterExecutionInterruptedError:
        log.warning(LEFT_OPEN.format(plan_id))
        raise


def log_plan(run: VerbRun, report: PlanReport) -> str:
    """Write the plan to the run's log, tag the run with it, and return its id."""
    plan_id = report.made.plan.id
    _, rows = report.table
    days = [f"  {table}: {count} day(s), {which}: {why}" for table, count, which, why in rows]
    run.context.log.info("\n".join([f"Plan {plan_id}", *days, sentences(report.contents())]))
    return run.plan(plan_id).id


# Inputs are often missing for months in a row. The first rows show why.
_BLOCKED_SHOWN = 100


def metadata_of_plan(report: PlanReport) -> Mapping[str, Any]:
    made = report.made
    expected = made.expected
    metadata: dict[str, Any] = {
        "plan": made.plan.id,
        "days": as_table(report.table),
        "partitions": len(made.plan.partitions()),
        "chunks": as_list(chunk_lines(made.plan)),
        "expected": report.expected,
        "expected minutes": round(expected.minutes, 2),
        "blocked": len(made.selection.blocked),
        "runs of the plan": MetadataValue.url(tags.runs_of(made.plan.id)),
    }
    if made.columns:
        metadata["columns"] = as_list(made.columns)
    if report.cost is not None:
        metadata["cost"] = report.cost
    blocked = [(table, str(day), why) for (table, day), why in made.selection.blocked.items()]
    if blocked:
        shown = (("table", "day", "why"), blocked[:_BLOCKED_SHOWN])
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
    unbuilt = [line.strip() for line in not_built_lines(end)]
    return metadata | ({"not built": as_list(unbuilt)} if unbuilt else {})


PLAN_JOBS = (
    VerbJob("make_plan", "plan", PlanRequest, _make_plan, "Preview a rebuild; nothing runs."),
    # dagster.yaml limits the number of runs with the first tag, so that they leave room for the
    # runs that they wait for. The second tag, 0, removes the time limit, because these runs may
    # take long.
    VerbJob(
        "run_plan",
        "run",
        RunRequest,
        _run_plan,
        "Carry out the plan that is named. Without one, make a plan from the fields.",
        tags={tags.LAUNCHER: "run_plan", MAX_RUNTIME_SECONDS_TAG: "0"},
    ),
)
