"""The result of a step as Dagster events: materializations and checks of each day."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckSeverity,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    MetadataValue,
)

from backfill_assets.dagster_client.tags import BEFORE, runs_of
from backfill_assets.digest import digest
from backfill_assets.lake.ledger import AUDITS, Build
from backfill_assets.orchestration.local.step_events import (
    check_events,
    materialization_events,
    observation_events,
    output_events,
    partition_key,
    target_materializations,
)
from backfill_assets.orchestration.shown_status import evaluations, observations, problems_of
from backfill_assets.step.request import StepResult
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

_NOTHING: Mapping[Any, Any] = MappingProxyType({})
_SAMPLES = 20


def events_of(
    context: AssetExecutionContext,
    result: StepResult,
    key: AssetKey,
    shown: Mapping[date, Mapping[str, Any]] = _NOTHING,
    *,
    materialize: bool = True,
    before: Iterable[date] = (),
    source: AssetKey | None = None,
    live: Workspace | None = None,
) -> Iterator[Any]:
    """Every event of a step of the asset `key`, in Dagster's order.

    These are materializations, check evaluations and outputs. `materialize` is false for a run of
    checks only. `shown` has further metadata for the materializations, by day. `before` are the
    requested days before the first day of the table. `source` is the asset of the table's source,
    whose deliveries are observed first. `live` is None for a shadow, whose days have no status of
    their own.
    """
    accepted = result.accepted()
    new_builds = {id(build) for build in result.built}
    instance = context.instance
    audited = {build.day: build.run for build in result.built if build.outcome in AUDITS}
    # An audit does not judge code and inputs.
    outdated = problems_of(result.table, sorted(audited), live) if live and audited else {}
    # After a new event, Dagster would call an outdated day fresh.
    current = [build for build in accepted if build.day not in outdated]
    if source and materialize:
        versions = {build.day: build.delivered for build in current}
        yield from observation_events(context, observations(instance, source, versions))
    # Read after the observations: a later observation is of another delivery than the one that was
    # read.
    pointer = instance.event_log_storage.get_maximum_record_id()
    materializations = [
        materialization(
            key,
            result.table,
            build,
            new=id(build) in new_builds,
            pointer=pointer,
            source=source,
            more=shown.get(build.day, _NOTHING),
        )
        for build in current
    ]
    for stop in result.early_stops():
        context.log.info(str(stop))
    # Without one, Dagster ends a backfill of a day that the table does not have as failed, with all
    # days that read the day.
    materializations += [
        AssetMaterialization(
            key,
            partition=day.isoformat(),
            metadata={"dagster/partition_row_count": 0, "outcome": BEFORE},
            tags={"dagster/data_version": BEFORE},
        )
        for day in before
    ]
    if materialize:
        yield from materialization_events(context, materializations)
    run_id = context.run.run_id
    runs = {build.day.isoformat(): run_id for build in accepted}
    targets = target_materializations(instance, key, runs)
    builds = sorted([*accepted, *result.failed()], key=lambda build: build.day)
    checks = [check for build in builds for check in _evaluations(key, build, targets)]
    if audited and live:
        checks += evaluations(instance, key, outdated, audited)
    elif live:
        failed = {build.day: f"failed: {build.message}" for build in result.failed()}
        checks += evaluations(instance, key, failed, {build.day: run_id for build in accepted})
    yield from check_events(context, checks)
    for name, values in _samples(result.built).items():
        context.log.warning(f"{result.table.name}: {name}: {'; '.join(values)}")
    yield from output_events(context)


def materialization(
    key: AssetKey,
    table: Table,
    build: Build,
    *,
    new: bool,
    pointer: int | None,
    source: AssetKey | None = None,
    more: Mapping[str, Any] = _NOTHING,
) -> AssetMaterialization:
    """The materialization of one day: figures as metadata, versions as tags.

    `pointer` is the newest event at the time when the inputs were read. Dagster calls the day
    unsynced if an input has a later event with another data version. `more` is further metadata.
    """
    outcome = "closed" if build.is_closed else build.outcome if new else "up to date"
    metadata: dict[str, Any] = {
        "dagster/partition_row_count": build.rows,
        "outcome": outcome,
        "fingerprint": build.fingerprint,
        "delta version": build.delta_version,
        "seconds": build.seconds if new else 0.0,
        "built by run": MetadataValue.dagster_run(build.run),
        **{name.replace("_", " "): count for name, count in build.measures.items() if count},
        **_figures(build),
        **more,
        **{f"nulls in {column}": count for column, count in build.nulls.items() if count},
        **{
            f"{name} (first {_SAMPLES})": MetadataValue.json(list(values))
            for name, values in build.samples.items()
            if values
        },
    }
    metadata |= {
        name: text for name in ("plan", "who", "reason", "accept") if (text := getattr(build, name))
    }
    if build.git_commit:
        metadata["git commit"] = build.git_commit
    if build.dropped:
        metadata["rows of days around, dropped"] = MetadataValue.json(dict(build.dropped))
    if build.plan:
        metadata["runs of the plan"] = MetadataValue.url(runs_of(build.plan))
    tags = {
        "dagster/code_version": build.code_version,
        "dagster/data_version": (table.without_days and table.fingerprint_by) or build.fingerprint,
        **_input_tags(key, table, build, pointer, source),
    }
    return AssetMaterialization(
        key,
        # What brought the rows into live, if no step did.
        description={
            "publish": f"Published with plan {build.plan}, which had built it in its shadow.",
            "rollback": f"Put back as it was, by the rollback of plan {build.undone_plan}.",
        }.get(build.act),
        partition=partition_key(build.day),
        metadata=metadata,
        tags=tags,
    )


def _figures(build: Build) -> dict[str, float]:
    """The numbers of each rule. Dagster plots a check's numbers by time, and these by day."""
    return {
        f"{check['rule']}: {name}": value
        for check in build.checks
        for name, value in check["figures"].items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _input_tags(
    key: AssetKey, table: Table, build: Build, pointer: int | None, source: AssetKey | None
) -> dict[str, str]:
    """The data version and the newest event of each input, as Dagster names them.

    The data version is a hash of the fingerprints of the days that were read. A cumulative table
    gets no event for itself, because none is newer than the build. Of a table without days, Dagster
    compares the version itself. It is always the same if rows hold from a day on, because Dagster
    does not know the days.
    """
    # Assets of a shadow have a prefix.
    prefix = key.path[: -len(table.name.split("/"))]
    tags = {}
    for other, _ in table.windows():
        days = build.inputs.get(other.name, {})
        fingerprints = " ".join(days[day] for day in sorted(days))
        version = digest(fingerprints, length=16)
        if other.without_days:
            version = other.fingerprint_by or fingerprints
        asset = "/".join([*prefix, other.name])
        tags[f"dagster/input_data_version/{asset}"] = version
        has_event = other is not table and pointer is not None
        tags[f"dagster/input_event_pointer/{asset}"] = str(pointer) if has_event else "NULL"
    if source:
        delivered = source.to_user_string()
        # The version of a materialization is Dagster's data version and the time.
        version = build.delivered.rpartition("@")[0] or build.delivered
        tags[f"dagster/input_data_version/{delivered}"] = version or "none"
        tags[f"dagster/input_event_pointer/{delivered}"] = str(pointer) if pointer else "NULL"
    return tags


def _evaluations(
    key: AssetKey, build: Build, targets: Mapping[str, Any]
) -> Iterator[AssetCheckEvaluation]:
    """The verdict of each rule on one day; empty for a day whose computation failed."""
    day = build.day.isoformat()
    for check in build.checks:
        is_error = check["severity"] == "error"
        rows = {"rows": MetadataValue.json(check["rows"])} if check["rows"] else {}
        yield AssetCheckEvaluation(
            asset_key=key,
            check_name=check["rule"],
            passed=check["passed"],
            partition=partition_key(build.day),
            severity=AssetCheckSeverity.ERROR if is_error else AssetCheckSeverity.WARN,
            description=check["message"],
            blocking=is_error,
            metadata={**check["figures"], **rows},
            target_materialization_data=targets.get(day) if build.outcome != "failed" else None,
        )


def _samples(builds: Iterable[Build]) -> dict[str, list[str]]:
    """Samples of all days by name, such as unknown fields and rejected lines."""
    merged: dict[str, set[str]] = {}
    for build in builds:
        for name, values in build.samples.items():
            merged.setdefault(name, set()).update(values)
    return {name: sorted(values)[:_SAMPLES] for name, values in merged.items() if values}
