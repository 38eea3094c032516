"""Dagster's own record of materialized days: read per table, reported per day.

Days are reported to the webserver's REST endpoint for external assets. The GraphQL mutation
`reportRunlessAssetEvents` takes no data version, which Dagster needs to identify the rows of a day.
Dagster's SQL storages cannot wipe single partitions, so a day that is wrongly shown as materialized
stays so until it is built.

Dagster may show an up-to-date partition as failed or stale. It shows a partition as failed if a run
failed and then the delivery or code was put back, or if the partition was blocked and its rows
still match its inputs. It shows a partition as stale if a day of an input got other rows on which
the partition does not depend, because Dagster compares whole days; or if the partition was reported
without a run and an input was materialized since.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from backfill_assets.calendar import Partition, as_day, between
from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.answers import payload
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.names import SHADOW
from backfill_assets.dagster_client.requests import reload, shadow_locations
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.grouping import grouped
from backfill_assets.lake.history import Latest
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build
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
    key = {"path": table.split("/")}
    wanted = None if days is None else sorted(map(str, days))
    nodes = dagster.ask(documents.MATERIALIZED, {"key": key, "days": wanted})["assetNodes"]
    if not nodes or not nodes[0]["partitionKeys"]:
        return None
    node = nodes[0]
    partitions = sorted(map(as_day, node["partitionKeys"]))
    events = {
        as_day(event["partition"]): event
        for event in node["latestMaterializationByPartition"]
        if event
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
        variables = {"key": {"path": table.split("/")}, "days": [str(day) for day in batch]}
        for node in dagster.ask(documents.STALE, variables)["assetNodes"]:
            statuses = zip(batch, node["staleStatusByPartition"], strict=True)
            stale |= {day for day, status in statuses if status == "STALE"}
    return stale


def running_runs(dagster: Dagster) -> frozenset[str]:
    """Return the ids of the runs that may be building partitions now."""
    answer = payload(dagster.ask(documents.RUNNING)["runsOrError"])
    return frozenset(run["runId"] for run in answer["results"])


def report_builds(dagster: Dagster, builds: Iterable[Build]) -> int:
    """Report builds to Dagster as materializations, and return their number.

    Raises ServiceUnavailable if the webserver does not get a build, and UsageError if it refuses
    one. Earlier builds stay reported.
    """
    count = 0
    for count, build in enumerate(builds, start=1):
        path = f"/report_asset_materialization/{build.table}"
        try:
            answer = dagster.post(path, external_event(build))
        except ServiceUnavailable as error:
            raise ServiceUnavailable(
                error.what,
                unchanged=f"{count - 1} day(s) were reported, and nothing else was changed.",
                next_step=error.next_step,
            ) from None
        if answer.is_error:
            raise UsageError(
                f"Dagster does not take {build.table} {build.day} (HTTP {answer.status_code}:"
                f" {answer.text[:300]}).",
                unchanged=f"{count - 1} day(s) were reported.",
                next_step="Is it read-only, or of another version? See `backfill doctor`.",
            )
    return count


def not_shown(dagster: Dagster, builds: Mapping[Partition, Build]) -> list[Build]:
    """Return the accepted builds whose rows Dagster does not show, in their order."""
    days = grouped(sorted(builds))
    records = {name: read_materialized(dagster, name, of_table) for name, of_table in days.items()}
    return [
        build
        for (name, day), build in builds.items()
        if (record := records[name])
        and record.may_have(day)
        and record.versions.get(day) != build.fingerprint
    ]


def external_event(build: Build) -> dict[str, Any]:
    """Return a build as an external event, with the metadata that its own run would report."""
    request = {name: text for name in ("plan", "who", "reason") if (text := getattr(build, name))}
    return {
        "partition": build.day.isoformat(),
        "data_version": build.fingerprint,
        "description": _origin(build),
        "metadata": {
            "dagster/partition_row_count": build.rows,
            "outcome": build.outcome,
            "fingerprint": build.fingerprint,
            "delta version": build.delta_version,
            "code version": build.code_version,
            "built by run": build.run,
            "built at": build.at.isoformat(),
            **request,
        },
    }


def _origin(build: Build) -> str:
    if build.act == "publish":
        return f"Published with plan {build.plan}, which had built it in its shadow."
    if build.act == "rollback":
        return f"Put back as it was, by the rollback of plan {build.undone_plan}."
    return (
        "Reported from the ledger by `backfill reconcile --repair`, or by a plan that had no run"
        " for it."
    )


def wipe_shadows(dagster: Dagster, root: str, tables: Iterable[str]) -> None:
    """Wipe and unload the assets of shadows, if the lake at `root` has no shadow.

    Otherwise days of ended plans would stay visible. Dagster wipes only whole assets, so nothing is
    wiped while another plan has a shadow. Raises as `reload`.
    """
    if not ledgers_of_shadows(root):
        assets = [{"assetKey": {"path": [SHADOW, *name.split("/")]}} for name in tables]
        payload(dagster.ask(documents.WIPE, {"assets": assets})["wipeAssets"])
        for location in sorted(set(shadow_locations(dagster).values())):
            reload(dagster, location)


NOT_REPORTED = (
    "Dagster may show days as failed or stale that are up to date, for they could not be reported"
    " to it: {} `backfill reconcile --repair` does it later."
)


def report_shown_wrong(
    up_to_date: Collection[Partition], graph: Graph, lake: Lake, dagster: Dagster
) -> int:
    """Report up-to-date partitions that Dagster shows as failed or stale; return their number.

    Their accepted builds are reported, inputs first. A report can make the readers of the day
    stale, so each table is checked after its inputs were reported. Raises as `report_builds`.
    """
    needed = {other for partition in up_to_date for other in graph.needs(partition)}
    days = graph.by_table({*up_to_date, *needed})
    records = {
        name: read_materialized(dagster, name, table_days) for name, table_days in days.items()
    }
    at = _materialized_at(records)
    later = max(at.values(), default=0) + 1
    count = 0
    for name, table_days in graph.by_table(up_to_date).items():
        if (record := records[name]) is None:
            continue
        left = {(name, day) for day in table_days}
        wrong = {(name, day) for day in table_days if day in record.failed}
        asked = perhaps_stale(graph, at, sorted(left))
        while wrong or asked:
            stale = read_stale(dagster, name, [day for _, day in asked])
            wrong |= {(name, day) for day in stale}
            count += _report_accepted(sorted(wrong), lake, dagster)
            at.update(dict.fromkeys(wrong, later))
            left -= wrong
            # For a table that reads its own earlier days.
            asked = [partition for partition in sorted(left) if wrong & {*graph.needs(partition)}]
            wrong = set()
    return count


def _report_accepted(partitions: Sequence[Partition], lake: Lake, dagster: Dagster) -> int:
    """Report the accepted builds of these partitions, without those that an audit refused."""
    builds = lake.latest(grouped(partitions), BUILD_SCHEMA.names) if partitions else Latest()
    right = builds.accepted.keys() - builds.refused()
    return report_builds(dagster, [builds.accepted[p] for p in partitions if p in right])


def with_stale(
    dagster: Dagster,
    records: Mapping[str, DagsterRecord | None],
    graph: Graph,
) -> dict[str, DagsterRecord | None]:
    """Return the same records with the stale days."""
    at = _materialized_at(records)
    days = grouped(sorted(perhaps_stale(graph, at, at)))
    stale = {name: read_stale(dagster, name, table_days) for name, table_days in days.items()}
    return {
        name: replace(record, stale=stale.get(name, ())) if record else None
        for name, record in records.items()
    }


def _materialized_at(records: Mapping[str, DagsterRecord | None]) -> dict[Partition, int]:
    """The time of the last materialization of each partition."""
    return {
        (name, day): time
        for name, record in records.items()
        if record
        for day, time in record.at.items()
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
