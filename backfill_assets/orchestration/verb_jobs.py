"""The jobs that do in the UI, or over GraphQL, what the command of the same name does.

Only `reproduce` uses the engine.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from dagster import AssetKey, AssetObservation, Config, MetadataValue
from pydantic import Field

from backfill_assets.calendar import ranges
from backfill_assets.dagster_client.names import SPARK
from backfill_assets.dagster_client.requests import REPRODUCE, REPRODUCTION
from backfill_assets.diff.diff import Diffs
from backfill_assets.diff.sides import DiffRequest
from backfill_assets.diff.text import diff_heading, html_page
from backfill_assets.orchestration.jobs import VerbJob, VerbRun, as_code, as_table, config_of
from backfill_assets.orchestration.local.unfinished import unfinished_runs
from backfill_assets.publish.release_live import Runs
from backfill_assets.publish.waiting import Patience
from backfill_assets.reproduce.inputs import RecordedBuild
from backfill_assets.reproduce.reproduce import reproduce
from backfill_assets.reproduce.reproduction import Reproduction
from backfill_assets.verbs.accept_code import accept_code
from backfill_assets.verbs.audit import ReproduceReport, reproduce_day
from backfill_assets.verbs.diff import DiffReport, diff_tables
from backfill_assets.verbs.maintain import maintain_lake
from backfill_assets.verbs.options import (
    MaintainOptions,
    PreviewOptions,
    PublishOptions,
    RollbackOptions,
    SwitchOptions,
    VerifyOptions,
)
from backfill_assets.verbs.publish import preview_plan, publish_plan, verify_plan
from backfill_assets.verbs.releases import switch_table
from backfill_assets.verbs.report import sentences
from backfill_assets.verbs.rollback import rollback_plan
from backfill_assets.verify.text import markdown


def _options(config: Config) -> dict[str, Any]:
    """Return the fields other than the plan: they are the options of the verb."""
    return config.model_dump(exclude={"plan"})


_PLAN = (
    str,
    Field(
        default="",
        description="The id of the plan, in quotes. Without one: the only plan in a shadow.",
    ),
)


def _verify(run: VerbRun, config: Any) -> None:
    plan = run.plan_in_shadow(config.plan)
    report = verify_plan(plan, run.workspace, VerifyOptions(**_options(config)), who=run.who)
    metadata = {
        "plan": plan.id,
        "verdict": report.verdict.result.value,
        "checklist": MetadataValue.md(markdown(report.verdict)),
    }
    run.show_report(report, metadata)


def _preview(run: VerbRun, config: Any) -> None:
    plan = run.plan_in_shadow(config.plan)
    options = PreviewOptions(**_options(config))
    report = preview_plan(plan, run.workspace, _runs(run), options, who=run.who)
    metadata = {"plan": plan.id, "release": report.preview.number, "channel": config.channel}
    run.show_report(report, metadata)


def _runs(run: VerbRun) -> Runs:
    """Ask for the unfinished runs of live other than this one."""
    instance = run.context.instance
    return partial(unfinished_runs, instance, run.workspace.names, but=run.context.run_id)


def _publish(run: VerbRun, config: Any) -> None:
    plan = run.plan_in_shadow(config.plan)
    report = publish_plan(
        plan,
        run.workspace,
        run.dagster,
        _runs(run),
        PublishOptions(**_options(config)),
        who=run.who,
        patience=Patience(report=run.context.log.info),
    )
    release = report.published.release
    number = release.number if release else None
    metadata = {"plan": plan.id, "release": number, "days": as_table(report.table)}
    run.show_report(report, metadata)


def _rollback(run: VerbRun, config: Any) -> None:
    plan = run.plan(config.plan)
    report = rollback_plan(
        plan,
        run.workspace,
        run.dagster,
        _runs(run),
        RollbackOptions(**_options(config)),
        who=run.who,
        patience=Patience(report=run.context.log.info),
    )
    metadata = {"plan": plan.id, "days": as_table(report.table)}
    run.show_report(report, metadata)


def _switch(run: VerbRun, config: Any) -> None:
    options = config.model_dump(exclude={"table", "to"})
    report = switch_table(
        config.table, config.to, run.workspace, SwitchOptions(**options), who=run.who
    )
    run.show_report(report, {"switched": report.is_switched, "readers get": config.to})


class DiffConfig(Config):
    compare: str = Field(
        default="",
        description=(
            "A plan's id; a table and its day; two tables; or the numbers of two releases. In"
            " quotes. Without it: the only plan in a shadow."
        ),
    )
    target: str = Field(
        default="", description="Of a plan or releases only these tables, by names or patterns."
    )
    partitions: str = Field(
        default="", description="Of a plan or releases only these days: A, A..B or A,B..C."
    )
    tolerance: list[str] = Field(
        default=[],
        description="By how much doubles may differ and be the same: price=0.01, price=1%.",
    )


def _diff(run: VerbRun, config: DiffConfig) -> None:
    first, _, second = config.compare.strip().partition(" ")
    request = DiffRequest(first, second.strip(), config.target, config.partitions, config.tolerance)
    diff = diff_tables(request, run.workspace).diff
    page = Diffs(run.workspace.lake.root).keep_page(diff.id, html_page(diff))
    report = DiffReport(diff, page)
    totals = {
        name: sum(table.total(name) for table in diff.tables)
        for name in ("added", "removed", "changed", "unchanged")
    }
    metadata = {
        "diff": diff.id,
        "compared": diff_heading(diff),
        "tables": as_table(report.table) if diff.differs else MetadataValue.md("Nothing differs."),
        "page": MetadataValue.path(page),
        **totals,
        **({"details": as_code(report.details)} if report.details else {}),
    }
    run.show_report(report, metadata)


class ReproduceConfig(Config):
    target: str = Field(description="One table, by its name.")
    partitions: str = Field(description="One day, in quotes.")
    release: int = Field(
        default=0,
        description="A release's number: the build whose rows its readers get. 0: live's.",
    )
    shuffled: bool = Field(
        default=False,
        description="Build the day twice from shuffled inputs: rows may not depend on their order.",
    )


def _reproduce(run: VerbRun, config: ReproduceConfig) -> None:
    def compute(recorded: RecordedBuild) -> Reproduction:
        spark = getattr(run.context.resources, SPARK)
        return reproduce(recorded, run.workspace, spark.session(recorded.build.spark_conf))

    release = config.release or None
    report = reproduce_day(
        run.workspace,
        config.target,
        config.partitions,
        release,
        compute,
        shuffled=config.shuffled,
    )
    metadata = {
        "reproduced": report.reproduction.result.value,
        "reproduced from": as_code(report.details),
        REPRODUCTION: MetadataValue.json(report.as_json()),
    }
    run.context.log_event(_observation(report, metadata))
    run.show_report(report, metadata)


def _observation(report: ReproduceReport, metadata: Mapping[str, Any]) -> AssetObservation:
    """Return an observation of the day's asset, which changes no status. The command reads it."""
    return AssetObservation(
        AssetKey(report.reproduction.table.split("/")),
        partition=report.reproduction.day,
        description=sentences(report.lines()),
        metadata=metadata,
    )


