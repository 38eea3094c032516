"""What Dagster says it knows, and what is reported to it. The transport is a function."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.tags import BEFORE
from backfill_assets.errors import AnswerLost
from backfill_assets.reconcile.dagster_record import (
    DagsterRecord,
    read_materialized,
    running_runs,
)
from tests.worlds.deliveries import day


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
        "isPartitioned": True,
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


def test_a_day_that_a_step_reported_without_having_it_is_not_materialized():
    reported = [event(0, data_version=BEFORE), event(1, data_version="f1")]
    record = read_materialized(saying({"assetNodes": [node(*reported)]}), "raw/a")
    assert record
    assert record.versions == {day(1): "f1"}


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


def test_a_day_outside_dagsters_calendar_is_none_it_may_have():
    known = DagsterRecord(day(0), day(9))
    assert [known.may_have(day(n)) for n in (-1, 0, 9, 10)] == [False, True, True, False]
