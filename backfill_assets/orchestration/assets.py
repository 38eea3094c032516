"""Tables as Dagster assets: one partitioned asset for each table, one check for each rule.

If some days of a step failed, the step yields its outputs, and then raises a Failure. With the
executor below, Dagster still runs the steps downstream, for the days that succeeded. So one bad day
of raw fails the run, but the other days still reach staging and features.
"""

import inspect
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, timedelta
from functools import partial
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
    CodeReferencesMetadataValue,
    DailyPartitionsDefinition,
    Failure,
    FreshnessPolicy,
    LocalFileCodeReference,
    MetadataValue,
    ResourceParam,
    RetryRequested,
    TableColumn,
    TableColumnConstraints,
    TableSchema,
    TimeWindowPartitionMapping,
    in_process_executor,
    multi_asset,
)
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backfill_assets.calendar import NO_DAY, Calendar, as_day
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import PARTITIONED_BY, URI
from backfill_assets.dagster_client.names import IO_MANAGER, shadow_asset, step_of
from backfill_assets.dagster_client.tags import days_of_assets
from backfill_assets.errors import BackfillError, ServiceUnavailable, UsageError
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import AUDITS
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.lake.slices import Slice
from backfill_assets.lake.storage import full_disk_message, is_disk_full, uri_of
from backfill_assets.no_day import in_words
from backfill_assets.orchestration.local.implicit_job import OWN_OP
from backfill_assets.orchestration.local.pools import with_pool_limits
from backfill_assets.orchestration.local.recorded import materialized
from backfill_assets.orchestration.report import events_of
from backfill_assets.orchestration.run import (
    RebuildOptions,
    SparkResource,
    plan_of,
    request_of,
    workspace_of_run,
)
from backfill_assets.orchestration.shown_status import check_spec, source_keys
from backfill_assets.plan.store import Plans
from backfill_assets.step.audit_built import audit_built, built_days
from backfill_assets.step.errors import failure_text, may_quote
from backfill_assets.step.request import StepResult
from backfill_assets.step.step import Step
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table, Window
from backfill_assets.workspace import Workspace

# A run has one Spark session, so it is one process. A step starts after its inputs were yielded,
# even if the step that yielded them failed.
executor = with_pool_limits(in_process_executor).configured(
    {"step_dependency_config": {"require_upstream_step_success": False}}
)

# A step that lost its engine requests a retry, since the engine is restarted. Dagster's RetryPolicy
# would also retry a step whose run was interrupted, which would then outlive its servers.
_MAX_RETRIES = 2
_RETRY_AFTER_S = 10.0
# A retry would raise these errors again: a column does not exist, or a name is misspelt.
_ERRORS_OF_CODE = (AnalysisException, AttributeError, ImportError, NameError, TypeError)

_FRESHNESS = FreshnessPolicy.time_window(
    fail_window=timedelta(hours=36), warn_window=timedelta(hours=26)
)
_IN_SHADOW = (
    "Staging copy used by a plan; not visible to readers until published. Do not materialize it by"
    " hand: `backfill run --into shadow` opens a shadow and builds its days."
)
_NO_DAYS = (
    "This run names no days. Nothing was computed. Choose the days of the table and launch them;"
    " with `force`, days that are up to date are computed again. (Checks can run without days:"
    " they audit all days that are built.)"
)
_AUDIT_FAILED = (
    "This was an audit of the rows in the table. Nothing was computed or written. Change the rule,"
    " or correct the inputs of these days and build them again with `force`."
)
_DAYS_FAILED = (
    "The days named were not written: the table keeps their earlier rows. Days that passed are"
    " committed.\nCorrect the source or the inputs named. Then "
)
_LAUNCH_AGAIN = "re-execute this run from failure, or launch these days again."


