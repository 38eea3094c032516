"""Step events that Dagster's public API cannot yield.

A `MaterializeResult` of a range of days would also materialize the days that failed, and would
record checks without their partition. So these functions make the events of each day.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    OpExecutionContext,
    Output,
)
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.events import (
    AssetObservationData,
    DagsterEventBatchMetadata,
    StepMaterializationData,
    StepOutputData,
    generate_event_batch_id,
)
from dagster._core.execution.plan.objects import TypeCheckData
from dagster._core.execution.plan.outputs import StepOutputHandle

from backfill_assets.calendar import NO_DAY
from backfill_assets.orchestration.local.recorded import last_materializations

# An asset's Events page shows only the last of several materializations within one millisecond.
_MILLISECOND_S = 0.001


def partition_key(day: date) -> str | None:
    """The partition of a day; None for a table without days."""
    return None if day == NO_DAY else str(day)


def materialization_events(
    context: OpExecutionContext | AssetExecutionContext, materializations: Iterable[Any]
) -> Iterator[DagsterEvent]:
    """One batch with an event for each materialization."""
    payloads = map(StepMaterializationData, materializations)
    kind = DagsterEventType.ASSET_MATERIALIZATION
    yield from _batch(context, kind, payloads, pause_s=_MILLISECOND_S)


def observation_events(
    context: OpExecutionContext | AssetExecutionContext, observations: Iterable[Any]
) -> Iterator[DagsterEvent]:
    """One batch with an event for each observation."""
    payloads = map(AssetObservationData, observations)
    yield from _batch(context, DagsterEventType.ASSET_OBSERVATION, payloads)


def check_events(
    context: OpExecutionContext | AssetExecutionContext, evaluations: Iterable[Any]
) -> Iterator[DagsterEvent]:
    """One batch with an event for each check evaluation."""
    yield from _batch(context, DagsterEventType.ASSET_CHECK_EVALUATION, evaluations)


def output_events(context: AssetExecutionContext) -> Iterator[Any]:
    """One event for each output of the step, so that downstream steps start."""
    step = context.get_step_execution_context()
    for output in step.step.step_outputs:
        if output.properties.asset_check_key:
            yield Output(None, output_name=output.name)
            continue
        # An `Output` would make Dagster materialize every day of the range. Without a type check,
        # the page of the run would show no log.
        type_check = TypeCheckData(success=True, label=output.name)
        handle = StepOutputHandle(step.step.key, output.name)
        yield DagsterEvent.step_output_event(step, StepOutputData(handle, type_check))


def target_materializations(
    instance: DagsterInstance, key: AssetKey, runs: Mapping[str, str]
) -> dict[str, AssetCheckEvaluationTargetMaterializationData]:
    """The materialization that each day's checks refer to. `runs` has the run of each day."""
    return {
        day: AssetCheckEvaluationTargetMaterializationData(
            storage_id=record.storage_id, run_id=runs[day], timestamp=record.timestamp
        )
        for day, record in last_materializations(instance, key, set(runs)).items()
    }


def _batch(
    context: OpExecutionContext | AssetExecutionContext,
    kind: DagsterEventType,
    payloads: Iterable[Any],
    pause_s: float = 0,
) -> Iterator[DagsterEvent]:
    """Events of one kind as one batch, which the storage may write in one transaction."""
    step = context.get_step_execution_context()
    batch = generate_event_batch_id()
    payloads = list(payloads)
    for number, payload in enumerate(payloads, start=1):
        time.sleep(pause_s)
        metadata = DagsterEventBatchMetadata(batch, is_end=number == len(payloads))
        yield DagsterEvent.from_step(
            kind, step, event_specific_data=payload, batch_metadata=metadata
        )
