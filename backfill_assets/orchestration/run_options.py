"""How a run builds its days: its configuration and its plan, as what is asked of each step."""

from collections.abc import Collection
from datetime import date

from dagster import AssetExecutionContext, ConfigurableResource
from pydantic import Field

from backfill_assets.calendar import days_as_typed, ranges
from backfill_assets.dagster_client import tags
from backfill_assets.errors import UsageError
from backfill_assets.lake.record import WriteMode
from backfill_assets.lake.shadow_base import read_base
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.store import Plans
from backfill_assets.step.accept import refuse_without_reason
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.git_commit import git_commit
from backfill_assets.workspace import Workspace


class RebuildOptions(ConfigurableResource):
    """How this run builds its days. It holds for every table of the run."""

    force: bool = Field(default=False, description="Compute days even if neither their code nor their inputs have changed.")
    write_mode: WriteMode = Field(
        default="overwrite",
        description="overwrite: replace the days. merge: update and insert by key, keep other rows. "
        "A day that keeps rows of other code, files or inputs stays outdated.",
    )
    spark_conf: dict[str, str] = Field(default={}, description="Spark settings for this run only.")
    audit_only: bool = Field(
        default=False, description="Judge the days as they stand by today's rules: nothing is computed, and no row is written."
    )
    accept: str = Field(
        default="", description="Files, columns and rules that are accepted, by name, with commas; with a reason."
    )
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


def workspace_of_run(
    plan: Plan | None, workspace: Workspace, table: Table, days: Collection[date], *, shadow: bool
) -> Workspace:
    """The workspace in which an asset builds: live, or the plan's shadow. UsageError for the assets of the other."""
    if plan is None and not shadow:
        return workspace
    if plan is None or (shadow and not plan.is_shadow):
        given = f"plan {plan.id}, which is built in live" if plan else "no plan"
        raise UsageError(
            f"shadow/{table.name} builds days of a plan that was made for a shadow, and this run has {given}. Nothing was read "
            "or written. Make such a plan and start it: `backfill run --into shadow --partitions "
            f"{days_as_typed(days) or '...'} --target {table.name}`."
        )
    if plan.is_shadow and not shadow:
        raise UsageError(
            f"Plan {plan.id} is built in its shadow, and this run is of live's {table.name}. Nothing was read or written. "
            f"`backfill run {plan.id}` builds what is left of it."
        )
    if not shadow:
        return workspace
    if outside := sorted(set(days) - plan.days_of(table.name)):
        raise UsageError(
            f"{table.name} {ranges(outside)} is not in plan {plan.id}, and its shadow has no other days. Nothing was read or "
            "written. Leave these days out, or plan them too."
        )
    if read_base(workspace.lake.root, plan.id) is None:
        raise UsageError(
            f"The shadow of plan {plan.id} is not open. Nothing was read or written. `backfill run {plan.id}` opens it."
        )
    return workspace_of(plan, workspace)


def request_of(context: AssetExecutionContext, options: RebuildOptions, plan: Plan | None, table: Table) -> StepRequest:
    run = context.run
    reason = options.reason or run.tags.get(tags.REASON, "")
    refuse_without_reason(options.accept, reason)
    return StepRequest(
        run=run.run_id,
        force=options.force,
        force_days=plan.forced_days(table.name) if plan else frozenset(),
        planned=plan.partitions().keys() if plan else frozenset(),
        write_mode=options.write_mode,
        plan=plan.id if plan else "",
        who=tags.launched_by(run.tags),
        reason=reason,
        spark_conf=options.spark_conf,
        accept=options.accept,
        skip_not_due=options.skip_not_due,
        git_commit=git_commit(table),
    )
