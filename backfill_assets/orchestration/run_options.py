"""How a run builds its days: its configuration and its plan, as what is asked of each step."""

from dagster import AssetExecutionContext, ConfigurableResource
from pydantic import Field

from backfill_assets.dagster_client import tags
from backfill_assets.lake.record import WriteMode
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


class RebuildOptions(ConfigurableResource):
    """How this run builds its days. It holds for every table of the run."""

    force: bool = Field(default=False, description="Compute days even if neither their code nor their inputs have changed.")
    write_mode: WriteMode = Field(
        default="overwrite",
        description="overwrite: replace the days. merge: update and insert by key, keep other rows. "
        "append_once: add the rows, exactly once for a run and its re-executions.",
    )
    spark_conf: dict[str, str] = Field(default={}, description="Spark settings for this run only.")
    audit_only: bool = Field(
        default=False, description="Judge the days as they stand by today's rules: nothing is computed, and no row is written."
    )
    accept: str = Field(default="", description="Files that may be empty or missing, by name, separated by commas.")
    skip_not_due: bool = Field(default=False, description="Leave out days that are not due yet; else the run fails for them.")
    reason: str = Field(default="", description="Why; kept in the commit, the ledger and each day's metadata.")


def plan_of(context: AssetExecutionContext, workspace: Workspace) -> Plan | None:
    """The plan that this run is part of, if any. UsageError, before anything is read, if it was made for other code."""
    plan_id = context.run.tags.get(tags.PLAN)
    if not plan_id:
        return None
    plan = Plans(workspace.lake.root).read(plan_id)
    plan.refuse_other_code(workspace.code)
    return plan


def request_of(context: AssetExecutionContext, options: RebuildOptions, plan: Plan | None, table: Table) -> StepRequest:
    run = context.run
    return StepRequest(
        run=run.run_id,
        identity=run.root_run_id or run.run_id,
        force=options.force,
        force_days=plan.forced_days(table.name) if plan else frozenset(),
        planned=plan.partitions().keys() if plan else frozenset(),
        write_mode=options.write_mode,
        plan=plan.id if plan else "",
        who=tags.launched_by(run.tags),
        reason=options.reason or run.tags.get(tags.REASON, ""),
        spark_conf=options.spark_conf,
        accept=options.accept,
        skip_not_due=options.skip_not_due,
    )
