"""The client: one kind of error whatever goes wrong on the way. The transport is a function."""

import json
from datetime import date

import httpx
import pytest

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import AnswerLost, ServiceUnavailable, UsageError


def node(name):
    keys = [f"2019-09-{n:02}" for n in range(1, 31)]
    return {"assetKey": {"path": name.split("/")}, "isPartitioned": True, "opVersion": "1", "partitionKeys": keys}


def answering(body, status=200):
    return Dagster("http://dagster", transport=httpx.MockTransport(lambda request: httpx.Response(status, json=body)))


def launching(answer):
    """A webserver with two tables that answers a launch so, and the launches it was asked for."""
    asked = []

    def transport(request: httpx.Request) -> httpx.Response:
        params = json.loads(request.content)["variables"].get("params")
        asked.extend([params] if params else [])
        data = {"launchPartitionBackfill": answer} if params else {"assetNodes": [node("raw/a"), node("staging/b")]}
        return httpx.Response(200, json={"data": data})

    return Dagster("http://dagster", transport=httpx.MockTransport(transport)), asked


def test_a_gap_in_the_days_is_two_ranges_for_every_table():
    dagster, asked = launching({"__typename": "LaunchBackfillSuccess", "backfillId": "abc"})
    days = [date(2019, 9, 1), date(2019, 9, 2), date(2019, 9, 4)]
    assert (
        dagster.launch(dict.fromkeys(["raw/a", "staging/b"], days), options={"force": True}, tags={"k": "v"}, title="t")
        == "abc"
    )
    ranges = [{"start": "2019-09-01", "end": "2019-09-02"}, {"start": "2019-09-04", "end": "2019-09-04"}]
    assert asked[0]["partitionsByAssets"] == [
        {"assetKey": {"path": ["raw", "a"]}, "partitions": {"ranges": ranges}},
        {"assetKey": {"path": ["staging", "b"]}, "partitions": {"ranges": ranges}},
    ]
    assert asked[0]["runConfigData"] == {"resources": {"options": {"config": {"force": True}}}}


def test_an_unknown_table_is_refused_with_the_names_of_those_there_are():
    dagster, asked = launching({})
    with pytest.raises(UsageError) as refused:
        dagster.launch({table: [date(2019, 9, 1)] for table in ("raw/a", "raw/z")}, options={}, tags={}, title="t")
    assert str(refused.value) == "There is no table raw/z. Nothing was launched. The tables are raw/a, staging/b."
    assert asked == []


def test_a_webserver_whose_code_location_is_being_loaded_is_unavailable_and_no_table_is_refused():
    loading = httpx.MockTransport(lambda _: httpx.Response(200, json={"data": {"assetNodes": []}}))
    with pytest.raises(ServiceUnavailable, match=r"has no tables loaded\. Nothing was launched"):
        Dagster("http://dagster", transport=loading).launch({"raw/a": [date(2019, 9, 1)]}, options={}, tags={}, title="t")


@pytest.mark.parametrize("day", [date(2019, 8, 31), date(2019, 10, 1)])
def test_a_day_outside_the_calendar_is_refused_with_the_days_there_are(day):
    dagster, asked = launching({})
    with pytest.raises(UsageError) as refused:
        dagster.launch({"raw/a": [date(2019, 9, 1), day]}, options={}, tags={}, title="t")
    expected = f"{day} is outside the calendar of raw/a, which runs from 2019-09-01 to 2019-09-30. Nothing was launched."
    assert str(refused.value) == expected
    assert asked == []


def test_unknown_days_which_come_as_http_500_are_a_refusal_in_the_servers_words():
    with pytest.raises(UsageError, match="Dagster refuses: no partition 2031-01-01"):
        answering({"errors": [{"message": "no partition 2031-01-01"}]}, 500).ask("{ version }")


def test_an_error_in_the_answer_is_a_refusal():
    dagster, _ = launching({"__typename": "UnauthorizedError", "message": "read only"})
    with pytest.raises(UsageError, match=r"\(UnauthorizedError\): read only"):
        dagster.launch({"raw/a": [date(2019, 9, 1)]}, options={}, tags={}, title="t")


def test_a_failure_within_the_server_is_neither_a_refusal_nor_an_answer():
    dagster, _ = launching({"__typename": "PythonError", "message": "database is locked"})
    with pytest.raises(AnswerLost, match=r"Dagster failed to answer: database is locked\. Whether it did"):
        dagster.launch({"raw/a": [date(2019, 9, 1)]}, options={}, tags={}, title="t")


def test_a_server_that_is_not_there_is_unavailable():
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    dagster = Dagster("http://dagster", transport=httpx.MockTransport(refuse))
    with pytest.raises(ServiceUnavailable, match="No Dagster webserver answers at http://dagster"):
        dagster.ask("{ version }")
    assert not dagster.answers()


def test_a_webserver_that_has_not_loaded_the_code_yet_is_unavailable():
    with pytest.raises(ServiceUnavailable, match="has no tables loaded"):
        answering({"data": {"assetNodes": []}}).tables()


def test_an_answer_that_never_comes_is_not_taken_for_a_refusal():
    def time_out(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow")

    with pytest.raises(AnswerLost, match="Whether it did what was requested is not known"):
        Dagster("http://dagster", transport=httpx.MockTransport(time_out)).ask("{ version }")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("<html>", id="a page"),
        pytest.param('{"detail": "Not Found"}', id="other JSON"),
        pytest.param("[]", id="a list"),
        pytest.param('{"data": null}', id="no data"),
    ],
)
def test_something_else_at_the_address_is_unavailable(body):
    dagster = Dagster("http://dagster", transport=httpx.MockTransport(lambda _: httpx.Response(200, text=body)))
    with pytest.raises(ServiceUnavailable, match="not as a Dagster webserver"):
        dagster.ask("{ version }")


def test_a_password_in_the_address_is_sent_and_in_no_message():
    asked = []

    def transport(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("authorization"))
        raise httpx.ConnectError("refused")

    dagster = Dagster("http://ada:s3cret@dagster:3000", transport=httpx.MockTransport(transport))
    with pytest.raises(ServiceUnavailable, match="No Dagster webserver answers at http://dagster:3000 ") as refused:
        dagster.ask("{ version }")
    assert asked == ["Basic YWRhOnMzY3JldA=="]
    assert "s3cret" not in f"{refused.value}{dagster!r}"
