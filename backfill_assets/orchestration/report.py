"""What a step did, as Dagster events: materializations and check evaluations per day.

A `MaterializeResult` for the range would also materialize failed days, and would store checks
without their partition. This is the only file that uses Dagster's private API for events.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckSeverity,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    DagsterEventType,
    MetadataValue,
    Output,
)
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.events import (
    DagsterEvent,
    DagsterEventBatchMetadata,
    StepMaterializationData,
    StepOutputData,
    generate_event_batch_id,
)
from dagster._core.execution.plan.objects import TypeCheckData
from dagster._core.execution.plan.outputs import StepOutputHandle

from backfill_assets.dagster_client.tags import runs_of
from backfill_assets.lake.ledger import Build
from backfill_assets.step.request import StepResult
from backfill_assets.tables.declaration import Table

Shown = Mapping[date, Mapping[str, Any]]
NOTHING: Mapping[Any, Any] = MappingProxyType({})
# An asset's Events page shows one materialization of each millisecond, the last.
MILLISECOND = 0.001


def events_of(
    context: AssetExecutionContext,
    result: StepResult,
    key: AssetKey,
    shown: Shown = NOTHING,
    *,
    materialize: bool = True,
) -> Iterator[Any]:
    """Every event of a step of the asset `key`, in Dagster's order: materializations (where the run
    has the asset), check evaluations, outputs. `shown`: by day, further metadata of its
    materialization.
    """
    step = context.get_step_execution_context()
    accepted = result.accepted()
    failed = result.failed()
    new = {id(build) for build in result.built}
    pointer = context.instance.event_log_storage.get_maximum_record_id()
    also = [
        (b, {"new": id(b) in new, "pointer": pointer, "more": shown.get(b.day, NOTHING)})
        for b in accepted
    ]
    materialized = [materialization(key, result.table, build, **given) for build, given in also]
    for stop in result.early_stops():
        context.log.info(str(stop))
    if materialize:
        events = map(StepMaterializationData, materialized)
        yield from _logged(step, DagsterEventType.ASSET_MATERIALIZATION, events, MILLISECOND)
    targets = _target_materializations(context, key, [build.day.isoformat() for build in accepted])
    evaluated = [
        e
        for build in sorted([*accepted, *failed], key=lambda b: b.day)
        for e in evaluations(key, build, targets)
    ]
    yield from _logged(step, DagsterEventType.ASSET_CHECK_EVALUATION, evaluated)
    for name, values in _samples(result.built).items():
        context.log.warning(f"{result.table.name}: {name}: {'; '.join(values)}")
    yield from _outputs(step)


def _outputs(step: Any) -> Iterator[Any]:
    for output in step.step.step_outputs:
        if output.properties.asset_check_key:
            yield Output(None, output_name=output.name)
        # an Output would make Dagster materialize every day of the range, those that failed too
        else:
            # Without a type check, the page of the run would show no log.
            checked = TypeCheckData(success=True, label=output.name)
            yield DagsterEvent.step_output_event(
                step, StepOutputData(StepOutputHandle(step.step.key, output.name), checked)
            )


def materialization(
    key: AssetKey,
    table: Table,
    build: Build,
    *,
    new: bool,
    pointer: int | None,
    more: Mapping[str, Any] = NOTHING,
) -> AssetMaterialization:
    """The materialization of one day: figures as metadata; code, data and input versions as tags.

    `pointer` is the newest event that there was when the inputs had been read: Dagster calls the
    day unsynced ("has a new data version") once an input has an event after it with another data
    version. `more`: what else is shown of the day.
    """
    outcome = build.outcome if new else "up to date"
    metadata: dict[str, Any] = {
        "dagster/partition_row_count": build.rows,
        "outcome": outcome,
        "fingerprint": build.fingerprint,
        "delta version": build.delta_version,
        "seconds": build.seconds if new else 0.0,
        "built by run": MetadataValue.dagster_run(build.run),
        **{name.replace("_", " "): count for name, count in build.measures.items() if count},
        **more,
        **{f"nulls in {column}": count for column, count in build.nulls.items() if count},
        **{
            f"{name} (first 20)": MetadataValue.json(list(values))
            for name, values in build.samples.items()
            if values
        },
    }
    metadata |= {
        name: text for name in ("plan", "who", "reason", "accept") if (text := getattr(build, name))
    }
    metadata |= {"git commit": build.git_commit} if build.git_commit else {}
    if build.plan:
        metadata["runs of the plan"] = MetadataValue.url(runs_of(build.plan))
    tags = {
        "dagster/code_version": build.code_version,
        "dagster/data_version": build.fingerprint,
        **_input_tags(table, build.inputs, pointer, [*key.path[: -len(table.name.split("/"))]]),
    }
    return AssetMaterialization(key, partition=build.day.isoformat(), metadata=metadata, tags=tags)


def evaluations(
    key: AssetKey, build: Build, targets: Mapping[str, Any]
) -> Iterator[AssetCheckEvaluation]:
    """The verdict of every rule on one day; none for a day whose computation failed."""
    day = build.day.isoformat()
    for check in build.checks:
        yield AssetCheckEvaluation(
            asset_key=key,
            check_name=check["rule"],
            passed=check["passed"],
            partition=day,
            severity=(
                AssetCheckSeverity.ERROR
                if check["severity"] == "error"
                else AssetCheckSeverity.WARN
            ),
            description=check["message"],
            blocking=check["severity"] == "error",
            metadata={
                **check["figures"],
                **({"rows": MetadataValue.json(check["rows"])} if check["rows"] else {}),
            },
            target_materialization_data=targets.get(day) if build.outcome != "failed" else None,
        )


def _logged(
    step: Any, kind: DagsterEventType, payloads: Iterable[Any], apart_s: float = 0
) -> Iterator[DagsterEvent]:
    """Events of one kind as one batch, which the storage may write in one transaction. They are
    `apart_s` seconds apart.
    """
    batch = generate_event_batch_id()
    every = list(payloads)
    for number, data in enumerate(every, start=1):
        time.sleep(apart_s)
        metadata = DagsterEventBatchMetadata(batch, number == len(every))
        yield DagsterEvent.from_step(kind, step, event_specific_data=data, batch_metadata=metadata)


def _target_materializations(
    context: AssetExecutionContext, key: AssetKey, days: list[str]
) -> dict[str, Any]:
    """By day, the materialization that its checks are about."""
    if not days:
        return {}
    storage_ids = context.instance.event_log_storage.get_latest_storage_id_by_partition(
        key, DagsterEventType.ASSET_MATERIALIZATION, set(days)
    )
    run = context.run.run_id
    now = time.time()
    return {
        day: AssetCheckEvaluationTargetMaterializationData(
            storage_id=storage_id, run_id=run, timestamp=now
        )
        for day, storage_id in storage_ids.items()
    }


def _samples(builds: Iterable[Build]) -> dict[str, list[str]]:
    """The samples of all days together, by name: unknown fields, rejected lines, rows outside the
    horizon.
    """
    merged: dict[str, set[str]] = {}
    for build in builds:
        for name, values in build.samples.items():
            merged.setdefault(name, set()).update(values)
    return {name: sorted(values)[:20] for name, values in merged.items() if values}


def _input_tags(
    table: Table,
    inputs: Mapping[str, Mapping[str, str]],
    pointer: int | None,
    prefix: Sequence[str],
) -> dict[str, str]:
    """For each table that is read, a hash of the fingerprints of its days that were read, and the
    newest event by then.

    A table that reads itself is reported with the days that it was computed from: of itself, no
    event is newer.
    """
    tags = {}
    for other, _ in table.windows():
        days = inputs.get(other.name, {})
        fingerprints = " ".join(days[day] for day in sorted(days))
        asset = "/".join([*prefix, other.name])
        tags[f"dagster/input_data_version/{asset}"] = hashlib.sha256(
            fingerprints.encode()
        ).hexdigest()[:16]
        tags[f"dagster/input_event_pointer/{asset}"] = (
            "NULL" if other is table or pointer is None else str(pointer)
        )
    return tags
