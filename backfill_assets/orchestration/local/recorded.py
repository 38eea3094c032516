"""Dagster's records of days: observed and materialized versions, and results of checks."""

from collections.abc import Sequence
from datetime import date

from dagster import (
    AssetCheckKey,
    AssetKey,
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    EventLogRecord,
)
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from backfill_assets.calendar import NO_DAY

DATA_VERSION_TAG = "dagster/data_version"
_RESULTS = {
    AssetCheckExecutionRecordStatus.SUCCEEDED: True,
    AssetCheckExecutionRecordStatus.FAILED: False,
}


def observed_versions(instance: DagsterInstance, key: AssetKey) -> dict[str, str]:
    """The last observed data version of each partition of an asset."""
    found = instance.event_log_storage.get_latest_tags_by_partition(
        key, DagsterEventType.ASSET_OBSERVATION, [DATA_VERSION_TAG]
    )
    return {partition: tags[DATA_VERSION_TAG] for partition, tags in found.items()}


def materialized(instance: DagsterInstance, asset: str, days: Sequence[date]) -> dict[date, str]:
    """The version of the last materialization of each day that has one, as over GraphQL."""
    records = last_materializations(instance, AssetKey(asset.split("/")), set(map(str, days)))
    return {
        date.fromisoformat(day): f"{_data_version(record)}@{int(record.timestamp * 1000)}"
        for day, record in records.items()
    }


def _data_version(record: EventLogRecord) -> str:
    event = record.asset_materialization
    return event.tags.get(DATA_VERSION_TAG, "") if event and event.tags else ""


def last_materializations(
    instance: DagsterInstance, key: AssetKey, partitions: set[str]
) -> dict[str, EventLogRecord]:
    """The last materialization of each of these partitions of an asset that has one.

    That of an asset without partitions is the one of `NO_DAY`.
    """
    if not partitions:
        return {}
    storage_ids = instance.event_log_storage.get_latest_storage_id_by_partition(
        key, DagsterEventType.ASSET_MATERIALIZATION, partitions
    )
    whole = str(NO_DAY)
    if whole in partitions and (newest := instance.fetch_materializations(key, limit=1).records):
        storage_ids = {whole: newest[0].storage_id}
    if not storage_ids:  # an empty filter would select all
        return {}
    records = instance.fetch_materializations(
        AssetRecordsFilter(key, storage_ids=list(storage_ids.values())), limit=len(partitions)
    ).records
    return {str(record.partition_key or whole): record for record in records}


def last_results(
    instance: DagsterInstance, key: AssetKey, check: str, *, whole: bool = False
) -> dict[str, bool | None]:
    """The last result of a check for each partition, the newest last: True if it passed.

    None if the last run that plans to evaluate the check has not done so. An asset without
    partitions (`whole`) has one result, of `NO_DAY`.
    """
    found = instance.event_log_storage.get_asset_check_partition_info([AssetCheckKey(key, check)])
    return {
        info.partition_key or str(NO_DAY): _RESULTS.get(info.latest_execution_status)
        for info in sorted(found, key=lambda info: info.latest_check_event_storage_id)
        if info.partition_key or whole
    }
