"""What Dagster says it knows, and what is reported to it. The transport is a function."""

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import AnswerLost, ServiceUnavailable, UsageError
from backfill_assets.reconcile.dagster_record import (
    DagsterRecord,
    external_event,
    read_materialized,
    report_builds,
    running_runs,
)
from tests.worlds.deliveries import day
from tests.worlds.recorded import FULL, build


def saying(data: Any) -> Dagster:
    return Dagster(
        "http://dagster",
        transport=httpx.MockTransport(lambda _: httpx.Response(200, json={"data": data})),
    )


def event(number: int, **tags: str) -> dict[str, Any]:
    return {
        "partition": str(day(number)),
        "timestamp": "1",
        "tags": [{"key": f"dagster/{name}", "value": text} for name, text in tags.items()],
    }


def node(
    *events: dict[str, Any] | None, keys: Sequence[int] = range(10), ranges: Sequence[Any] = ()
) -> dict[str, Any]:
    return {
        "partitionKeys": [str(day(n)) for n in keys],
        "latestMaterializationByPartition": list(events),
        "assetPartitionStatuses": {"__typename": "TimePartitionStatuses", "ranges": list(ranges)},
    }


def test_the_days_materialized_are_known_with_the_data_version_of_each():
    dagster = saying(
        {
            "assetNodes": [
                node(
                    event(0, code_version="1", data_version="f0"), None, event(2, code_version="1")
                )
            ]
        }
    )
    assert read_materialized(dagster, "raw/a") == DagsterRecord(
        day(0), day(9), {day(0): "f0", day(2): ""}, set()
    )


def test_the_days_that_dagster_shows_as_failed_are_known():
    ranges = [
        {"status": "MATERIALIZED", "startKey": str(day(0)), "endKey": str(day(3))},
        {"status": "FAILED", "startKey": str(day(4)), "endKey": str(day(5))},
        {"status": "FAILED", "startKey": str(day(7)), "endKey": str(day(7))},
    ]
    known = read_materialized(saying({"assetNodes": [node(ranges=ranges)]}), "raw/a")
    assert known is not None
    assert known.failed == {day(4), day(5), day(7)}


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([], id="no such table"),
        pytest.param([node(keys=[])], id="a table without days, or a calendar that has not begun"),
    ],
)
def test_of_a_table_without_days_nothing_is_known(nodes):
    assert read_materialized(saying({"assetNodes": nodes}), "raw/a") is None


def test_the_runs_at_work_are_those_that_may_build():
    assert running_runs(
        saying({"runsOrError": {"__typename": "Runs", "results": [{"runId": "a"}]}})
    ) == {"a"}
    with pytest.raises(AnswerLost, match="no"):
        running_runs(saying({"runsOrError": {"__typename": "PythonError", "message": "no"}}))


def listening(*answers: int) -> tuple[Dagster, list[tuple[str, Any]]]:
    """A webserver that answers so, one after the other, and what it received; 0 is a connection
    lost.
    """
    heard: list[tuple[str, Any]] = []
    statuses = list(answers)

    def transport(request: httpx.Request) -> httpx.Response:
        status = statuses.pop(0)
        if not status:
            raise httpx.ConnectError("gone")
        heard.append((request.url.path, json.loads(request.content)))
        return httpx.Response(status, json={"error": "Not authorized"} if status > 299 else {})

    return Dagster("http://dagster", transport=httpx.MockTransport(transport)), heard


def test_dagster_is_told_of_each_day_with_its_data_version_and_figures():
    dagster, heard = listening(200, 200)
    assert report_builds(dagster, [FULL, build(1)]) == 2
    assert heard[0] == ("/report_asset_materialization/staging/o", external_event(FULL))
    reported = external_event(FULL)
    assert (reported["partition"], reported["data_version"]) == (str(day(0)), "1-2-3")
    assert (
        reported["metadata"]["dagster/partition_row_count"],
        reported["metadata"]["reason"],
    ) == (1, "why")


def test_nothing_to_tell_asks_nothing():
    assert report_builds(listening()[0], []) == 0


def test_a_server_lost_on_the_way_is_said_with_what_was_done():
    with pytest.raises(ServiceUnavailable) as lost:
        report_builds(listening(200, 0)[0], [build(0), build(1)])
    assert "ConnectError" in lost.value.what
    assert lost.value.unchanged.startswith("1 day(s) were reported")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(httpx.Response(302, headers={"location": "https://login/"}), id="a redirect"),
        pytest.param(httpx.Response(200, html="<form>"), id="a page"),
    ],
)
def test_a_login_that_answers_has_taken_no_report(answer):
    dagster = Dagster("http://dagster", transport=httpx.MockTransport(lambda _: answer))
    with pytest.raises(ServiceUnavailable) as refused:
        report_builds(dagster, [build(0)])
    assert refused.value.unchanged.startswith("0 day(s) were reported")
    assert "BACKFILL_DAGSTER_TOKEN" in refused.value.next_step


def test_a_server_that_takes_no_reports_is_said_with_its_words():
    with pytest.raises(UsageError, match=r"staging/o 2019-08-15 \(HTTP 401:.*authorized"):
        report_builds(listening(401)[0], [build(0)])


def test_a_day_outside_dagsters_calendar_is_none_it_may_have():
    known = DagsterRecord(day(0), day(9))
    assert [known.may_have(day(n)) for n in (-1, 0, 9, 10)] == [False, True, True, False]
