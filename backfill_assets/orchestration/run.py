"""Inputs of a Dagster run: its Spark session, options, plan, workspace and git commit."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import cache
from pathlib import Path
from types import MappingProxyType

from dagster import (
    AssetExecutionContext,
    ConfigurableResource,
    ResourceDefinition,
    get_dagster_logger,
)
from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyspark.sql import SparkSession

from backfill_assets.calendar import days_as_typed, ranges
from backfill_assets.dagster_client import tags
from backfill_assets.errors import UsageError
from backfill_assets.git import git
from backfill_assets.lake.ledger import WriteMode
from backfill_assets.lake.shadow import read_base
from backfill_assets.lake.spark.cluster import is_cluster, watch_executors
from backfill_assets.lake.spark.conf import apply_conf, refuse_unlisted, values_judged
from backfill_assets.lake.spark.server import refuse_other_server
from backfill_assets.lake.spark.session import open_session, session_conf
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.store import Plans
from backfill_assets.settings import Settings, executors_elsewhere, host_of
from backfill_assets.step.accept import refuse_without_reason
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.code_version.modules import file_of
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


class SparkResource(LazyPySparkResource):
    """One Spark session for each run, started when a step first needs it.

    Raises ServiceUnavailable, with a remedy, if it cannot start, or if it is on a server that does
    not see the `places` that this process sees.
    """

    places: list[str] = Field(default=[])

    def _init_session(self, conf: Mapping[str, str] = MappingProxyType({})) -> None:
        if self._spark_session is not None:
            return
        self._spark_session = open_session({**self.spark_config, **conf})
        if remote := self.spark_config.get("spark.remote"):
            refuse_other_server(self._spark_session, host_of(remote), self.places)
        elif is_cluster(self.spark_config.get("spark.master", "local")):
            watch_executors(self._spark_session, get_dagster_logger().warning)

    def session(self, conf: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
        """The session of this run, with the settings `conf`.

        The run's log says if work waits for executors of a cluster. Raises UsageError for a setting
        that cannot be changed any more.
        """
        remote = self.spark_config.get("spark.remote")
        refuse_unlisted(conf)
        with values_judged():
            self._init_session({} if remote else conf)
            apply_conf(
                self.spark_session.conf,
                conf,
                f"the engine at {host_of(remote)}" if remote else "this process's driver",
            )
        return self.spark_session

    def forget(self) -> None:
        """Close a Spark Connect session, so that the next attempt opens a new one.

        The session's server may have died.
        """
        if self._spark_session is not None and "spark.remote" in self.spark_config:
            with suppress(Exception):
                self._spark_session.stop()
            self._spark_session = None


def spark_resource(settings: Settings, packages: Sequence[str] = ()) -> SparkResource:
    places = [settings.lake]
    if settings.shared_disk or not executors_elsewhere(settings):
        places.append(str(settings.home))  # for copies of deliveries and of inputs
    return SparkResource(spark_config=session_conf(settings, packages), places=places)


def for_each_run(spark: SparkResource) -> ResourceDefinition:
    """A resource like `spark` for each run.

    It has no configuration, because a launchpad could then change settings on which rows depend.
    """
    return ResourceDefinition(
        lambda _: type(spark)(spark_config=spark.spark_config, places=spark.places),
        config_schema={},
        description=type(spark).__doc__,
    )


def git_commit(table: Table) -> str:
    """The full hash of the commit that has the table's code.

    It ends in `-dirty` if tracked files have changed since. It is "" if no repository contains the
    file, for example for installed code. Each process reads it once, like the code.
    """
    file = file_of(getattr(table.compute, "__module__", ""))
    return _commit_of(Path(file)) if file else ""


@cache
def _commit_of(file: Path) -> str:
    is_tracked = git(file.parent, "ls-files", "--error-unmatch", "--", file.name)
    return _described(file.parent) if is_tracked else ""


@cache
def _described(folder: Path) -> str:
    # Tags and short hashes would change with later tags and commits.
    return git(folder, "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty")


class RebuildOptions(ConfigurableResource):
    """Options of a run. They hold for every table of the run."""

    force: bool = Field(
        default=False,
        description="Compute days even if their code and inputs have not changed.",
    )
    write_mode: WriteMode = Field(
        default="overwrite",
        description=(
            "overwrite: replace the days. merge: update and insert by key, and keep other rows."
            " A day that keeps rows of other code, files or inputs stays outdated."
        ),
    )
    spark_conf: dict[str, str] = Field(default={}, description="Spark settings for this run only.")
    audit_only: bool = Field(
        default=False,
        description=(
            "Check the rows in the table against the current rules. Nothing is computed or written."
        ),
    )
    accept: str = Field(
        default="",
        description=(
            "Files, columns and rules to accept, by name, separated by commas. Requires `reason`."
        ),
    )
    replace_foreign_rows: bool = Field(
        default=False,
        description="Replace rows that another program wrote to these days. Requires `reason`.",
    )
    skip_not_due: bool = Field(
        default=False,
        description="Leave out days that wait for late data. Without it, the run fails for them.",
    )
    reason: str = Field(
        default="",
        description="Why; recorded in the commit, the ledger and the metadata of each day.",
    )


def plan_of(context: AssetExecutionContext, workspace: Workspace) -> Plan | None:
    """The plan of this run, if it has one. Raises UsageError if the plan is for other code."""
    plan_id = context.run.tags.get(tags.PLAN)
    if not plan_id:
        return None
    plan = Plans(workspace.lake.root).read(plan_id)
    plan.refuse_other_code(workspace.code)
    return plan


_NOTHING_READ = "Nothing was read or written."


def workspace_of_run(
    plan: Plan | None, workspace: Workspace, table: Table, days: Collection[date], *, shadow: bool
) -> Workspace:
    """The workspace that an asset builds in: live, or the shadow of the plan.

    Raises UsageError if the asset does not match the plan.
    """
    if plan is None and not shadow:
        return workspace
    if plan is None or (shadow and not plan.is_shadow):
        given = f"plan {plan.id}, which is built in live" if plan else "no plan"
        partitions = days_as_typed(days) or "..."
        raise UsageError(
            f"shadow/{table.name} builds only days of a plan with a shadow, and this run has"
            f" {given}.",
            unchanged=_NOTHING_READ,
            next_step=(
                "Make such a plan and start it: `backfill run --into shadow --partitions"
                f" {partitions} --target {table.name}`."
            ),
        )
    start = f"`backfill run {plan.id}`."
    if plan.is_shadow and not shadow:
        raise UsageError(
            f"Plan {plan.id} is built in its shadow, and this run builds {table.name} in live.",
            unchanged=_NOTHING_READ,
            next_step=f"To build the rest of the plan: {start}",
        )
    if not shadow:
        return workspace
    if outside := sorted(set(days) - plan.days_of(table.name)):
        raise UsageError(
            f"{table.name} {ranges(outside)} is not in plan {plan.id}.",
            unchanged=_NOTHING_READ,
            next_step="Leave these days out, or make a plan that has them.",
        )
    if read_base(workspace.lake.root, plan.id) is None:
        raise UsageError(
            f"The shadow of plan {plan.id} is not open.",
            unchanged=_NOTHING_READ,
            next_step=f"Open it: {start}",
        )
    return workspace_of(plan, workspace)


def request_of(
    context: AssetExecutionContext, options: RebuildOptions, plan: Plan | None, table: Table
) -> StepRequest:
    """The request of one step. Raises UsageError for `accept` without a reason."""
    run = context.run
    reason = options.reason or run.tags.get(tags.REASON, "")
    refuse_without_reason(reason, options.accept, replaces=options.replace_foreign_rows)
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
        replace_foreign_rows=options.replace_foreign_rows,
        skip_not_due=options.skip_not_due,
        git_commit=git_commit(table),
    )
