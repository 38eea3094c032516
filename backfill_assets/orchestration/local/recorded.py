"""What Dagster has recorded of days: observed data versions, and days that fail a check."""

from dagster import AssetCheckKey, AssetKey, DagsterEventType, DagsterInstance
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

DATA_VERSION_TAG = "dagster/data_version"


def observed_versions(instance: DagsterInstance, key: AssetKey) -> dict[str, str]:
    """The last observed data version of each partition of an asset."""
    found = instance.event_log_storage.get_latest_tags_by_partition(
        key, DagsterEventType.ASSET_OBSERVATION, [DATA_VERSION_TAG]
    )
    return {partition: tags[DATA_VERSION_TAG] for partition, tags in found.items()}


def failing_partitions(instance: DagsterInstance, key: AssetKey, check: str) -> set[str]:
    """The partitions whose last evaluation of a check failed."""
    found = instance.event_log_storage.get_asset_check_partition_info([AssetCheckKey(key, check)])
    return {
        info.partition_key
        for info in found
        if info.partition_key
        and info.latest_execution_status == AssetCheckExecutionRecordStatus.FAILED
    }
