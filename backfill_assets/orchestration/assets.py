"""What Dagster's catalog shows of a table: its columns, its place in the lake, its code.

What a step says when some of its days failed, are blocked, or were refused by an audit.

What is shown of a day besides its figures, as the metadata of a materialization:
`@table(shows=...)`, early stops.

Tables as Dagster assets: one partitioned asset a table, one asset check a rule, one step a table in
a run.

A step some of whose days fail raises a Failure after it has yielded its outputs. With the executor
below, Dagster then still runs the steps downstream, for the days that succeeded (docs of
`step_dependency_config`). So one bad day of raw fails the run, but not the fifty-nine others in
staging and features.
"""

import inspect
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
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

from backfill_assets.calendar import Calendar, as_day
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import URI, shadow_asset, step_of
from backfill_assets.errors import BackfillError, ServiceUnavailable
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import AUDITS
from backfill_assets.lake.slices import Slice
from backfill_assets.lake.storage import Paths, full_disk_message, is_disk_full
from backfill_assets.orchestration.report import events_of
from backfill_assets.orchestration.run import (
    RebuildOptions,
    SparkResource,
    plan_of,
    request_of,
    workspace_of_run,
)
from backfill_assets.step.audit_built import audit_built, built_days
from backfill_assets.step.request import StepResult
from backfill_assets.step.step import Step
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table, Window
from backfill_assets.workspace import Workspace


def metadata_of(table: Table, lake: Lake | None) -> dict[str, Any]:
    """The metadata of a table's asset. `lake`: where the table is; None for a shadow's, which each
    plan has elsewhere.
    """
    place = (
        {"dagster/table_name": table.name.replace("/", "."), URI: Paths(lake.root).uri(table.name)}
        if lake
        else {}
    )
    return {
        "dagster/column_schema": schema_of(table),
        **place,
        "key": MetadataValue.text(", ".join(table.key) or "none: rows may be equal"),
        "partitioned by": table.partition_by,
        **code_reference(table),
    }


def schema_of(table: Table) -> TableSchema:
    """The declared columns with their types and descriptions.

    The day, and columns of which a rule refuses every null, are required; the column of a key of
    one is unique.
    """
    refusing = [
        rule for rule in table.rules if rule.name == "no_nulls" and rule.severity == "error"
    ]
    required = {table.partition_by, *(name for rule in refusing for name in rule.columns)}
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


def code_reference(table: Table) -> dict[str, Any]:
    """Where the table's function stands; nothing where that is not known, as of a function made by
    another.
    """
    try:
        file, (_, line) = (
            inspect.getsourcefile(table.compute),
            inspect.getsourcelines(table.compute),
        )
    except (OSError, TypeError):
        return {}
    reference = LocalFileCodeReference(
        file_path=str(file), line_number=line, label=table.compute.__name__
    )
    return {"dagster/code_references": CodeReferencesMetadataValue(code_references=[reference])}


NOTHING_WRITTEN = (
    "This was an audit of the rows as they stand: nothing was computed or written. Change the rule,"
    " or correct what the days are made from and build them again, with force."
)
OTHERS_WRITTEN = (
    (
        "The days named were not written: the table holds what it held for them before. The other"
        " days are committed."
    ),
    (
        "Correct the source or the inputs named, then re-execute this run from failure, or launch"
        " these days again."
    ),
)


def failure_of(result: StepResult) -> Failure | None:
    """The failure of a step with days that failed or are blocked, or None if there are none.

    Its message has rules, figures and rows. Its metadata has the reason of each day.
    """
    failed = result.failed()
    reasons = {build.day: build.message for build in failed}
    reasons |= {day: f"blocked: {why}" for day, why in sorted(result.blocked.items())}
    if not reasons:
        return None
    table = result.table.name
    lines = [f"  {day}: {reason}" for day, reason in reasons.items()]
    if any(build.outcome in AUDITS for build in result.built):
        count = (
            f"{len(failed)} day(s) refused, {len(result.blocked)} not judged,"
            f" {len(result.accepted())} passed"
        )
        lines.append(NOTHING_WRITTEN)
    else:
        count = (
            f"{len(failed)} day(s) failed, {len(result.blocked)} blocked, {len(result.accepted())}"
            " built"
        )
        lines += OTHERS_WRITTEN
    return Failure(
        "\n".join([f"{table}: {count}.", *lines]),
        metadata={tags.FAILED_DAYS: {str(day): reason for day, reason in reasons.items()}},
        allow_retries=False,
    )


