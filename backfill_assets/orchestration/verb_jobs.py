"""The jobs for the UI and GraphQL. Each does the same as the command of its name.

Only `reproduce` uses the engine.
"""

from dataclasses import dataclass
from functools import partial

from dagster import AssetKey, AssetObservation, MetadataValue

from backfill_assets.calendar import ranges
from backfill_assets.dagster_client.names import SPARK
from backfill_assets.dagster_client.requests import REPRODUCE, REPRODUCTION
from backfill_assets.diff.diff import Diffs
from backfill_assets.diff.sides import DiffRequest
from backfill_assets.orchestration.jobs import VerbJob, VerbRun, as_code, as_table
from backfill_assets.orchestration.local.unfinished import unfinished_runs
from backfill_assets.plan.request import option
from backfill_assets.publish.release_live import Runs
from backfill_assets.publish.waiting import Patience
from backfill_assets.reproduce.inputs import RecordedBuild
from backfill_assets.reproduce.reproduce import reproduce
from backfill_assets.reproduce.reproduction import Reproduction
from backfill_assets.verbs.accept_code import accept_code
from backfill_assets.verbs.audit import reproduce_day
from backfill_assets.verbs.diff import DiffReport, diff_heading, diff_report, html_page
from backfill_assets.verbs.maintain import maintain_lake
from backfill_assets.verbs.options import (
    AcceptCodeOptions,
    DiffOptions,
    MaintainOptions,
    PreviewOptions,
    PublishOptions,
    ReproduceOptions,
    RollbackOptions,
    SwitchOptions,
    VerifyOptions,
)
from backfill_assets.verbs.publish import preview_plan, publish_plan
from backfill_assets.verbs.releases import switch_table
from backfill_assets.verbs.report import sentences
from backfill_assets.verbs.rollback import rollback_plan
from backfill_assets.verbs.verify import markdown, verify_plan


def _verify(run: VerbRun, options: VerifyOptions) -> None:
    plan = run.plan_in_shadow(options.plan)
    report = verify_plan(plan, run.workspace, options, who=run.who)
    metadata = {
        "plan": plan.id,
        "verdict": report.verdict.result.value,
        "checklist": MetadataValue.md(markdown(report.verdict)),
    }
    run.show_report(report, metadata)


def _preview(run: VerbRun, options: PreviewOptions) -> None:
    plan = run.plan_in_shadow(options.plan)
    report = preview_plan(plan, run.workspace, _runs(run), options, who=run.who)
    metadata = {"plan": plan.id, "release": report.preview.number, "channel": options.channel}
    run.show_report(report, metadata)


def _runs(run: VerbRun) -> Runs:
    """Return a function that finds the unfinished runs of live, except this run."""
    instance = run.context.instance
    return partial(unfinished_runs, instance, run.workspace.names, but=run.context.run_id)


def _publish(run: VerbRun, options: PublishOptions) -> None:
    plan = run.plan_in_shadow(options.plan)
    report = publish_plan(
        plan,
        run.workspace,
        run.dagster,
        _runs(run),
        options,
        who=run.who,
        patience=Patience(report=run.context.log.info),
    )
    release = report.as_json()["release"]
    metadata = {"plan": plan.id, "release": release, "days": as_table(report.table)}
    run.show_report(report, metadata)


def _rollback(run: VerbRun, options: RollbackOptions) -> None:
    plan = run.plan(options.plan)
    report = rollback_plan(
        plan,
        run.workspace,
        run.dagster,
        _runs(run),
        options,
        who=run.who,
        patience=Patience(report=run.context.log.info),
    )
    metadata = {"plan": plan.id, "days": as_table(report.table)}
    run.show_report(report, metadata)


def _switch(run: VerbRun, options: SwitchOptions) -> None:
    report = switch_table(run.workspace, options, who=run.who)
    run.show_report(report, {"switched": report.is_switched, "readers get": options.to})