def shadow_assets(workspace: Workspace) -> list[AssetsDefinition]:
    """The assets of the tables of plans with an open shadow.

    Without a shadow there are none: "Materialize all" would include them, with missing days.
    """
    plans = Plans(workspace.lake.root)
    names = set[str]()
    # Runs report a lake or a plan that cannot be read; here it must not hide all tables.
    with suppress(BackfillError, OSError):
        for plan_id in ledgers_of_shadows(workspace.lake.root):
            with suppress(UsageError):
                names.update(plans.read(plan_id).reasons)
    shadowed = workspace.among(names)
    return [asset_of(table, workspace, in_shadow=names) for table in shadowed]


def asset_of(
    table: Table, workspace: Workspace, *, in_shadow: Collection[str] = ()
) -> AssetsDefinition:
    """The asset that builds any range of days of `table`, with a check for each rule.

    `in_shadow` has the tables with assets of shadows. Such an asset builds the days in the shadow
    of the run's plan.
    """
    shadow = bool(in_shadow)
    partitions = None if table.without_days else partitions_of(workspace.calendar)
    key = asset_key(table, shadow=shadow)
    source = None if shadow else source_keys(workspace.tables).get(table.name)

    @multi_asset(
        name=step_of("/".join(key.path)),
        specs=[spec_of(table, workspace, partitions, in_shadow=in_shadow)],
        check_specs=[
            AssetCheckSpec(
                rule.name,
                asset=key,
                description=rule.described(),
                # It blocks only the days that it refuses: see the executor.
                blocking=rule.severity == "error",
                partitions_def=partitions,
            )
            for rule in table.rules
        ]
        + ([] if shadow else [check_spec(key, partitions)]),
        can_subset=True,
        backfill_policy=BackfillPolicy.multi_run(
            max_partitions_per_run=workspace.settings.days_per_run
        ),
        pool=table.pool,
        op_tags=OWN_OP,
    )
    def build(
        context: AssetExecutionContext,
        backfill_spark: ResourceParam[SparkResource],
        backfill_options: RebuildOptions,
    ) -> Iterator[Any]:
        names_days = (
            context.has_partition_key
            or context.has_partition_key_range
            or (table.without_days and bool(context.selected_asset_keys))
        )
        if not names_days and context.selected_asset_keys:
            raise Failure(_NO_DAYS, allow_retries=False)

        def session() -> SparkSession:
            return backfill_spark.session(backfill_options.spark_conf)

        workspace.make_home()
        try:
            plan = plan_of(context, workspace)
            days = []
            if names_days:
                days = [NO_DAY] if table.without_days else days_of_step(context, key)
            if names_days and not days:
                raise UsageError(_NO_DAYS)
            target = workspace_of_run(plan, workspace, table, days, shadow=shadow)
            target = target.asking(partial(materialized, context.instance))
            request = request_of(context, backfill_options, plan, table)
            if names_days and not backfill_options.audit_only:
                result = Step(table, target, request, session).run(days)
            else:
                days = days or built_days(table, target)
                result = audit_built(table, days, request, target, session)
        except BackfillError as error:
            if isinstance(error, ServiceUnavailable):
                _request_retry(context, error)
            raise Failure(str(error), allow_retries=False) from error
        except Exception as error:
            backfill_spark.forget()
            if is_disk_full(error):
                message = full_disk_message(workspace.lake.root, table.name)
                raise Failure(message, allow_retries=False) from error
            if not isinstance(error, _ERRORS_OF_CODE):
                _request_retry(context, error)
            if may_quote(error, table):
                raise Failure(failure_text(error, table)) from None
            raise
        shown = shown_of(result, target) if names_days else {}
        yield from events_of(
            context,
            result,
            key,
            shown,
            materialize=names_days,
            before=[day for day in days if table.first_day and day < table.first_day],
            source=source,
            live=None if shadow else target,
        )
        if failure := failure_of(result, plan.id if plan else ""):
            raise failure

    return build


