"""The jobs that do in the UI, or over GraphQL, what a command of the same name does in a terminal.

Each runs one verb in one small process and shows its report. A job fails, without a retry, if its
verb refuses or its report is not complete. Only `reproduce` uses the engine.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from dagster import (
    AssetKey,
    AssetObservation,
    Config,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    ScheduleDefinition,
    in_process_executor,
    job,
    op,
)
from pydantic import Field

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.requests import REPRODUCE, REPRODUCTION
from backfill_assets.diff.diff import Diffs
from backfill_assets.diff.sides import DiffRequest
from backfill_assets.diff.text import diff_heading, html_page
from backfill_assets.lake.releases import STABLE
from backfill_assets.orchestration.jobs import as_table, failing_without_retry
from backfill_assets.orchestration.local.unfinished import unfinished_runs
from backfill_assets.orchestration.run import SparkResource
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans
from backfill_assets.publish.switch import Switch
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.reproduce.inputs import RecordedBuild
from backfill_assets.reproduce.reproduce import reproduce
from backfill_assets.reproduce.reproduction import Reproduction
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import Settings
from backfill_assets.verbs.audit import ReproduceReport, reproduce_day
from backfill_assets.verbs.diff import DiffReport, diff_tables
from backfill_assets.verbs.maintain import maintain_lake
from backfill_assets.verbs.publish import publish_plan, verify_plan
from backfill_assets.verbs.releases import rollback_plan, switch_table
from backfill_assets.verbs.report import Report, sentences
from backfill_assets.verify.text import markdown
from backfill_assets.workspace import Workspace

SUNDAY_MORNING = "0 4 * * 0"


class VerbReport(Report, Protocol):
    """A report that says whether everything was done."""

    @property
    def is_complete(self) -> bool: ...


Done = tuple[VerbReport, Mapping[str, Any]]


def verb_job(
    name: str,
    step: str,
    config: type[Config],
    verb: Callable[[OpExecutionContext, Any], Done],
    description: str,
    **of_step: Any,
) -> JobDefinition:
    """Return a job of one step, which runs `verb` and shows its report with the metadata."""

    @op(
        name=step,
        config_schema=config.to_config_schema().config_type,
        description=description,
        **of_step,
    )
    def run(context: OpExecutionContext) -> None:
        with failing_without_retry():
            report, metadata = verb(context, config(**context.op_config))
        message = sentences(report)
        if not report.is_complete:
            raise Failure(message, metadata=metadata, allow_retries=False)
        context.log.info(message)
        context.add_output_metadata(metadata)

    @job(name=name, executor_def=in_process_executor, description=description)
    def verb_of_workspace() -> None:
        run()

    return verb_of_workspace


def tagged_plan(context: OpExecutionContext, workspace: Workspace, plan_id: str) -> Plan:
    """Return the plan with this id, or a unique beginning of it, and tag the run with it."""
    plans = Plans(workspace.lake.root)
    plan = plans.read(plans.full_id(plan_id))
    context.instance.add_run_tags(context.run_id, {tags.PLAN: plan.id})
    return plan


def launched_by(context: OpExecutionContext) -> str:
    return tags.launched_by(context.run.tags)


def as_code(lines: Sequence[str]) -> MetadataValue:
    """Return lines for the UI as they are: values of rows may hold any text of a source."""
    text = "\n".join(lines).replace("```", "'''")
    return MetadataValue.md(f"```\n{text}\n```")


class VerifyConfig(Config):
    plan: str = Field(description="The id of the plan to verify, in quotes.")
    accept: list[str] = Field(
        default=[],
        description="Checks that need a decision, by name. The checks are not run again then.",
    )
    reason: str = Field(default="", description="Why they are accepted.")


def verify_job(workspace: Workspace) -> JobDefinition:
    def verb(context: OpExecutionContext, config: VerifyConfig) -> Done:
        plan = tagged_plan(context, workspace, config.plan)
        report = verify_plan(
            plan, workspace, who=launched_by(context), accept=config.accept, reason=config.reason
        )
        return report, {
            "plan": plan.id,
            "verdict": report.verdict.result.value,
            "checklist": MetadataValue.md(markdown(report.verdict)),
        }

    description = (
        "Run the pre-publish checks of a plan that was built in its shadow. Nothing is published."
    )
    return verb_job("verify", "fill_checklist", VerifyConfig, verb, description)


class PublishConfig(Config):
    plan: str = Field(description="The id of the plan to publish, in quotes.")
    channel: str = Field(default=STABLE, description="Whose readers get it: stable, candidate.")
    reason: str = Field(
        default="", description="Why; kept in the commits, the ledger and the release."
    )
    allow_breaking: bool = Field(
        default=False, description="Publish even if columns were dropped or changed type."
    )
    with_plans: list[str] = Field(
        default=[], description="Also publish these plans to the channel."
    )


def publish_job(
    workspace: Workspace, dagster: Callable[[Settings], Dagster] = dagster_of
) -> JobDefinition:
    def verb(context: OpExecutionContext, config: PublishConfig) -> Done:
        plan = tagged_plan(context, workspace, config.plan)
        runs = partial(unfinished_runs, context.instance, workspace.names, but=context.run_id)
        report = publish_plan(
            plan,
            workspace,
            partial(dagster, workspace.settings),
            runs,
            who=launched_by(context),
            channel=config.channel,
            reason=config.reason,
            allow_breaking=config.allow_breaking,
            with_plans=config.with_plans,
        )
        number = report.published.release.number
        return report, {"plan": plan.id, "release": number, "days": as_table(report.table)}

    description = (
        "Publish a plan that was verified in its shadow: its days go live, one commit per table,"
        " and into one release."
    )
    return verb_job("publish", "put_into_live", PublishConfig, verb, description)


class RollbackConfig(Config):
    plan: str = Field(description="The id of the plan to roll back, in quotes.")
    reason: str = Field(default="", description="Why; kept in the commits and the ledger.")
    force: bool = Field(
        default=False,
        description="Also restore days that others built since. Their rows are lost.",
    )


def rollback_job(
    workspace: Workspace, dagster: Callable[[Settings], Dagster] = dagster_of
) -> JobDefinition:
    def verb(context: OpExecutionContext, config: RollbackConfig) -> Done:
        plan = tagged_plan(context, workspace, config.plan)
        report = rollback_plan(
            plan,
            workspace,
            partial(dagster, workspace.settings),
            who=launched_by(context),
            reason=config.reason,
            force=config.force,
        )
        return report, {"plan": plan.id, "days": as_table(report.table)}

    description = "Roll a plan back: restore the days that it changed."
    return verb_job("rollback", "restore", RollbackConfig, verb, description)


class SwitchConfig(Config):
    table: str = Field(description="The table that readers name, such as features/region_daily.")
    to: str = Field(description="The table whose rows they get; the same one to switch back.")
    channel: str = Field(default=STABLE, description="Whose readers get it: stable, candidate.")
    reason: str = Field(default="", description="Why; kept in the release.")
    allow_breaking: bool = Field(
        default=False, description="Switch even if readers lose columns or days."
    )


def switch_job(workspace: Workspace) -> JobDefinition:
    def verb(context: OpExecutionContext, config: SwitchConfig) -> Done:
        report = switch_table(
            Switch(config.table, config.to, config.channel),
            workspace,
            who=launched_by(context),
            reason=config.reason,
            allow_breaking=config.allow_breaking,
        )
        number = report.release.number if report.release else None
        return report, {"release": number, "readers get": config.to}

    description = (
        "Give readers of a table's name another table, such as a new version of it, in one release."
    )
    return verb_job("switch", "switch_readers", SwitchConfig, verb, description)


class DiffConfig(Config):
    compare: str = Field(
        description=(
            "A plan's id; a table and its day; two tables; or the numbers of two releases. In"
            " quotes."
        )
    )
    table: str = Field(
        default="", description="Of a plan or releases only these tables, by names or patterns."
    )
    days: str = Field(
        default="", description="Of a plan or releases only these days: A, A..B or A,B..C."
    )


def diff_job(workspace: Workspace) -> JobDefinition:
    def verb(context: OpExecutionContext, config: DiffConfig) -> Done:
        first, _, second = config.compare.strip().partition(" ")
        report = diff_tables(
            DiffRequest(first, second.strip(), config.table, config.days), workspace
        )
        diff = report.diff
        address = Diffs(workspace.lake.root).keep_page(diff.id, html_page(diff))
        return DiffReport(diff, address), diff_metadata(report, address)

    description = (
        "Show which rows differ: before and after a plan, a day's last build, or in two releases."
        " Changes nothing."
    )
    return verb_job("diff", "compare", DiffConfig, verb, description)


def diff_metadata(report: DiffReport, address: str) -> dict[str, Any]:
    """Return the diff as its run shows it. `address` is where its page is kept."""
    diff = report.diff
    totals = {
        name: sum(table.total(name) for table in diff.tables)
        for name in ("added", "removed", "changed", "unchanged")
    }
    return {
        "diff": diff.id,
        "compared": diff_heading(diff),
        "tables": as_table(report.table) if diff.differs else MetadataValue.md("Nothing differs."),
        "page": MetadataValue.path(address),
        **totals,
        **({"details": as_code(report.details)} if report.details else {}),
    }


class ReproduceConfig(Config):
    table: str = Field(description="The table, by its name.")
    day: str = Field(description="The day, in quotes.")
    release: int = Field(
        default=0,
        description="A release's number: the build whose rows its readers get. 0: live's.",
    )


def reproduce_job(workspace: Workspace) -> JobDefinition:
    def verb(context: OpExecutionContext, config: ReproduceConfig) -> Done:
        def compute(recorded: RecordedBuild) -> Reproduction:
            spark: SparkResource = context.resources.spark
            return reproduce(recorded, workspace, spark.session(recorded.build.spark_conf))

        release = config.release or None
        report = reproduce_day(workspace, config.table, config.day, release, compute)
        metadata = reproduction_metadata(report)
        observe(context, report, metadata)
        return report, metadata

    description = (
        "Build a day again from its recorded code and inputs, outside the lake, and compare."
        " Changes nothing."
    )
    return verb_job(
        REPRODUCE,
        "build_again",
        ReproduceConfig,
        verb,
        description,
        pool="spark",
        required_resource_keys={"spark"},
    )


def reproduction_metadata(report: ReproduceReport) -> dict[str, Any]:
    """Return the reproduction as its run shows it, and all of it as JSON."""
    return {
        "reproduced": report.reproduction.result.value,
        "reproduced from": as_code(report.details),
        REPRODUCTION: MetadataValue.json(report.as_json()),
    }


def observe(context: OpExecutionContext, report: ReproduceReport, metadata: dict[str, Any]) -> None:
    """Log an observation of the day's asset, which changes no status. The command reads it."""
    key = AssetKey(report.reproduction.table.split("/"))
    context.log_event(
        AssetObservation(
            key,
            partition=report.reproduction.day,
            description=sentences(report),
            metadata=metadata,
        )
    )