class AcceptCodeConfig(Config):
    target: str = Field(description="One table, by its name.")
    before: str = Field(description="Keep the built days before this day, in quotes.")
    reason: str = Field(description="Why; kept in the ledger.")


def _accept_code(run: VerbRun, config: AcceptCodeConfig) -> None:
    report = accept_code(
        run.workspace, config.target, config.before, who=run.who, reason=config.reason
    )
    run.show_report(report, {"code": report.code, "days": ranges(report.days)})


def _maintain(run: VerbRun, config: Any) -> None:
    report = maintain_lake(
        run.workspace.lake,
        run.workspace.settings.rollback_days,
        config.target,
        apply=config.apply,
        who=run.who,
        now=run.now(),
    )
    result = report.result
    metadata = {
        "applied": config.apply,
        "retired_releases": len(result.retired),
        "compacted_days": sum(len(upkeep.days) for upkeep in result.tables),
        "removed_files": sum(len(upkeep.removed) for upkeep in result.tables),
        "removed_bytes": sum(upkeep.removed_bytes for upkeep in result.tables),
        "tables": as_table(report.table),
    }
    run.show_report(report, metadata)


VERB_JOBS = (
    VerbJob(
        "verify",
        "fill_checklist",
        config_of(VerifyOptions, plan=_PLAN),
        _verify,
        "Run the pre-publish checks of a plan that was built in its shadow. Nothing is published.",
    ),
    VerbJob(
        "preview",
        "combine",
        config_of(PreviewOptions, plan=_PLAN),
        _preview,
        "Combine the newest release with the days of a plan's shadow, for a few readers. Nothing is"
        " published.",
    ),
    VerbJob(
        "publish",
        "put_into_live",
        config_of(PublishOptions, plan=_PLAN),
        _publish,
        "Publish a plan that was verified in its shadow: its days go live, one commit per table,"
        " and into one release.",
    ),
    VerbJob(
        "switch",
        "switch_readers",
        config_of(
            SwitchOptions,
            table=(str, Field(description="The table that readers name.")),
            to=(
                str,
                Field(description="The table whose rows they get; the same one to switch back."),
            ),
        ),
        _switch,
        "Give readers of a table's name another table, such as a new version of it, in one"
        " release.",
    ),
    VerbJob(
        "rollback",
        "restore",
        config_of(
            RollbackOptions,
            plan=(str, Field(description="The id of the plan to roll back, in quotes.")),
        ),
        _rollback,
        "Roll a plan back: restore the days that it changed.",
    ),
    VerbJob(
        "diff",
        "compare",
        DiffConfig,
        _diff,
        "Show which rows differ: before and after a plan, a day's last build, or in two releases."
        " No table is changed.",
    ),
    VerbJob(
        REPRODUCE,
        "build_again",
        ReproduceConfig,
        _reproduce,
        "Build a day again from its recorded code and inputs, outside the lake, and compare."
        " Changes nothing.",
        needs_engine=True,
    ),
    VerbJob(
        "accept_code",
        "keep_days",
        AcceptCodeConfig,
        _accept_code,
        "Keep days that earlier code built: the present code then builds only new days. No row"
        " changes. After the next change of the code, the days are outdated again.",
    ),
    VerbJob(
        "maintain",
        "upkeep",
        config_of(MaintainOptions),
        _maintain,
        "Compact days of many small files, and remove files that no release, open shadow or"
        " rollback needs. First retire releases older than BACKFILL_ROLLBACK_DAYS. Changes nothing"
        " unless `apply` is set.",
    ),
)
