"""Deliveries and the status of each day in Dagster's UI.

Each source is an external asset. Its observations have the fingerprint of each day's delivery as
data version, so Dagster calls a day of a raw table stale when its delivery changed. Dagster does
not know other reasons, such as rows that another program changed, and its launch dialog cannot
select stale days. So each table has the check `up_to_date`. It fails on the days that `backfill
status` calls outdated or failed.

Steps report the days that they have built. The job `backfill_report_status` reports only changes
without a run: it compares with Dagster's records. If a check fails for any day, its newest
evaluation fails too, because the UI shows it as the result. The job's sensor starts it when no
table is being built.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType

from dagster import (
    AssetCheckEvaluation,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    AssetObservation,
    AssetSpec,
    DagsterInstance,
    DailyPartitionsDefinition,
    DefaultSensorStatus,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
)

from backfill_assets.dagster_client.names import OWN, own, step_of
from backfill_assets.errors import BackfillError, SourceError
from backfill_assets.grouping import grouped
from backfill_assets.lake.history import Latest
from backfill_assets.no_day import in_words
from backfill_assets.orchestration.jobs import VerbJob, VerbRun
from backfill_assets.orchestration.local.recorded import (
    DATA_VERSION_TAG,
    last_results,
    observed_versions,
)
from backfill_assets.orchestration.local.step_events import (
    check_events,
    observation_events,
    partition_key,
    target_materializations,
)
from backfill_assets.orchestration.local.unfinished import (
    unfinished_runs,
    unfinished_runs_of_job,
)
from backfill_assets.orchestration.pace import paced
from backfill_assets.plan.neighbours import StatusReader
from backfill_assets.plan.selection import OUTDATED
from backfill_assets.plan.status import (
    PartitionStatus,
    State,
    Status,
    latest_builds,
    runs_by_partition,
    status_of,
)
from backfill_assets.step.inputs import Deliveries, delivered_for
from backfill_assets.tables.declaration import Table
from backfill_assets.verbs.options import NoOptions
from backfill_assets.workspace import Workspace

NOTHING: Mapping[date, str] = MappingProxyType({})
_JOB = own("report_status")
CHECK = "up_to_date"
GROUP = "sources"
_FAILING = OUTDATED | {State.OCCUPIED}
_EVERY_S = 30
# Further events are left to the next run, because steps that report meanwhile wait for the storage.
MOST_EVENTS = 2000


def source_keys(tables: Sequence[Table]) -> dict[str, AssetKey]:
    """The asset of each table's source, by the table's name.

    A source that is an asset of the project has the key of that asset. Others are below `backfill`.
    Tables without days have none. Tables with the same source share its asset. If different sources
    have one name, each table has its own asset.
    """
    daily = (table for table in tables if not table.without_days)
    by_name = grouped((source.name, table) for table in daily if (source := table.source()))
    keys = {}
    for name, readers in by_name.items():
        is_shared = all(table.source() == readers[0].source() for table in readers)
        for table in readers:
            own_part = [] if is_shared else [step_of(table.name)]
            keys[table.name] = AssetKey([OWN, GROUP, *name.split("/"), *own_part])
    assets = {table.name: source.asset for table in tables if (source := table.source())}
    return keys | {name: AssetKey(key.split("/")) for name, key in assets.items() if key}


def _is_observed(key: AssetKey) -> bool:
    """True for the asset of a source that we observe. Other assets have events of their own."""
    return key.path[:2] == [OWN, GROUP]


def source_specs(tables: Sequence[Table], partitions: DailyPartitionsDefinition) -> list[AssetSpec]:
    """An external asset for each source."""
    readers = grouped((key, name) for name, key in source_keys(tables).items())
    return [
        AssetSpec(
            key,
            description=(
                f"Deliveries by day, read by {', '.join(names)}. The data version of a day is the"
                " fingerprint of its delivery. Nothing is materialized here."
            ),
            group_name=GROUP,
            partitions_def=partitions,
        )
        for key, names in readers.items()
        if _is_observed(key)
    ]


def check_spec(key: AssetKey, partitions: DailyPartitionsDefinition | None) -> AssetCheckSpec:
    """The check of the days of a table."""
    return AssetCheckSpec(
        CHECK,
        asset=key,
        description=(
            "The day needs no rebuild. It fails with the reason that `backfill status` gives: a"
            " changed delivery, input or code, or rows that another program changed."
        ),
        partitions_def=partitions,
    )


def observations(
    instance: DagsterInstance, key: AssetKey, versions: Mapping[date, str]
) -> list[AssetObservation]:
    """An observation of each day with another data version than Dagster has recorded."""
    if not _is_observed(key):
        return []
    recorded = observed_versions(instance, key) if versions else {}
    return [
        AssetObservation(key, partition=str(day), tags={DATA_VERSION_TAG: version})
        for day, version in sorted(versions.items())
        if version and recorded.get(str(day)) != version
    ]


def evaluations(
    instance: DagsterInstance,
    key: AssetKey,
    problems: Mapping[date, str],
    runs: Mapping[date, str],
    passed: Mapping[date, str] = NOTHING,
) -> list[AssetCheckEvaluation]:
    """The evaluations of the check for these days.

    `problems` has the reason of each failing day, `runs` the run that built each day, and `passed`
    the state of days that pass without being up to date. Failing days come last, because the UI
    shows the newest evaluation of a check as its result.
    """
    built_by = {str(day): run for day, run in runs.items()}
    targets = target_materializations(instance, key, built_by)
    return [
        AssetCheckEvaluation(
            asset_key=key,
            check_name=CHECK,
            passed=day not in problems,
            partition=partition_key(day),
            severity=AssetCheckSeverity.WARN,
            description=in_words(problems.get(day) or passed.get(day, State.UP_TO_DATE)),
            target_materialization_data=targets.get(str(day)),
        )
        for day in sorted({*problems, *runs, *passed}, key=lambda day: (day in problems, day))
    ]


def problems_of(table: Table, days: Sequence[date], workspace: Workspace) -> dict[date, str]:
    """The reason of each of these days of a table that fails the check now."""
    found = StatusReader(workspace).read([(table.name, day) for day in days])
    return {day: _why(of_day) for (_, day), of_day in found.items() if of_day.state in _FAILING}


def _why(found: PartitionStatus) -> str:
    return f"{found.state}: {found.why}" if found.why else str(found.state)


def _report(run: VerbRun, _: NoOptions) -> None:
    """Report the events that Dagster lacks. They belong to this run.

    Without a run, Dagster stores only one evaluation of a check and a day.
    """
    events = unreported(run.workspace, run.context.instance)[:MOST_EVENTS]
    observed = [event for event in events if isinstance(event, AssetObservation)]
    checks = [event for event in events if isinstance(event, AssetCheckEvaluation)]
    reported = [
        *observation_events(run.context, observed),
        *check_events(run.context, checks),
    ]
    run.show(
        f"{len(reported)} change(s) reported.",
        {"deliveries": len(observed), "days": len(checks)},
    )


STATUS_JOB = VerbJob(
    "report_status",
    "report",
    NoOptions,
    _report,
    "Report deliveries and days whose status changed without a run. Builds nothing. The sensor"
    " backfill_report_status starts it.",
)


def status_sensor(workspace: Workspace, now: Callable[[], float] = time.time) -> SensorDefinition:
    """The sensor that starts the job if there is something to report. It runs unless stopped."""

    def look(context: SensorEvaluationContext) -> list[RunRequest] | str:
        instance = context.instance
        writing = [
            *unfinished_runs(instance, workspace.names),
            *unfinished_runs_of_job(instance, _JOB),
        ]
        if writing:
            return f"It waits until {writing[0]} is finished."
        try:
            events = unreported(workspace, instance)
        except BackfillError as error:
            return str(error)
        return [RunRequest()] if events else "Dagster shows what status shows."

    return SensorDefinition(
        name=_JOB,
        job_name=_JOB,
        evaluation_fn=paced(look, now),
        minimum_interval_seconds=_EVERY_S,
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            "Reports deliveries and days whose status changed without a run, so that the UI shows"
            " what `backfill status` shows. Builds nothing."
        ),
    )


def unreported(
    workspace: Workspace, instance: DagsterInstance
) -> list[AssetObservation | AssetCheckEvaluation]:
    """The observations and check evaluations that Dagster lacks."""
    workspace = workspace.with_cached_listing()
    # Read before the ledger: a step that ends between the two counts as running.
    running = runs_by_partition(workspace)
    builds = latest_builds(workspace)
    days = workspace.calendar.days()
    delivered = {
        table.name: delivered_for(
            table, table.days_of(days), workspace.area, builds.accepted, calendar=workspace.calendar
        )
        for table in workspace.tables
    }
    status = status_of(
        workspace,
        workspace.tables,
        days,
        latest=builds,
        running=running,
        delivered=delivered,
    )
    return [
        *_unreported_deliveries(workspace.tables, delivered, instance),
        *_unreported_days(workspace.tables, status, builds, instance),
    ]


def _unreported_deliveries(
    tables: Sequence[Table], delivered: Mapping[str, Deliveries], instance: DagsterInstance
) -> Iterator[AssetObservation]:
    by_key = {key: delivered[name] for name, key in source_keys(tables).items()}
    for key, deliveries in by_key.items():
        versions = {
            day: delivery.fingerprint
            for day, delivery in deliveries.items()
            if not isinstance(delivery, SourceError)
        }
        yield from observations(instance, key, versions)


def _unreported_days(
    tables: Sequence[Table], status: Status, builds: Latest, instance: DagsterInstance
) -> Iterator[AssetCheckEvaluation]:
    for table in tables:
        key = AssetKey(table.name.split("/"))
        recorded = last_results(instance, key, CHECK, whole=table.without_days)
        days = status.days_of(table.name)
        problems = {}
        passed = {}
        failing = [day for day in days if status.partitions[table.name, day].state in _FAILING]
        for day in days:
            found = status.partitions[table.name, day]
            has_passed = recorded.get(str(day), True)
            if found.state in _FAILING:
                if has_passed is not False:
                    problems[day] = _why(found)
            elif found.is_up_to_date:
                if not has_passed:
                    passed[day] = str(found.state)
            # A day that was removed, or is not due any more, has no rows that could be outdated.
            elif has_passed is False and found.state != State.RUNNING:
                passed[day] = str(found.state)
        if failing and not problems and (passed or [*recorded.values()][-1]):
            # Otherwise the newest evaluation would say that the check has passed.
            problems[failing[-1]] = _why(status.partitions[table.name, failing[-1]])
        runs = {
            day: builds.accepted[table.name, day].run
            for day in {*problems, *passed}
            if (table.name, day) in builds.accepted
        }
        yield from evaluations(instance, key, problems, runs, passed)
