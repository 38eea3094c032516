"""The materializations of an asset, as versions of the deliveries of a source."""

from collections.abc import Mapping, Sequence
from datetime import date

from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import NotDelivered, SourceError

_DATA_VERSION = "dagster/data_version"
_IS_USERS = "dagster/data_version_is_user_provided"


def version_of(tags: Mapping[str, str], milliseconds: int) -> str:
    """The version of a materialization: its data version, if the asset itself gave it one.

    Otherwise its time is part of the version, since Dagster's data version does not depend on rows.
    """
    version = tags.get(_DATA_VERSION, "")
    return version if _IS_USERS in tags else f"{version}@{milliseconds}"


def materialized(dagster: Dagster, asset: str, days: Sequence[date]) -> dict[date, str]:
    """The version of the last materialization of each day that has one.

    Raises SourceError for an asset whose partitions are not days, NotDelivered if no code location
    has the asset, and ServiceUnavailable if the webserver does not answer.
    """
    key = {"path": asset.split("/")}
    variables = {"key": key, "days": list(map(str, days))}
    nodes = dagster.ask(documents.MATERIALIZED, variables)["assetNodes"]
    # Dagster has an empty node for a key that only we name.
    if not any(node["isMaterializable"] or node["partitionKeys"] for node in nodes):
        raise NotDelivered(
            f"no code location of Dagster has the asset {asset}.",
            unchanged="Its days stay as they were built.",
            next_step="Correct the name in DagsterAsset, or load the code that has it.",
        )
    _refuse_other_partitions(asset, nodes[0]["partitionKeys"])
    events = filter(None, nodes[0]["latestMaterializationByPartition"])
    return {
        date.fromisoformat(event["partition"]): version_of(
            {tag["key"]: tag["value"] for tag in event["tags"]}, int(event["timestamp"])
        )
        for event in events
    }


def _refuse_other_partitions(asset: str, partitions: Sequence[str]) -> None:
    """Raise SourceError unless the partitions of an asset are days."""
    try:
        is_by_day = [str(date.fromisoformat(key)) for key in partitions[:1]] == [*partitions[:1]]
    except ValueError:
        is_by_day = False
    if not (partitions and is_by_day):
        found = f"partitions as {partitions[0]}" if partitions else "no partitions"
        raise SourceError(
            f"the asset {asset} has {found}, and a source needs days.",
            unchanged="Its days stay as they were built.",
            next_step="Give it a DailyPartitionsDefinition.",
        )
