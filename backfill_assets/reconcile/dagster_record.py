"""Dagster's own record of materialized days, read per table.

A run of the job `backfill_report_days` brings it up to date. Dagster's SQL storages cannot wipe
single partitions, so a day that is wrongly shown as materialized stays so until it is built.

Dagster may show an up-to-date partition as failed or stale. It shows a partition as failed if a run
failed and then the delivery or code was put back, or if the partition was blocked and its rows
still match its inputs. It shows a partition as stale if a day of an input got other rows on which
the partition does not depend, because Dagster compares whole days.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from backfill_assets.calendar import NO_DAY, Partition, as_day, between
from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.answers import payload
from backfill_assets.dagster_client.client import Dagster, asset_key
from backfill_assets.dagster_client.names import SHADOW, own
from backfill_assets.dagster_client.requests import REPORT, reload, shadow_locations
from backfill_assets.dagster_client.tags import BEFORE
from backfill_assets.grouping import grouped
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.tables.graph import Graph

_DATA_VERSION = "dagster/data_version"
# The number of days in one request, which is then answered well within its timeout.
STALE_AT_ONCE = 200


@dataclass(frozen=True)
class DagsterRecord:
    """Dagster's record of a table, from its `first` to its `last` partition.

    `versions` are the data versions of materialized days ("": none). `failed` days had a failed run
    after their last materialization. `at` is the time of the last materialization in milliseconds.
    """

    first: date
    last: date
    versions: Mapping[date, str] = field(default_factory=dict)
    failed: Collection[date] = ()
    stale: Collection[date] = ()
    at: Mapping[date, int] = field(default_factory=dict, compare=False)

    def may_have(self, day: date) -> bool:
        return self.first <= day <= self.last


def read_materialized(
    dagster: Dagster, table: str, days: Collection[date] | None = None
) -> DagsterRecord | None:
    """Return Dagster's record of a table, for all or some days, without the stale days.

    None if the code location lacks the table, or the table has no partitions yet. `read_stale`
    finds the stale days.
    """
    key = asset_key(table)
    wanted = None if days is None else sorted(map(str, days))
    nodes = dagster.ask(documents.MATERIALIZED, {"key": key, "days": wanted})["assetNodes"]
    if not nodes or (nodes[0]["isPartitioned"] and not nodes[0]["partitionKeys"]):
        return None
    node = nodes[0]
    partitions = sorted(map(as_day, node["partitionKeys"])) or [NO_DAY]
    newest = node["latestMaterializationByPartition" if node["isPartitioned"] else "newest"]
    events = {
        as_day(event["partition"] or str(NO_DAY)): event
        for event in newest
        # A step reports days that the table does not have.
        if event and _version(event["tags"]) != BEFORE
    }
    failed = {
        day
        for span in node["assetPartitionStatuses"].get("ranges", ())
        if span["status"] == "FAILED"
        for day in between(as_day(span["startKey"]), as_day(span["endKey"]))
    }
    return DagsterRecord(
        partitions[0],
        partitions[-1],
        {day: _version(event["tags"]) for day, event in events.items()},
        failed,
        at={day: int(event["timestamp"]) for day, event in events.items()},
    )


def _version(tags: Iterable[Mapping[str, str]]) -> str:
    return next((tag["value"] for tag in tags if tag["key"] == _DATA_VERSION), "")


def read_stale(dagster: Dagster, table: str, days: Sequence[date]) -> set[date]:
    """Return the days that Dagster shows as stale ("unsynced"). Each takes 10 to 25 ms."""
    stale = set()
    for start in range(0, len(days), STALE_AT_ONCE):
        batch = days[start : start + STALE_AT_ONCE]
        variables = {"key": asset_key(table), "days": [str(day) for day in batch]}
        for node in dagster.ask(documents.STALE, variables)["assetNodes"]:
            statuses = zip(batch, node["staleStatusByPartition"], strict=True)
            stale |= {day for day, status in statuses if status == "STALE"}
    return stale


def running_runs(dagster: Dagster) -> frozenset[str]:
    """Return the ids of the runs that may be building partitions now."""
    return _ids_of_runs(dagster, statuses=["STARTING", "STARTED", "CANCELING"])


def reporting_runs(dagster: Dagster) -> frozenset[str]:
    """Return the ids of the runs that report days, and have not ended."""
    statuses = ["QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING"]
    return _ids_of_runs(dagster, pipelineName=own(REPORT), statuses=statuses)


def _ids_of_runs(dagster: Dagster, **wanted: Any) -> frozenset[str]:
    answer = payload(dagster.ask(documents.RUN_IDS, {"filter": wanted})["runsOrError"])
    return frozenset(run["runId"] for run in answer["results"])


def wipe_shadows(dagster: Dagster, root: str, tables: Iterable[str]) -> None:
    """Wipe and unload the assets of shadows, if the lake at `root` has no shadow.

    Otherwise days of ended plans would stay visible. Dagster wipes only whole assets, so nothing is
    wiped while another plan has a shadow. Raises as `reload`.
    """
    if not ledgers_of_shadows(root):
        assets = [{"assetKey": asset_key(f"{SHADOW}/{name}")} for name in tables]
        payload(dagster.ask(documents.WIPE, {"assets": assets})["wipeAssets"])
        for location in sorted(shadow_locations(dagster)):
            reload(dagster, location)


NOT_REPORTED = (
    "Dagster may show days as failed or stale that are up to date, for they could not be reported"
    " to it: {} `backfill reconcile --repair` does it later."
)


def shown_wrong(
    up_to_date: Collection[Partition], graph: Graph, dagster: Dagster
) -> set[Partition]:
    """The up-to-date partitions that Dagster shows as failed or stale."""
    needed = {other for partition in up_to_date for other in graph.needs(partition)}
    records = with_stale(
        dagster,
        {
            name: read_materialized(dagster, name, days)
            for name, days in graph.by_table({*up_to_date, *needed}).items()
        },
        graph,
        up_to_date,
    )
    return {
        (name, day)
        for name, day in up_to_date
        if (record := records[name]) and (day in record.failed or day in record.stale)
    }


def with_stale(
    dagster: Dagster,
    records: Mapping[str, DagsterRecord | None],
    graph: Graph,
    partitions: Iterable[Partition] | None = None,
) -> dict[str, DagsterRecord | None]:
    """Return the same records with the stale days, among all or some partitions."""
    at = {
        (name, day): time
        for name, record in records.items()
        if record
        for day, time in record.at.items()
    }
    asked = sorted(at if partitions is None else partitions)
    days = grouped(perhaps_stale(graph, at, asked))
    stale = {name: read_stale(dagster, name, table_days) for name, table_days in days.items()}
    return {
        name: replace(record, stale=stale.get(name, ())) if record else None
        for name, record in records.items()
    }


def perhaps_stale(
    graph: Graph, at: Mapping[Partition, int], partitions: Iterable[Partition]
) -> list[Partition]:
    """Return the partitions with an input that was materialized after them.

    Only these can be stale, but not all are.
    """
    return [
        partition
        for partition in partitions
        if partition in at
        and any(at.get(needed, 0) > at[partition] for needed in graph.needs(partition))
    ]
