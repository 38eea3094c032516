"""Dagster's own record of materialized days: read per table, reported per day.

Days are reported to the webserver's REST endpoint for external assets. The GraphQL mutation
`reportRunlessAssetEvents` takes no data version, and without one Dagster would not know which rows
a day has. Dagster's SQL storages cannot wipe single partitions, so a day that it wrongly calls
materialized stays so until it is built.

Partitions that are up to date may be shown otherwise by Dagster. Shown as failed: a run failed on
them and their delivery or code was put back, or they were blocked and are still what their inputs
make them. Shown as stale: a day of an input has other rows, none of which they are made from,
because Dagster compares whole days; or they were reported without a run, and an input was
materialized since.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import httpx

from backfill_assets.calendar import Partition, as_day, between
from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import SHADOW, Dagster, payload
from backfill_assets.errors import NOTHING_CHANGED, ServiceUnavailable, UsageError
from backfill_assets.lake.history import Latest
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.tables.graph import Graph

_DATA_VERSION = "dagster/data_version"
# Answered well within the time that a request may take.
STALE_AT_ONCE = 200


@dataclass(frozen=True)
class DagsterRecord:
    """Dagster's record of a table: its first and last partition, the data version of each
    materialized one ("": none), those it shows as failed (a run failed on them after they were
    materialized last), those it shows as stale, and when each was materialized last, in
    milliseconds.
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
    dagster: Dagster, table: str, of_days: Collection[date] | None = None
) -> DagsterRecord | None:
    """Dagster's record of `table`, of all its days or of some; without the stale ones, see
    `read_stale`.

    None if the code location does not have it, or it has no partitions yet.
    """
    wanted = None if of_days is None else sorted(map(str, of_days))
    nodes = dagster.ask(
        documents.MATERIALIZED, {"key": {"path": table.split("/")}, "days": wanted}
    )["assetNodes"]
    days = [date.fromisoformat(key) for node in nodes for key in node["partitionKeys"]]
    if not days:
        return None
    events = [
        event for node in nodes for event in node["latestMaterializationByPartition"] if event
    ]
    versions = {date.fromisoformat(event["partition"]): _version(event["tags"]) for event in events}
    at = {date.fromisoformat(event["partition"]): int(event["timestamp"]) for event in events}
    return DagsterRecord(min(days), max(days), versions, _failed(nodes), at=at)


def read_stale(dagster: Dagster, table: str, days: Sequence[date]) -> set[date]:
    """Those of `days` that Dagster shows as stale ("unsynced"). It takes 10 to 25 ms for each."""
    stale = set()
    for start in range(0, len(days), STALE_AT_ONCE):
        asked = days[start : start + STALE_AT_ONCE]
        variables = {"key": {"path": table.split("/")}, "days": [str(day) for day in asked]}
        for node in dagster.ask(documents.STALE, variables)["assetNodes"]:
            stale |= {
                day
                for day, status in zip(asked, node["staleStatusByPartition"], strict=True)
                if status == "STALE"
            }
    return stale


def _failed(nodes: Iterable[Mapping[str, Any]]) -> set[date]:
    ranges = [
        each
        for node in nodes
        for each in node["assetPartitionStatuses"].get("ranges", ())
        if each["status"] == "FAILED"
    ]
    return {
        day for each in ranges for day in between(as_day(each["startKey"]), as_day(each["endKey"]))
    }


def _version(tags: Iterable[Mapping[str, str]]) -> str:
    return next((tag["value"] for tag in tags if tag["key"] == _DATA_VERSION), "")


def running_runs(dagster: Dagster) -> frozenset[str]:
    """The ids of the runs that may be building partitions now."""
    return frozenset(
        run["runId"] for run in payload(dagster.ask(documents.RUNNING)["runsOrError"])["results"]
    )


def report_builds(dagster: Dagster, builds: Iterable[Build]) -> int:
    """Report these builds to Dagster as materializations, with data version and figures; how many
    it took.
    """
    count = 0
    for count, build in enumerate(builds, start=1):
        if not dagster.url:
            raise ServiceUnavailable(
                "No servers run on this home.",
                unchanged=NOTHING_CHANGED,
                next_step="Start them: `backfill up`.",
            )
        try:
            answer = dagster.client.post(
                f"/report_asset_materialization/{build.table}", json=external_event(build)
            )
        except httpx.HTTPError as error:
            raise ServiceUnavailable(
                (
                    f"The Dagster webserver at {dagster.url} was lost ({type(error).__name__}) "
                    f"after {count - 1} day(s) were reported."
                ),
                unchanged="Nothing else was changed.",
                next_step="Start it with `backfill up`, then try again.",
            ) from None
        if answer.is_error:
            raise UsageError(
                f"Dagster does not take {build.table} {build.day} (HTTP {answer.status_code}:"
                f" {answer.text[:300]}). {count - 1} day(s) were reported. Is it read-only, or of"
                " another version? See `backfill doctor`."
            )
    return count


