"""Tables as Dagster assets: one partitioned asset a table, one asset check a rule, one step a table in a run.

A step some of whose days fail raises a Failure after it has yielded its outputs. With the executor below, Dagster then still
runs the steps downstream, for the days that succeeded (docs of `step_dependency_config`). So one bad day of raw fails the run,
but not the fifty-nine others in staging and features.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from dagster import (
    AssetCheckSpec,
    AssetDep,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    AssetSelection,
    AssetSpec,
    BackfillPolicy,
    DailyPartitionsDefinition,
    Failure,
    FreshnessPolicy,
    ResourceParam,
    RetryRequested,
    TimeWindowPartitionMapping,
    in_process_executor,
    multi_asset,
)
from pyspark.errors import AnalysisException

from backfill_assets.calendar import Calendar, as_day
from backfill_assets.dagster_client.loaded_table import shadow_asset, step_of
from backfill_assets.errors import BackfillError, ServiceUnavailable
from backfill_assets.lake.full_disk import full_disk_message, is_disk_full
from backfill_assets.orchestration.asset_metadata import metadata_of
from backfill_assets.orchestration.failure import failure_message
from backfill_assets.orchestration.report import events_of
from backfill_assets.orchestration.run_options import RebuildOptions, plan_of, request_of, workspace_of_run
from backfill_assets.orchestration.shown import shown_of
from backfill_assets.orchestration.spark import SparkResource
from backfill_assets.step.audit_built import audit_built, built_days
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import Window
from backfill_assets.workspace import Workspace

# One process a run, since a run has one Spark session; a step starts once its inputs were yielded, even if their step failed.
executor = in_process_executor.configured({"step_dependency_config": {"require_upstream_step_success": False}})

# The engine is restarted when it dies, and a step that lost it tries again. Days that failed their audit are not retried. The
# step requests it: a RetryPolicy of Dagster's holds for a step whose run was interrupted too, which would then outlive its
# servers, or its cancellation.
MAX_RETRIES, RETRY_AFTER_S = 2, 10.0
# These are raised again by every attempt: a column that is not there, a name that is misspelt.
ERRORS_OF_CODE = (AnalysisException, AttributeError, ImportError, NameError, TypeError)

FRESHNESS = FreshnessPolicy.time_window(fail_window=timedelta(hours=36), warn_window=timedelta(hours=26))
IN_SHADOW = (
    "In the shadow of a plan: its days are built here unseen by readers, until the plan is published. "
    "`backfill run --into shadow` opens one."
)
NO_DAYS = (
    "This run names no days. Nothing was computed. Choose the table's days and launch them; with force, those that are up to "
    "date are computed again too. (Checks alone, without the asset, need no days: they audit all days as they stand.)"
)


def partitions_of(calendar: Calendar) -> DailyPartitionsDefinition:
    end = calendar.fixed_last and str(calendar.fixed_last + timedelta(days=1))
    return DailyPartitionsDefinition(start_date=str(calendar.first), end_date=end or None, timezone="UTC")


def asset_key(table: Table, *, shadow: bool = False) -> AssetKey:
    return AssetKey((shadow_asset(table.name) if shadow else table.name).split("/"))


def live_tables(workspace: Workspace) -> AssetSelection:
    """The assets of the tables in live."""
    return AssetSelection.assets(*map(asset_key, workspace.tables))


def spec_of(table: Table, workspace: Workspace, partitions: DailyPartitionsDefinition, *, shadow: bool = False) -> AssetSpec:
    """What Dagster shows of `table`, and the tables that it depends on."""
    key = asset_key(table, shadow=shadow)
    return AssetSpec(
        key,
        deps=[
            AssetDep(asset_key(other, shadow=shadow), partition_mapping=_mapping(window)) for other, window in table.windows()
        ],
        description=f"{IN_SHADOW}\n\n{table.documentation}" if shadow else table.documentation,
        group_name=key.path[0],
        code_version=table.version,
        owners=list(table.owners) or None,
        tags=table.tags,
        kinds={"pyspark", "deltalake"},
        metadata=metadata_of(table, None if shadow else workspace.lake),
        partitions_def=partitions,
        # A calendar that has ended gets no new days, and is never late; a shadow has only the days of its plan.
        freshness_policy=None if shadow or workspace.calendar.fixed_last else FRESHNESS,
        skippable=True,  # `events_of` yields its output, and materializes only the days that were accepted
    )


def asset_of(table: Table, workspace: Workspace, *, shadow: bool = False) -> AssetsDefinition:
    """The asset that builds `table`, day by day or over any range, with a check for each of its rules.

    That of the `shadow` builds it in the shadow of its run's plan.
    """
    partitions, key = partitions_of(workspace.calendar), asset_key(table, shadow=shadow)

    @multi_asset(
        name=step_of("/".join(key.path)),
        specs=[spec_of(table, workspace, partitions, shadow=shadow)],
        check_specs=[
            AssetCheckSpec(
                rule.name,
                asset=key,
                description=rule.described(),
                # Of the days that it refuses. The executor above lets the steps downstream run for the others.
                blocking=rule.severity == "error",
                partitions_def=partitions,
            )
            for rule in table.rules
        ],
        can_subset=True,
        backfill_policy=BackfillPolicy.multi_run(max_partitions_per_run=workspace.settings.days_per_run),
        pool=table.pool,
    )
    def build(context: AssetExecutionContext, spark: ResourceParam[SparkResource], options: RebuildOptions) -> Iterator[Any]:
        names_days = context.has_partition_key or context.has_partition_key_range
        if not names_days and context.selected_asset_keys:
            raise Failure(NO_DAYS, allow_retries=False)
        try:
            plan = plan_of(context, workspace)
            days = [as_day(key) for key in context.partition_keys] if names_days else []
            target = workspace_of_run(plan, workspace, table, days, shadow=shadow)
            request = request_of(context, options, plan, table)
            if names_days and not options.audit_only:
                result = Step(table, target, request, lambda: spark.session(options.spark_conf)).run(days)
            else:
                days = days or built_days(table, target)
                result = audit_built(table, days, request, target, lambda: spark.session(options.spark_conf))
        except BackfillError as error:
            if isinstance(error, ServiceUnavailable):
                try_again(context, error)
            raise Failure(str(error), allow_retries=False) from error
        except Exception as error:
            spark.forget()
            if is_disk_full(error):
                raise Failure(full_disk_message(workspace.lake.root, table.name), allow_retries=False) from error
            if not isinstance(error, ERRORS_OF_CODE):
                try_again(context, error)
            raise
        yield from events_of(context, result, key, shown_of(result, target) if names_days else {}, materialize=names_days)
        message = failure_message(result)
        if message:
            raise Failure(message, allow_retries=False)

    return build


def try_again(context: AssetExecutionContext, error: Exception) -> None:
    """Raise RetryRequested, unless this was the last attempt."""
    attempt = context.op_execution_context.retry_number
    if attempt < MAX_RETRIES:
        raise RetryRequested(MAX_RETRIES, RETRY_AFTER_S * (2 ** (attempt + 1) - 1)) from error


def _mapping(window: Window) -> TimeWindowPartitionMapping | None:
    """The days that a day waits for. Later days that it may also read are left out, so that their failure does not block it.

    Where it waits for none, the first that it reads: in one run, what is built then is read.
    """
    end = max(window.first, window.last_needed)
    if window.first == end == 0:
        return None
    return TimeWindowPartitionMapping(start_offset=window.first, end_offset=end, allow_nonexistent_upstream_partitions=True)
