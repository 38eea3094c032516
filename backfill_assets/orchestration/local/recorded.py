"""Dagster's records of days: versions observed or materialized, and the last result of a check."""

from collections.abc import Sequence
from datetime import date

from dagster import (
    AssetCheckKey,
    AssetKey,
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
)
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from backfill_assets.calendar import NO_DAY
from backfill_assets.dagster_client.materialized import version_of

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
    key = AssetKey(asset.split("/"))
    storage_ids = instance.event_log_storage.get_latest_storage_id_by_partition(
        key, DagsterEventType.ASSET_MATERIALIZATION, set(map(str, days))
    )
    records = instance.fetch_materializations(
        AssetRecordsFilter(key, storage_ids=list(storage_ids.values())), limit=len(days)
    ).records
    return {
        date.fromisoformat(str(record.partition_key)): version_of(
            record.asset_materialization.tags or {}, int(record.timestamp * 1000)
        )
        for record in records
        if record.asset_materialization
    }


def last_results(
    instance: DagsterInstance, key: AssetKey, check: str, *, whole: bool = False
) -> dict[str, bool | None]:
    """The last result of a check for each partition, the newest last: True if it passed.

    `whole`: the asset has no partitions.

    None if the last run that plans to evaluate the check has not done so.
    """
    found = instance.event_log_storage.get_asset_check_partition_info([AssetCheckKey(key, check)])
    return {
        info.partition_key or str(NO_DAY): _RESULTS.get(info.latest_execution_status)
        for info in sorted(found, key=lambda info: info.latest_check_event_storage_id)
        if info.partition_key or whole
    }
