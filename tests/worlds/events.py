"""Events of Dagster as a run logs them, and the events in a storage."""

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    AssetMaterialization,
    EventLogEntry,
)
from dagster._core.events import DagsterEvent, DagsterEventType, StepMaterializationData
from dagster._core.storage.event_log import EventLogStorage

RUN = "6f0a2f5c-0000-4000-8000-000000000001"
KEY = AssetKey(["staging", "outages"])


def entry(day: str) -> EventLogEntry:
    made = StepMaterializationData(
        AssetMaterialization(KEY, partition=day, tags={"dagster/data_version": f"of {day}"})
    )
    event = DagsterEvent(
        DagsterEventType.ASSET_MATERIALIZATION.value, "job", event_specific_data=made
    )
    return EventLogEntry(None, 10, "", RUN, 1_570_000_000.0, dagster_event=event)


def check_of(day: str) -> EventLogEntry:
    """The verdict of a check on a day."""
    evaluation = AssetCheckEvaluation(KEY, "is_whole", passed=True, metadata={}, partition=day)
    event = DagsterEvent(
        DagsterEventType.ASSET_CHECK_EVALUATION.value, "job", event_specific_data=evaluation
    )
    return EventLogEntry(None, 10, "", RUN, 1_570_000_001.0, dagster_event=event)


DAYS = [f"2019-09-{n:02d}" for n in range(1, 31)]


def what_is_stored(storage: EventLogStorage) -> tuple:
    events = storage.get_logs_for_run(RUN)
    kind = DagsterEventType.ASSET_MATERIALIZATION
    return (
        [e.dagster_event.partition for e in events if e.dagster_event],
        storage.get_latest_tags_by_partition(KEY, kind, ["dagster/data_version"]),
        sorted(storage.get_materialized_partitions(KEY)),
        {
            info.partition_key: info.latest_execution_status
            for info in storage.get_asset_check_partition_info([AssetCheckKey(KEY, "is_whole")])
        },
    )
