"""Dagster's records of days: observed data versions, and the last result of a check."""

from dagster import AssetCheckKey, AssetKey, DagsterEventType, DagsterInstance
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
