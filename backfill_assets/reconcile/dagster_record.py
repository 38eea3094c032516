"""Dagster's own record of the days it calls materialized: asked a table at a time, told a day at a time.

Days are told over the webserver's REST address for outside events: its GraphQL mutation `reportRunlessAssetEvents` takes
no data version, and without one Dagster would not know which rows it was told of. Dagster's SQL databases cannot forget
single days (partition wipe is not supported there), so what it wrongly calls materialized stays until it is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import httpx

from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import Dagster, told
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.lake.record import Build

DATA_VERSION = "dagster/data_version"


@dataclass(frozen=True)
class Known:
    """What Dagster knows of a table: the days it can have, and the data version of each it calls materialized ("": none)."""

    first: date
    last: date
    versions: Mapping[date, str] = field(default_factory=dict)

    def may_have(self, day: date) -> bool:
        return self.first <= day <= self.last


def known_of(dagster: Dagster, table: str) -> Known | None:
    """None for a table that the code location does not have, or that has no days in it yet."""
    nodes = dagster.ask(documents.MATERIALIZED, {"key": {"path": table.split("/")}})["assetNodes"]
    days = [date.fromisoformat(key) for node in nodes for key in node["partitionKeys"]]
    if not days:
        return None
    events = [event for node in nodes for event in node["latestMaterializationByPartition"] if event]
    versions = {date.fromisoformat(event["partition"]): _version(event["tags"]) for event in events}
    return Known(min(days), max(days), versions)


def _version(tags: Iterable[Mapping[str, str]]) -> str:
    return next((tag["value"] for tag in tags if tag["key"] == DATA_VERSION), "")


def at_work(dagster: Dagster) -> frozenset[str]:
    """The runs that may be building days this moment."""
    return frozenset(run["runId"] for run in told(dagster.ask(documents.AT_WORK)["runsOrError"])["results"])


def tell(dagster: Dagster, builds: Iterable[Build]) -> int:
    """Tell Dagster that these builds stand, each with its data version and figures; how many it took."""
    count = 0
    # As in `Dagster`: a proxy of the environment is never on the way.
    with httpx.Client(base_url=dagster.url, transport=dagster.transport, timeout=dagster.timeout, trust_env=False) as client:
        for count, build in enumerate(builds, start=1):
            try:
                answer = client.post(f"/report_asset_materialization/{build.table}", json=event_of(build))
            except httpx.HTTPError as error:
                raise ServiceUnavailable(
                    f"The Dagster webserver at {dagster.url} was lost ({type(error).__name__}) after it was told of "
                    f"{count - 1} day(s). Nothing else was changed. Start it with `backfill up`, then type the same again."
                ) from None
            if answer.is_error:
                raise UsageError(
                    f"Dagster does not take {build.table} {build.day} (HTTP {answer.status_code}: {answer.text[:300]}). It was "
                    f"told of {count - 1} day(s). Is the webserver read-only, or of another version? See `backfill doctor`."
                )
    return count


def event_of(build: Build) -> dict[str, Any]:
    """A build as an outside event: what its own run would have said of it."""
    said = {name: text for name in ("plan", "who", "reason") if (text := getattr(build, name))}
    return {
        "partition": build.day.isoformat(),
        "data_version": build.fingerprint,
        "description": "Told by `backfill reconcile --repair`, from the ledger.",
        "metadata": {
            "dagster/partition_row_count": build.rows,
            "outcome": build.outcome,
            "fingerprint": build.fingerprint,
            "delta version": build.delta_version,
            "code version": build.code_version,
            "built by run": build.run,
            "built at": build.at.isoformat(),
            **said,
        },
    }