def shown_of(result: StepResult, workspace: Workspace) -> dict[date, dict[str, Any]]:
    """By accepted day, what is shown of its rows as they were committed, and what came of the days
    after it.
    """
    table, newest = (
        result.table,
        workspace.lake.version(result.table.name) if result.table.shows else -1,
    )
    # What this run has written is shown as it wrote it, whatever others have built since.
    written = {
        build.day: build.delta_version for build in result.built if build.outcome == "accepted"
    }
    slices = [
        Slice(table.name, table.partition_by, (b.day,), written.get(b.day, newest))
        for b in result.accepted()
    ]
    shown = {rows.days[0]: _shown(table, workspace, rows) for rows in slices}
    return shown | {
        stop.day: shown.get(stop.day, {}) | {"early stop": str(stop)}
        for stop in result.early_stops()
    }


def _shown(table: Table, workspace: Workspace, rows: Slice) -> dict[str, Any]:
    """A picture that cannot be drawn does not fail a day that is committed."""
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


# One process a run, since a run has one Spark session; a step starts once its inputs were yielded,
# even if their step failed.
executor = in_process_executor.configured(
    {"step_dependency_config": {"require_upstream_step_success": False}}
)

# The engine is restarted when it dies, and a step that lost it tries again. Days that failed their
# audit are not retried. The step requests it: a RetryPolicy of Dagster's holds for a step whose run
# was interrupted too, which would then outlive its servers, or its cancellation.
MAX_RETRIES = 2
RETRY_AFTER_S = 10.0
# These are raised again by every attempt: a column that is not there, a name that is misspelt.
ERRORS_OF_CODE = (AnalysisException, AttributeError, ImportError, NameError, TypeError)

FRESHNESS = FreshnessPolicy.time_window(
    fail_window=timedelta(hours=36), warn_window=timedelta(hours=26)
)
IN_SHADOW = (
    "In the shadow of a plan: its days are built here unseen by readers, until the plan is"
    " published. `backfill run --into shadow` opens one."
)
NO_DAYS = (
    "This run names no days. Nothing was computed. Choose the table's days and launch them; with"
    " force, those that are up to date are computed again too. (Checks alone, without the asset,"
    " need no days: they audit all days as they stand.)"
)


def partitions_of(calendar: Calendar) -> DailyPartitionsDefinition:
    end = calendar.fixed_last and str(calendar.fixed_last + timedelta(days=1))
    return DailyPartitionsDefinition(
        start_date=str(calendar.first), end_date=end or None, timezone="UTC"
    )


def asset_key(table: Table, *, shadow: bool = False) -> AssetKey:
    return AssetKey((shadow_asset(table.name) if shadow else table.name).split("/"))


def live_tables(workspace: Workspace) -> AssetSelection:
    """The assets of the tables in live."""
    return AssetSelection.assets(*map(asset_key, workspace.tables))


