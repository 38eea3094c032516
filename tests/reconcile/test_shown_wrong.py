"""Partitions that are up to date and that Dagster shows otherwise, reported to a webserver that is a function."""

import json
from collections.abc import Collection
from dataclasses import replace

import httpx
import pytest

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.store import Lake
from backfill_assets.reconcile.shown_wrong import perhaps_shown_stale, report_shown_wrong
from backfill_assets.tables.graph import Graph
from tests.deliveries import day, days
from tests.lake.builds import TABLE, build
from tests.plan.graphs import CALENDAR, table

SOURCE = table("raw/a")
READER = table("raw/b", SOURCE, first=-2, last=1)
GRAPH = Graph((SOURCE, READER), CALENDAR)


class Webserver:
    """Shows days 0 and 5 to 7 of every table as failed, and day 2 as stale; keeps what is reported to it."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, dict]] = []
        self.asked_stale: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if request.url.path != "/graphql":
            self.reported.append((request.url.path, body))
            return httpx.Response(200, json={})
        if "staleStatusByPartition" in body["query"]:
            self.asked_stale += body["variables"]["days"]
            statuses = ["STALE" if each == str(day(2)) else "FRESH" for each in body["variables"]["days"]]
            return httpx.Response(200, json={"data": {"assetNodes": [{"staleStatusByPartition": statuses}]}})
        ranges = [{"status": "FAILED", "startKey": str(day(0)), "endKey": str(day(0))}]
        ranges += [{"status": "FAILED", "startKey": str(day(5)), "endKey": str(day(7))}]
        ranges += [{"status": "MATERIALIZED", "startKey": str(day(1)), "endKey": str(day(4))}]
        return httpx.Response(200, json={"data": {"assetNodes": [{"assetPartitionStatuses": {"ranges": ranges}}]}})


@pytest.mark.parametrize(
    ("done", "readers", "reported"),
    [
        pytest.param(range(4), [], [0], id="a day that is done and shown as failed, and no other"),
        pytest.param([], range(1, 4), [2], id="a reader that is shown as stale, and no other"),
        pytest.param([0], [2], [0, 2], id="both"),
        pytest.param([1], [1], [], id="nothing, where all are shown as they are"),
    ],
)
def test_what_dagster_shows_otherwise_is_reported_by_its_accepted_build(tmp_path, done, readers, reported):
    lake, webserver = Lake(str(tmp_path)), Webserver()
    lake.ledger.append([build(n, fingerprint=f"f{n}", rows=n + 5) for n in range(4)])
    dagster = Dagster("http://dagster", httpx.MockTransport(webserver))
    count = report_shown_wrong([(TABLE, day(n)) for n in done], [(TABLE, day(n)) for n in readers], lake, dagster)
    assert count == len(reported)
    assert {path for path, _ in webserver.reported} <= {f"/report_asset_materialization/{TABLE}"}
    events = [(event["partition"], event["data_version"], event["metadata"]["dagster/partition_row_count"])
              for _, event in webserver.reported]  # fmt: skip
    assert events == [(str(day(n)), f"f{n}", n + 5) for n in reported]


@pytest.mark.parametrize(
    ("later", "perhaps"),
    [
        pytest.param([], [], id="no input is built later"),
        pytest.param([(SOURCE.name, day(3))], days(2, 3, 4, 5), id="an input of four days"),
        pytest.param([(SOURCE.name, day(3)), (READER.name, day(3))], days(2, 4, 5), id="one of them built after it"),
    ],
)
def test_only_a_day_that_needs_what_was_built_after_it_can_be_shown_as_stale(later: Collection[Partition], perhaps):
    every = [(t.name, each) for t in (SOURCE, READER) for each in days(*range(8))]
    builds = [replace(build(), table=name, day=each) for name, each in every]
    builds += [replace(build(0, n), table=name, day=each) for n, (name, each) in enumerate(later, start=1)]
    assert perhaps_shown_stale(GRAPH, builds, every) == ({READER.name: perhaps} if perhaps else {})
