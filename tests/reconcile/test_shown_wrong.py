"""Partitions that are up to date and that Dagster shows otherwise. The webserver is a function."""

import json
from typing import Any

import httpx
import pytest

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.reconcile.dagster_record import (
    STALE_AT_ONCE,
    perhaps_stale,
    read_stale,
    shown_wrong,
)
from backfill_assets.tables.graph import Graph
from tests.worlds.deliveries import day, days
from tests.worlds.tables import CALENDAR, table

# By name, what reads comes first.
SOURCE = table("staging/z")
READER = table("features/a", SOURCE, first=-2, last=1)
GRAPH = Graph((SOURCE, READER), CALENDAR)
EVERY = [(t.name, each) for t in (SOURCE, READER) for each in days(*range(8))]


class Webserver:
    """Shows day 0 of the source as failed, and days 2 and 3 of both tables as stale.

    Day 3 of the source was materialized last, and day 1 of the reader.
    """

    def __init__(self) -> None:
        self.asked_stale: list[tuple[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        table = "/".join(body["variables"]["key"]["path"])
        answer = self.stale if "staleStatusByPartition" in body["query"] else self.materialized
        return httpx.Response(
            200, json={"data": {"assetNodes": [answer(table, body["variables"]["days"])]}}
        )

    def stale(self, table: str, asked: list[str]) -> dict[str, Any]:
        self.asked_stale += [(table, each) for each in asked]
        return {
            "staleStatusByPartition": [
                "STALE" if each in map(str, days(2, 3)) else "FRESH" for each in asked
            ]
        }

    def materialized(self, table: str, asked: list[str]) -> dict[str, Any]:
        last = day(3) if table == SOURCE.name else day(1)
        failed = (
            [{"status": "FAILED", "startKey": str(day(0)), "endKey": str(day(0))}]
            if table == SOURCE.name
            else []
        )
        times = dict.fromkeys(asked, "5") | {str(last): "9"}
        events: list[dict[str, Any]] = [
            {"partition": each, "timestamp": times[each], "tags": []} for each in asked
        ]
        return {
            "isPartitioned": True,
            "partitionKeys": [str(each) for each in CALENDAR.days()],
            "latestMaterializationByPartition": events,
            "assetPartitionStatuses": {"ranges": failed},
        }


@pytest.mark.parametrize(
    ("up_to_date", "wrong"),
    [
        pytest.param(
            [(SOURCE.name, 0), (SOURCE.name, 1)],
            [(SOURCE.name, 0)],
            id="a day shown as failed, and no other",
        ),
        pytest.param(
            [(READER.name, 2), (READER.name, 4)],
            [(READER.name, 2)],
            id="a day shown as stale, and no other",
        ),
        pytest.param(
            [(READER.name, 2), (READER.name, 3), (SOURCE.name, 0)],
            [(SOURCE.name, 0), (READER.name, 2), (READER.name, 3)],
            id="days of two tables",
        ),
        pytest.param(
            [(SOURCE.name, 2), (READER.name, 0)], [], id="nothing, where no input is later"
        ),
    ],
)
def test_up_to_date_days_that_dagster_shows_otherwise_are_found(up_to_date, wrong):
    webserver = Webserver()
    dagster = Dagster("http://dagster", httpx.MockTransport(webserver))
    partitions = [(name, day(n)) for name, n in up_to_date]
    assert shown_wrong(partitions, GRAPH, dagster) == {(name, day(n)) for name, n in wrong}
    assert {name for name, _ in webserver.asked_stale} <= {READER.name}


@pytest.mark.parametrize(
    ("later", "perhaps"),
    [
        pytest.param([], [], id="no input is later"),
        pytest.param([(SOURCE.name, day(3))], [2, 3, 4, 5], id="an input of four days"),
        pytest.param(
            [(SOURCE.name, day(3)), (READER.name, day(3))],
            [2, 4, 5],
            id="one of them materialized after it",
        ),
    ],
)
def test_only_a_day_that_needs_what_was_materialized_after_it_can_be_stale(later, perhaps):
    at = dict.fromkeys(EVERY, 0) | {partition: n for n, partition in enumerate(later, start=1)}
    assert perhaps_stale(GRAPH, at, EVERY) == [(READER.name, day(n)) for n in perhaps]


def test_many_days_are_asked_about_in_several_requests():
    webserver = Webserver()
    many = [day(n) for n in range(2 * STALE_AT_ONCE + 1)]
    stale = read_stale(Dagster("http://dagster", httpx.MockTransport(webserver)), READER.name, many)
    assert (stale, [each for _, each in webserver.asked_stale]) == (
        set(days(2, 3)),
        list(map(str, many)),
    )