class MaintainConfig(Config):
    apply: bool = Field(
        default=False, description="Do it. Without it, the run only shows what it would do."
    )
    table: str = Field(
        default="", description="One table. Without one: all tables, and the releases."
    )


def maintain_job(workspace: Workspace, now: Callable[[], datetime] = utc_now) -> JobDefinition:
    def verb(context: OpExecutionContext, config: MaintainConfig) -> Done:
        who = launched_by(context)
        report = maintain_lake(
            workspace.lake.root,
            workspace.settings.rollback_days,
            config.table,
            apply=config.apply,
            who=who,
            now=now(),
        )
        result = report.result
        return report, {
            "applied": config.apply,
            "retired_releases": len(result.retired),
            "compacted_days": sum(len(upkeep.days) for upkeep in result.tables),
            "removed_files": sum(len(upkeep.removed) for upkeep in result.tables),
            "removed_bytes": sum(upkeep.removed_bytes for upkeep in result.tables),
            "tables": as_table(report.table),
        }

    description = (
        "Compact days of many small files, and remove files that no release, open shadow or"
        " rollback needs. First retire releases older than BACKFILL_ROLLBACK_DAYS. Changes nothing"
        " unless `apply` is set."
    )
    return verb_job("maintain", "upkeep", MaintainConfig, verb, description)


def weekly_maintenance(job: JobDefinition) -> ScheduleDefinition:
    """Return the schedule of the job `maintain`, with `apply`. It removes files, so it is stopped
    until someone starts it.
    """
    return ScheduleDefinition(
        name="weekly_maintenance",
        job=job,
        cron_schedule=SUNDAY_MORNING,
        execution_timezone="UTC",
        run_config={"ops": {"upkeep": {"config": {"apply": True}}}},
        description=(
            "Runs the job maintain with `apply` every Sunday at 04:00 UTC. It deletes files for"
            " good, so it is stopped until someone starts it. Look at `backfill maintain` first."
        ),
    )