def days_of_step(context: AssetExecutionContext, key: AssetKey) -> list[date]:
    """The days that this run builds of the asset `key`.

    A run without the tag DAYS builds its whole range. Raises UsageError for a tag that cannot be
    read.
    """
    days = [as_day(partition) for partition in context.partition_keys]
    if tags.DAYS not in context.run.tags:
        return days
    tagged = days_of_assets(context.run.tags)
    return sorted(set(days).intersection(tagged.get(key.to_user_string(), ())))


def _request_retry(context: AssetExecutionContext, error: Exception) -> None:
    """Raise RetryRequested, unless this was the last attempt."""
    attempt = context.op_execution_context.retry_number
    if attempt < _MAX_RETRIES:
        raise RetryRequested(_MAX_RETRIES, _RETRY_AFTER_S * (2 ** (attempt + 1) - 1)) from error


def spec_of(
    table: Table,
    workspace: Workspace,
    partitions: DailyPartitionsDefinition | None,
    *,
    in_shadow: Collection[str] = (),
) -> AssetSpec:
    """The asset spec of `table`, with its dependencies. In a shadow, these are in the shadow."""
    shadow = bool(in_shadow)
    key = asset_key(table, shadow=shadow)
    source = None if shadow else source_keys(workspace.tables).get(table.name)
    spec = AssetSpec(
        key,
        deps=[
            *([AssetDep(source)] if source else []),
            *(
                AssetDep(asset_key(other, shadow=shadow), partition_mapping=_mapping(window))
                for other, window in table.windows()
                if not shadow or other.name in in_shadow
            ),
        ],
        description=f"{_IN_SHADOW}\n\n{table.documentation}" if shadow else table.documentation,
        group_name=key.path[0],
        code_version=table.version,
        owners=list(table.owners) or None,
        tags=table.tags,
        kinds={"pyspark", "deltalake"},
        metadata=metadata_of(table, None if shadow else workspace.lake),
        partitions_def=partitions,
        # A calendar that has ended gets no new days. A shadow has only the days of its plan.
        freshness_policy=None if shadow or workspace.calendar.fixed_last else _FRESHNESS,
        # `events_of` yields the output, and materializes only the accepted days.
        skippable=True,
    )
    # Other assets read live.
    return spec if shadow else spec.with_io_manager_key(IO_MANAGER)


def _mapping(window: Window) -> TimeWindowPartitionMapping | None:
    """The days of an input that a day waits for, or the first day it reads if it waits for none.

    Later days that it may also read are left out: their failure must not block it. A day that
    waits for none still reads the rows that the same run has built.
    """
    end = max(window.first, window.last_needed)
    if window.first == end == 0:
        return None
    return TimeWindowPartitionMapping(
        start_offset=window.first, end_offset=end, allow_nonexistent_upstream_partitions=True
    )


def partitions_of(calendar: Calendar) -> DailyPartitionsDefinition:
    """One partition for each day of the calendar."""
    end = calendar.fixed_last and str(calendar.fixed_last + timedelta(days=1))
    return DailyPartitionsDefinition(
        start_date=str(calendar.first), end_date=end or None, timezone=calendar.zone
    )


def asset_key(table: Table, *, shadow: bool = False) -> AssetKey:
    """The asset of `table` in live or in the shadow."""
    return AssetKey((shadow_asset(table.name) if shadow else table.name).split("/"))


def live_assets(tables: Iterable[Table]) -> AssetSelection:
    """The assets of these tables in live."""
    return AssetSelection.assets(*map(asset_key, tables))


def metadata_of(table: Table, lake: Lake | None) -> dict[str, Any]:
    """Metadata of the asset of a table: its columns, its place, its key and its code.

    `lake` is None for a shadow, because its place depends on the plan.
    """
    place = {}
    if lake:
        # A store is not asked about tables that are declared in the lake.
        folder = lake.path(table.name) if table.path else f"{lake.root}/{table.name}"
        place = {"dagster/table_name": table.name.replace("/", "."), URI: uri_of(folder)}
    return {
        "dagster/column_schema": dagster_schema(table),
        **place,
        "key": MetadataValue.text(", ".join(table.key) or "none: rows may be equal"),
        PARTITIONED_BY: table.partition_by,
        **_code_reference(table),
    }