def _by_whom(build: Build) -> str:
    if build.act == "publish":
        return f"Published with plan {build.plan}, which had built it in its shadow."
    if build.act == "rollback":
        return f"Put back as it was, by the rollback of plan {build.undone_plan}."
    return (
        "Reported from the ledger by `backfill reconcile --repair`, or by a plan that had no run"
        " for it."
    )


def external_event(build: Build) -> dict[str, Any]:
    """A build as an external event, with what its own run would have reported."""
    known = {name: text for name in ("plan", "who", "reason") if (text := getattr(build, name))}
    return {
        "partition": build.day.isoformat(),
        "data_version": build.fingerprint,
        "description": _by_whom(build),
        "metadata": {
            "dagster/partition_row_count": build.rows,
            "outcome": build.outcome,
            "fingerprint": build.fingerprint,
            "delta version": build.delta_version,
            "code version": build.code_version,
            "built by run": build.run,
            "built at": build.at.isoformat(),
            **known,
        },
    }


def wipe_shadows(dagster: Dagster, root: str, tables: Iterable[str]) -> None:
    """Wipe Dagster's record of the shadow assets of these tables if the lake at `root` has no
    shadow.

    It would go on showing days of plans that have ended. Dagster wipes an asset whole, and not
    single partitions of it: what a plan has left stays while another one has a shadow. Raises as
    `Dagster.ask`.
    """
    if not ledgers_of_shadows(root):
        assets = [{"assetKey": {"path": [SHADOW, *name.split("/")]}} for name in tables]
        payload(dagster.ask(documents.WIPE, {"assets": assets})["wipeAssets"])


NOT_REPORTED = (
    "Dagster may show days as failed or stale that are up to date, for they could not be reported"
    " to it: {} `backfill reconcile --repair` does it later."
)


def report_shown_wrong(
    up_to_date: Collection[Partition], graph: Graph, lake: Lake, dagster: Dagster
) -> int:
    """Report to Dagster, by their accepted builds, those of `up_to_date` that it shows as failed or
    stale; how many.
    """
    needed = {other for partition in up_to_date for other in graph.needs(partition)}
    days = {
        name: of_table
        for name, of_table in graph.by_table({*up_to_date, *needed}).items()
        if of_table
    }
    known = {name: read_materialized(dagster, name, of_table) for name, of_table in days.items()}
    known = with_stale(dagster, known, graph, up_to_date)
    wrong = [
        (name, day) for name, day in graph.in_order(up_to_date) if _is_shown_wrong(known[name], day)
    ]
    builds = lake.latest(_by_table(wrong), BUILD_SCHEMA.names) if wrong else Latest()
    right = builds.accepted.keys() - builds.refused()
    # Inputs first: what is reported later than its inputs is not stale.
    return report_builds(
        dagster, [builds.accepted[partition] for partition in wrong if partition in right]
    )


def _is_shown_wrong(known: DagsterRecord | None, day: date) -> bool:
    return known is not None and (day in known.failed or day in known.stale)


def with_stale(
    dagster: Dagster,
    known: Mapping[str, DagsterRecord | None],
    graph: Graph,
    of: Iterable[Partition] | None = None,
) -> dict[str, DagsterRecord | None]:
    """The same records with the partitions that Dagster shows as stale, of all or of some."""
    at = {
        (name, day): time for name, each in known.items() if each for day, time in each.at.items()
    }
    perhaps = _by_table(perhaps_stale(graph, at, at if of is None else of))
    stale = {name: read_stale(dagster, name, days) for name, days in perhaps.items()}
    return {
        name: replace(each, stale=stale.get(name, ())) if each else None
        for name, each in known.items()
    }


def perhaps_stale(
    graph: Graph, at: Mapping[Partition, int], partitions: Iterable[Partition]
) -> list[Partition]:
    """Those that need one which was materialized after them: no others can be stale for an input.
    Not all of them are.
    """
    return [
        partition
        for partition in partitions
        if partition in at
        and any(at.get(needed, 0) > at[partition] for needed in graph.needs(partition))
    ]


def _by_table(partitions: Iterable[Partition]) -> dict[str, list[date]]:
    days: dict[str, list[date]] = {}
    for table, day in sorted(partitions):
        days.setdefault(table, []).append(day)
    return days