def spec_of(
    table: Table,
    workspace: Workspace,
    partitions: DailyPartitionsDefinition,
    *,
    shadow: bool = False,
) -> AssetSpec:
    """What Dagster shows of `table`, and the tables that it depends on."""
    key = asset_key(table, shadow=shadow)
    return AssetSpec(
        key,
        deps=[
            AssetDep(asset_key(other, shadow=shadow), partition_mapping=_mapping(window))
            for other, window in table.windows()
        ],
        description=f"{IN_SHADOW}\n\n{table.documentation}" if shadow else table.documentation,
        group_name=key.path[0],
        code_version=table.version,
        owners=list(table.owners) or None,
        tags=table.tags,
        kinds={"pyspark", "deltalake"},
        metadata=metadata_of(table, None if shadow else workspace.lake),
        partitions_def=partitions,
        # A calendar that has ended gets no new days, and is never late; a shadow has only the days
        # of its plan.
        freshness_policy=None if shadow or workspace.calendar.fixed_last else FRESHNESS,
        # `events_of` yields its output, and materializes only the days that were accepted
        skippable=True,
    )


def asset_of(table: Table, workspace: Workspace, *, shadow: bool = False) -> AssetsDefinition:
    """The asset that builds `table`, day by day or over any range, with a check for each of its
    rules.

    That of the `shadow` builds it in the shadow of its run's plan.
    """
    partitions = partitions_of(workspace.calendar)
    key = asset_key(table, shadow=shadow)

    @multi_asset(
        name=step_of("/".join(key.path)),
        specs=[spec_of(table, workspace, partitions, shadow=shadow)],
        check_specs=[
            AssetCheckSpec(
                rule.name,
                asset=key,
                description=rule.described(),
                # Of the days that it refuses. The executor above lets the steps downstream run for
                # the others.
                blocking=rule.severity == "error",
                partitions_def=partitions,
            )
            for rule in table.rules
        ],
        can_subset=True,
        backfill_policy=BackfillPolicy.multi_run(
            max_partitions_per_run=workspace.settings.days_per_run
        ),
        pool=table.pool,
    )
    def build(
        context: AssetExecutionContext, spark: ResourceParam[SparkResource], options: RebuildOptions
    ) -> Iterator[Any]:
        names_days = context.has_partition_key or context.has_partition_key_range
        if not names_days and context.selected_asset_keys:
            raise Failure(NO_DAYS, allow_retries=False)
        try:
            plan = plan_of(context, workspace)
            days = [as_day(key) for key in context.partition_keys] if names_days else []
            target = workspace_of_run(plan, workspace, table, days, shadow=shadow)
            request = request_of(context, options, plan, table)
            if names_days and not options.audit_only:
                result = Step(
                    table, target, request, lambda: spark.session(options.spark_conf)
                ).run(days)
            else:
                days = days or built_days(table, target)
                result = audit_built(
                    table, days, request, target, lambda: spark.session(options.spark_conf)
                )
        except BackfillError as error:
            if isinstance(error, ServiceUnavailable):
                try_again(context, error)
            raise Failure(str(error), allow_retries=False) from error
        except Exception as error:
            spark.forget()
            if is_disk_full(error):
                raise Failure(
                    full_disk_message(workspace.lake.root, table.name), allow_retries=False
                ) from error
            if not isinstance(error, ERRORS_OF_CODE):
                try_again(context, error)
            raise
        yield from events_of(
            context,
            result,
            key,
            shown_of(result, target) if names_days else {},
            materialize=names_days,
        )
        if failure := failure_of(result):
            raise failure

    return build


def try_again(context: AssetExecutionContext, error: Exception) -> None:
    """Raise RetryRequested, unless this was the last attempt."""
    attempt = context.op_execution_context.retry_number
    if attempt < MAX_RETRIES:
        raise RetryRequested(MAX_RETRIES, RETRY_AFTER_S * (2 ** (attempt + 1) - 1)) from error


def _mapping(window: Window) -> TimeWindowPartitionMapping | None:
    """The days that a day waits for. Later days that it may also read are left out, so that their
    failure does not block it.

    Where it waits for none, the first that it reads: in one run, what is built then is read.
    """
    end = max(window.first, window.last_needed)
    if window.first == end == 0:
        return None
    return TimeWindowPartitionMapping(
        start_offset=window.first, end_offset=end, allow_nonexistent_upstream_partitions=True
    )