def dagster_schema(table: Table) -> TableSchema:
    """The declared columns with their types and descriptions.

    The day column, and columns whose nulls a rule refuses, are required. The only column of a key
    is unique.
    """
    required = {table.partition_by}
    for rule in table.rules:
        if rule.name == "no_nulls" and rule.severity == "error":
            required.update(rule.columns)
    return TableSchema(
        [
            TableColumn(
                name,
                type=kind.partition(" COMMENT ")[0],
                description=table.descriptions.get(name),
                constraints=TableColumnConstraints(
                    nullable=name not in required, unique=list(table.key) == [name]
                ),
            )
            for name, kind in types_of(table.columns).items()
        ]
    )


def _code_reference(table: Table) -> dict[str, Any]:
    """The place of the table's function; empty if Python cannot find it."""
    function = table.compute
    try:
        file = inspect.getsourcefile(function)
        _, line = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return {}
    reference = LocalFileCodeReference(
        file_path=str(file), line_number=line, label=function.__name__
    )
    return {"dagster/code_references": CodeReferencesMetadataValue(code_references=[reference])}


def failure_of(result: StepResult, plan_id: str = "") -> Failure | None:
    """The failure of a step with days that failed or are blocked, or None if there are none.

    `plan_id` is the plan of the run, if it has one. The message has rules, figures and rows. The
    metadata has the reason of each day.
    """
    reasons = {in_words(build.day): build.message for build in result.failed()}
    reasons |= {in_words(day): f"blocked: {why}" for day, why in sorted(result.blocked.items())}
    if not reasons:
        return None
    count = "{} day(s) failed, {} blocked, {} built"
    again = f"continue the plan: `backfill resume {plan_id}`." if plan_id else _LAUNCH_AGAIN
    remedy = _DAYS_FAILED + again
    if any(build.outcome in AUDITS for build in result.built):
        count = "{} day(s) refused, {} not judged, {} passed"
        remedy = _AUDIT_FAILED
    counts = map(len, (result.failed(), result.blocked, result.accepted()))
    lines = [f"  {day}: {reason}" for day, reason in reasons.items()]
    return Failure(
        "\n".join([f"{result.table.name}: {count.format(*counts)}.", *lines, remedy]),
        metadata={tags.FAILED_DAYS: reasons},
        allow_retries=False,
    )


def shown_of(result: StepResult, workspace: Workspace) -> dict[date, dict[str, Any]]:
    """Metadata of accepted days, apart from figures: `@table(shows=...)` and early stops."""
    table = result.table
    newest = workspace.lake.version(table.name) if table.shows else -1
    # Days of this run are shown at the version that it wrote: others may have written since.
    written = {
        build.day: build.delta_version for build in result.built if build.outcome == "accepted"
    }
    shown = {}
    for build in result.accepted():
        version = written.get(build.day, newest)
        rows = Slice(table.name, table.partition_by, (build.day,), version)
        shown[build.day] = _shown(table, workspace, rows)
    for stop in result.early_stops():
        shown.setdefault(stop.day, {})["early stop"] = str(stop)
    return shown


def _shown(table: Table, workspace: Workspace, rows: Slice) -> dict[str, Any]:
    """The values of `@table(shows=...)`. An error in them does not fail a committed day."""
    if table.shows is None:
        return {}
    try:
        return {
            name: _value(name, value)
            for name, value in table.shows(workspace.lake.arrow(rows).to_pylist()).items()
        }
    except Exception as error:
        return {"not shown": f"{type(error).__name__}: {error}"}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return MetadataValue.md(f"![{name}](data:image/png;base64,{b64encode(value).decode()})")
    return MetadataValue.json(dict(value)) if isinstance(value, Mapping) else value
