"""What is launched on the webserver in miniature: read from a request to launch, and as Dagster's feed has it."""

from dataclasses import dataclass
from typing import Any

from backfill_assets.calendar import Partition, as_day, between
from backfill_assets.dagster_client.launch_params import ASSET_JOB
from backfill_assets.dagster_client.launched import DAY, FIRST_DAY, LAST_DAY
from backfill_assets.dagster_client.loaded_table import shadow_asset, step_of

REPOSITORY: dict[str, Any] = {"name": "__repository__", "location": {"name": "backfill_assets"}}


@dataclass
class Launch:
    """A backfill and the one run it has, or a run alone."""

    id: str
    is_run: bool
    partitions: list[Partition]
    tags: dict[str, str]
    options: dict[str, Any]
    in_shadow: bool = False
    polls: int = 0
    status: str = "REQUESTED"
    run: str = "SUCCESS"

    @property
    def number(self) -> int:
        return int(self.id[1:])

    @property
    def steps(self) -> dict[str, str]:
        """The key of the step that builds each table."""
        asset = shadow_asset if self.in_shadow else str
        return {table: step_of(asset(table)) for table, _ in self.partitions}

    @property
    def run_id(self) -> str:
        return self.id if self.is_run else f"run-{self.id}"


def by_asset(params: dict[str, Any]) -> list[Partition]:
    """The partitions that a backfill is launched for."""
    return [
        ("/".join(asset["assetKey"]["path"]), day)
        for asset in params["partitionsByAssets"]
        for days in asset["partitions"]["ranges"]
        for day in between(as_day(days["start"]), as_day(days["end"]))
    ]


def by_run(params: dict[str, Any]) -> list[Partition]:
    """The partitions that a run is launched for."""
    assert params["selector"]["repositoryName"] == REPOSITORY["name"]
    tagged = {tag["key"]: tag["value"] for tag in params["executionMetadata"]["tags"]}
    first, last = tagged.get(FIRST_DAY) or tagged[DAY], tagged.get(LAST_DAY) or tagged[DAY]
    tables = ["/".join(key["path"]) for key in params["selector"]["assetSelection"]]
    return [(table, day) for table in tables for day in between(as_day(first), as_day(last))]


def entry(launch: Launch) -> dict[str, Any]:
    """A launch in Dagster's feed."""
    tagged = [{"key": key, "value": value} for key, value in launch.tags.items()]
    entry = {"id": launch.id, "tags": tagged, "creationTime": 0.0}
    if launch.is_run:
        of_run = {"runStatus": launch.status, "jobName": ASSET_JOB, "assetSelection": []}
        return entry | of_run | {"__typename": "Run"}
    return entry | {"status": launch.status, "title": "", "numPartitions": 1, "__typename": "PartitionBackfill"}