@dataclass(frozen=True, kw_only=True)
class ComparedOptions(DiffOptions):
    """The options of a diff, and its two sides."""

    compare: str = option(
        "",
        "A plan's id; a table and its day; two tables; or the numbers of two releases. In quotes."
        " Without it: the only plan in a shadow.",
    )


def _diff(run: VerbRun, options: ComparedOptions) -> None:
    limits = vars(options).copy()
    first, _, second = limits.pop("compare").strip().partition(" ")
    request = DiffRequest(first, second.strip(), **limits)
    diff = diff_report(request, run.workspace).diff
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


def _reproduce(run: VerbRun, options: ReproduceOptions) -> None:
    def compute(recorded: RecordedBuild) -> Reproduction:
        spark = getattr(run.context.resources, SPARK)
        return reproduce(recorded, run.workspace, spark.session(recorded.build.spark_conf))

    report = reproduce_day(run.workspace, options, compute)
    metadata = {
        "reproduced": report.reproduction.result.value,
        "reproduced from": as_code(report.details),
        REPRODUCTION: MetadataValue.json(report.as_json()),
    }
    # It changes no status of the day's asset. The command reads it.
    observation = AssetObservation(
        AssetKey(report.reproduction.table.split("/")),
        partition=report.reproduction.day,
        description=sentences(report.lines()),
        metadata=metadata,
    )
    run.context.log_event(observation)
    run.show_report(report, metadata)


def _accept_code(run: VerbRun, options: AcceptCodeOptions) -> None:
    report = accept_code(run.workspace, options, who=run.who)
    run.show_report(report, {"code": report.code, "days": ranges(report.days)})


def _maintain(run: VerbRun, options: MaintainOptions) -> None:
    days = run.workspace.settings.rollback_days
    report = maintain_lake(run.workspace.lake, days, options, who=run.who, now=run.now())
    metadata = {"applied": options.apply, **report.totals, "tables": as_table(report.table)}
    run.show_report(report, metadata)


VERB_JOBS = (
    VerbJob(
        "verify",
        "fill_checklist",
        VerifyOptions,
        _verify,
        "Run the pre-publish checks of a plan that was built in its shadow. Nothing is published.",
    ),
    VerbJob(
        "preview",
        "combine",
        PreviewOptions,
        _preview,
        "Combine the newest release with the days of a plan's shadow, for a few readers. Nothing is"
        " published.",
    ),
    VerbJob(
        "publish",
        "put_into_live",
        PublishOptions,
        _publish,
        "Publish a plan that was verified in its shadow: its days go live, one commit per table,"
        " and into one release.",
    ),
    VerbJob(
        "switch",
        "switch_readers",
        SwitchOptions,
        _switch,
        "Give readers of a table's name another table, such as a new version of it, in one"
        " release.",
    ),
    VerbJob(
        "rollback",
        "restore",
        RollbackOptions,
        _rollback,
        "Roll a plan back: restore the days that it changed.",
    ),
    VerbJob(
        "diff",
        "compare",
        ComparedOptions,
        _diff,
        "Show which rows differ: before and after a plan, a day's last build, or in two releases."
        " No table is changed.",
    ),
    VerbJob(
        REPRODUCE,
        "build_again",
        ReproduceOptions,
        _reproduce,
        "Build a day again from its recorded code and inputs, outside the lake, and compare."
        " Changes nothing.",
        needs_engine=True,
    ),
    VerbJob(
        "accept_code",
        "keep_days",
        AcceptCodeOptions,
        _accept_code,
        "Keep days that earlier code built: the present code then builds only new days. No row"
        " changes. After the next change of the code, the days are outdated again.",
    ),
    VerbJob(
        "maintain",
        "upkeep",
        MaintainOptions,
        _maintain,
        "Compact days of many small files, and remove files that no release, open shadow or"
        " rollback needs. First retire releases older than BACKFILL_ROLLBACK_DAYS. Changes nothing"
        " unless `apply` is set.",
    ),
)
