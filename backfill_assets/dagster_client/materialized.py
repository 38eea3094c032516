"""The materializations of an asset, as versions of the deliveries of a source."""

import re
from collections.abc import Mapping, Sequence
from datetime import date

from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import NotDelivered, SourceError

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_DAYS_STAY = "Its days stay as they were built."
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
            unchanged=_DAYS_STAY,
            next_step="Correct the name in DagsterAsset, or load the code that has it.",
        )
    if not _DAY.fullmatch("".join(nodes[0]["partitionKeys"][:1])):
        raise SourceError(
            f"the partitions of the asset {asset} are not days.",
            unchanged=_DAYS_STAY,
            next_step="Read an asset with a DailyPartitionsDefinition.",
        )
    events = filter(None, nodes[0]["latestMaterializationByPartition"])
    return {
        date.fromisoformat(event["partition"]): version_of(
            {tag["key"]: tag["value"] for tag in event["tags"]}, int(event["timestamp"])
        )
        for event in events
    }
