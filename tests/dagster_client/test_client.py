"""The client: one kind of error whatever goes wrong on the way. The transport is a function."""

import json
from contextlib import nullcontext
from datetime import date
from typing import Any

import httpx
import pytest

from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.answers import NOT_LAUNCHED
from backfill_assets.dagster_client.client import Dagster, Launched
from backfill_assets.dagster_client.names import OPTIONS, own, own_job, writes_to
from backfill_assets.dagster_client.requests import REPORT, report_and_wait
from backfill_assets.dagster_client.tags import days_of_assets
from backfill_assets.errors import (
    AnswerLost,
    BackfillError,
    ProjectError,
    ServiceUnavailable,
    UsageError,
)


def node(name):
    keys = [f"2019-09-{n:02}" for n in range(1, 31)]
    return {
        "assetKey": {"path": name.split("/")},
        "isPartitioned": True,
        "isMaterializable": True,
        "opVersion": "1",
        "partitionKeys": keys,
    } | {
        "repository": {"name": "__repository__", "location": {"name": "here"}},
    }


def answering(body, status=200):
    return Dagster(
        "http://dagster",
        transport=httpx.MockTransport(lambda request: httpx.Response(status, json=body)),
    )


def launching(answer):
    """A webserver with two tables that answers a launch so, and the launches it was asked for."""
    asked = []

    def transport(request: httpx.Request) -> httpx.Response:
        params = json.loads(request.content)["variables"].get("params")
        asked.extend([params] if params else [])
        data = (
            {"launchPartitionBackfill": answer, "launchRun": answer}
            if params
            else {"assetNodes": [node("raw/a"), node("staging/b")]}
        )
        return httpx.Response(200, json={"data": data})

    return Dagster("http://dagster", transport=httpx.MockTransport(transport)), asked


NOTHING_LAUNCHED = "Nothing was launched."
NOT_KNOWN = "It is not known whether the request was carried out."


def launch_a_day(dagster: Dagster, day: date = date(2019, 9, 1)) -> Launched:
    return dagster.launch({"raw/a": [day]}, options={}, tags={})


FIRST_AND_LAST = {
    "dagster/asset_partition_range_start": "2019-09-01",
    "dagster/asset_partition_range_end": "2019-09-04",
}


@pytest.mark.parametrize(
    ("days", "of_days"),
    [
        pytest.param(
            {"raw/a": (1,), "staging/b": (1,)}, {"dagster/partition": "2019-09-01"}, id="one day"
        ),
        pytest.param(
            {"raw/a": (2, 1, 4, 3), "staging/b": (1, 2, 3, 4)}, FIRST_AND_LAST, id="a range"
        ),
        pytest.param(
            {"raw/a": (1, 2, 4), "staging/b": (4, 2, 1)},
            FIRST_AND_LAST
            | {"backfill/days": "raw/a,staging/b: 2019-09-01..2019-09-02,2019-09-04"},
            id="days with a gap",
        ),
        pytest.param(
            {"raw/a": (1, 2, 3, 4), "staging/b": (1,)},
            FIRST_AND_LAST
            | {"backfill/days": "raw/a: 2019-09-01..2019-09-04; staging/b: 2019-09-01"},
            id="other days of another table",
        ),
    ],
)
def test_a_launch_is_one_run_that_names_exactly_these_days(days, of_days):
    dagster, asked = launching({"__typename": "LaunchRunSuccess", "run": {"runId": "abc"}})
    named = {table: [date(2019, 9, n) for n in of] for table, of in days.items()}
    launched = dagster.launch(named, options={"force": True}, tags={"k": "v"})
    assert (str(launched), launched.page) == ("run abc", "/runs/abc")
    (run,), selector = asked, asked[0]["selector"]
    assert selector["assetSelection"] == [{"path": ["raw", "a"]}, {"path": ["staging", "b"]}]
    assert (selector["repositoryName"], selector["repositoryLocationName"]) == (
        "__repository__",
        "here",
    )
    tagged = {tag["key"]: tag["value"] for tag in run["executionMetadata"]["tags"]}
    assert tagged == {"k": "v"} | of_days
    assert run["runConfigData"] == {"resources": {OPTIONS: {"config": {"force": True}}}}
    whole = {table: [date(2019, 9, n) for n in (1, 2, 3, 4)] for table in days}
    exact = {table: sorted(of_table) for table, of_table in named.items()}
    assert (days_of_assets(tagged) or (whole if len(days["raw/a"]) > 1 else exact)) == exact


@pytest.mark.parametrize(
    ("tagged", "count"),
    [
        ({"backfill/days": "raw/a: 2019-09-01,2019-09-04; raw/b: 2019-09-01"}, 3),
        ({"backfill/days": "some"}, 8),
        ({}, 8),
    ],
)
def test_the_partitions_of_a_run_are_counted_by_its_tags(tagged, count):
    entry = {
        "__typename": "Run",
        "id": "r",
        "runStatus": "SUCCESS",
        "creationTime": 0.0,
        "assetSelection": [{"path": ["raw", name]} for name in ("a", "b")],
        "tags": [{"key": k, "value": v} for k, v in (FIRST_AND_LAST | tagged).items()],
    }
    assert Launched.of(entry).partitions == count


def test_an_unknown_table_is_refused_with_the_names_of_those_there_are(golden):
    dagster, asked = launching({})
    with pytest.raises(UsageError) as refused:
        dagster.launch(
            {table: [date(2019, 9, 1)] for table in ("raw/a", "raw/z")},
            options={},
            tags={},
        )
    assert refused.value.unchanged == NOTHING_LAUNCHED
    golden(str(refused.value))
    assert asked == []


NOT_IMPORTED: dict[str, object] = {
    "__typename": "PythonError",
    "className": "DagsterImportError",
    "message": "cannot import shop",
    "causes": [{"message": "no module x"}],
}
UNREACHABLE = NOT_IMPORTED | {"className": "DagsterUserCodeUnreachableError"}


def locations(error: dict[str, object]) -> dict[str, object]:
    entries = [
        {"name": "being loaded", "locationOrLoadError": None},
        {"name": "shop", "locationOrLoadError": error},
    ]
    return {"__typename": "Workspace", "locationEntries": entries}


@pytest.mark.parametrize("act", [launch_a_day, Dagster.tables], ids=["a launch", "the tables"])
def test_a_webserver_without_loaded_tables_is_unavailable(act, golden):
    with pytest.raises(ServiceUnavailable) as refused:
        act(answering({"data": {"assetNodes": [], "workspaceOrError": locations(UNREACHABLE)}}))
    assert refused.value.unchanged == NOTHING_LAUNCHED
    golden(str(refused.value))


@pytest.mark.parametrize("act", [launch_a_day, Dagster.tables], ids=["a launch", "the tables"])
def test_a_project_that_dagster_cannot_load_is_refused_with_its_reasons(act):
    with pytest.raises(ProjectError) as refused:
        act(answering({"data": {"assetNodes": [], "workspaceOrError": locations(NOT_IMPORTED)}}))
    assert all(reason in refused.value.what for reason in ("cannot import", "no module x"))


@pytest.mark.parametrize("day", [date(2019, 8, 31), date(2019, 10, 1)])
def test_a_day_outside_the_calendar_is_refused_with_the_days_there_are(day, golden):
    dagster, asked = launching({})
    with pytest.raises(UsageError) as refused:
        launch_a_day(dagster, day)
    assert refused.value.unchanged == NOTHING_LAUNCHED
    golden(str(refused.value))
    assert asked == []


def test_unknown_days_which_come_as_http_500_are_a_refusal_in_the_servers_words(golden):
    with pytest.raises(UsageError) as refused:
        answering({"errors": [{"message": "no partition 2031-01-01"}]}, 500).ask("{ version }")
    golden(str(refused.value))


def test_an_error_in_the_answer_is_a_refusal(golden):
    dagster, _ = launching({"__typename": "UnauthorizedError", "message": "read only"})
    with pytest.raises(UsageError) as refused:
        launch_a_day(dagster)
    golden(str(refused.value))


@pytest.mark.parametrize("kind", ["InvalidSubsetError", "PipelineNotFoundError"])
def test_a_code_server_that_does_not_answer_is_waited_for(kind):
    message = "dagster._core.errors.DagsterUserCodeUnreachableError: Could not reach it"
    dagster, _ = launching({"__typename": kind, "message": message})
    with pytest.raises(ServiceUnavailable) as refused:
        launch_a_day(dagster)
    assert not isinstance(refused.value, AnswerLost)
    assert refused.value.unchanged == NOT_LAUNCHED


@pytest.mark.parametrize(
    ("kind", "terminated"), [("TerminateRunFailure", False), ("TerminateRunSuccess", True)]
)
def test_a_run_that_is_just_being_started_is_not_terminated_which_is_no_refusal(kind, terminated):
    dagster = answering(
        {"data": {"terminateRun": {"__typename": kind, "message": "due to having status STARTING"}}}
    )
    assert dagster.cancel(Launched("r1", is_run=True)) is terminated


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("UnauthorizedError", "read only"),
        ("TerminateRunFailure", "You do not have permission to terminate this run"),
    ],
)
def test_who_may_not_terminate_runs_is_refused(kind, message, golden):
    """The second is what a webserver says that is read only
    (dagster_graphql.implementation.execution).
    """
    dagster = answering({"data": {"terminateRun": {"__typename": kind, "message": message}}})
    with pytest.raises(UsageError) as refused:
        dagster.cancel(Launched("r1", is_run=True))
    golden(str(refused.value))


def test_a_failure_within_the_server_is_neither_a_refusal_nor_an_answer():
    dagster, _ = launching({"__typename": "PythonError", "message": "locked"})
    with pytest.raises(AnswerLost, match="locked") as lost:
        launch_a_day(dagster)
    assert lost.value.unchanged == NOT_KNOWN


def test_a_database_that_is_away_is_no_refusal():
    info = {"__class__": "SerializableErrorInfo", "cls_name": "OperationalError"}
    error = {"message": "server closed the connection", "extensions": {"errorInfo": info}}
    with pytest.raises(AnswerLost, match="closed the connection") as lost:
        answering({"errors": [error], "data": None}, 500).ask("{ version }")
    assert lost.value.unchanged == NOT_KNOWN


def test_a_server_that_is_not_there_is_unavailable(golden):
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    dagster = Dagster("http://dagster", transport=httpx.MockTransport(refuse))
    with pytest.raises(ServiceUnavailable) as unavailable:
        dagster.ask("{ version }")
    golden(str(unavailable.value))
    assert not dagster.answers()


def test_an_answer_that_never_comes_is_not_taken_for_a_refusal():
    def time_out(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow")

    with pytest.raises(AnswerLost) as lost:
        Dagster("http://dagster", transport=httpx.MockTransport(time_out)).ask("{ version }")
    assert lost.value.unchanged == NOT_KNOWN


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("<html>", id="a page"),
        pytest.param('{"detail": "Not Found"}', id="other JSON"),
        pytest.param("[]", id="a list"),
        pytest.param('{"data": null}', id="no data"),
        pytest.param('{"errors": ["bad gateway"]}', id="a proxy's errors"),
    ],
)
def test_something_else_at_the_address_is_unavailable(body, golden):
    dagster = Dagster(
        "http://dagster", transport=httpx.MockTransport(lambda _: httpx.Response(200, text=body))
    )
    with pytest.raises(AnswerLost) as lost:
        dagster.ask("{ version }")
    golden(str(lost.value))


LOGIN = "https://login.example.com/sign-in?state=s3cret"


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(httpx.Response(302, headers={"location": LOGIN}), id="a redirect to a login"),
        pytest.param(httpx.Response(304), id="a redirect to nowhere"),
        pytest.param(httpx.Response(200, html="<form>"), id="a login"),
        pytest.param(httpx.Response(401, json={"detail": "no"}), id="no token"),
        pytest.param(
            httpx.Response(403, text="Add it to BACKFILL_ALLOWED_HOSTS"), id="our own refusal"
        ),
    ],
)
def test_a_login_is_recognised_and_the_token_named(response, golden):
    dagster = Dagster("http://dagster", transport=httpx.MockTransport(lambda _: response))
    with pytest.raises(ServiceUnavailable) as refused:
        dagster.ask("{ version }")
    assert not isinstance(refused.value, AnswerLost)
    golden(str(refused.value))


def test_a_token_is_sent_and_not_shown():
    asked = []

    def transport(request: httpx.Request) -> httpx.Response:
        asked.append((str(request.url), request.headers.get("authorization")))
        return httpx.Response(200, json={"data": {"version": "1"}})

    dagster = Dagster(
        "http://host/dagster", transport=httpx.MockTransport(transport), token="s3cret"
    )
    assert dagster.answers()
    assert asked == [("http://host/dagster/graphql", "Bearer s3cret")]
    assert "s3cret" not in repr(dagster)


def test_a_password_in_the_address_is_sent_and_in_no_message():
    asked = []

    def transport(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("authorization"))
        raise httpx.ConnectError("refused")

    dagster = Dagster("http://ada:s3cret@dagster:3000", transport=httpx.MockTransport(transport))
    with pytest.raises(ServiceUnavailable, match="http://dagster:3000 ") as refused:
        dagster.ask("{ version }")
    assert asked == ["Basic YWRhOnMzY3JldA=="]
    assert "s3cret" not in f"{refused.value}{dagster!r}"


@pytest.mark.parametrize(
    ("selected", "job", "writes"),
    [
        ({"raw/a", "other/t"}, "__ASSET_JOB", True),
        ({"other/t", "shadow/raw/a"}, "__ASSET_JOB", False),
        (set(), own("nightly"), False),  # a run of checks
        *((None, own(job), True) for job in ("nightly", "rebuild", "publish", "rollback")),
        (None, "nightly", False),  # of another project
        (None, own_job("raw/a"), True),
        (None, own_job("other/t"), False),
        (None, own("run_plan"), False),
        (None, None, True),
        ({"other/t"}, None, False),
    ],
)
def test_what_writes_to_live_is_known_by_its_assets_or_by_its_job(selected, job, writes):
    assert writes_to(["raw/a", "staging/b"], selected, job) == writes


def test_unfinished_runs_that_write_to_live_are_named_and_those_of_shadows_are_not():
    def path(name: str) -> dict[str, list[str]]:
        return {"path": name.split("/")}

    runs = [
        {
            "runId": "11111111-a",
            "jobName": "__ASSET_JOB",
            "assetSelection": [path("raw/a"), path("staging/b")],
        },
        {"runId": "22222222-a", "jobName": "__ASSET_JOB", "assetSelection": [path("shadow/raw/a")]},
        {"runId": "33333333-a", "jobName": own("nightly"), "assetSelection": None},
        {"runId": "44444444-a", "jobName": own("make_plan"), "assetSelection": None},
        {"runId": "55555555-a", "jobName": own("build_staging__b"), "assetSelection": None},
        {"runId": "66666666-a", "jobName": own("build_staging__c"), "assetSelection": None},
    ]
    of_backfill = {
        "tags": [],
        "creationTime": 0.0,
        "title": "",
        "numPartitions": 1,
        "__typename": "PartitionBackfill",
    }
    feed = [
        of_backfill | {"id": "b1", "status": "REQUESTED", "assetSelection": [path("staging/b")]},
        of_backfill
        | {
            "id": "b2",
            "status": "REQUESTED",
            "assetSelection": [path("shadow/staging/b")],
        },
        of_backfill
        | {
            "id": "b3",
            "status": "COMPLETED_SUCCESS",
            "assetSelection": [path("staging/b")],
        },
        of_backfill | {"id": "b4", "status": "REQUESTED", "assetSelection": None},
    ]
    answer = {"runsOrError": {"__typename": "Runs", "results": runs}}
    answer |= {"runsFeedOrError": {"__typename": "RunsFeedConnection", "results": feed}}
    unfinished = answering({"data": answer}).unfinished(["raw/a", "staging/b"])
    assert list(unfinished) == [
        "run 11111111",
        "run 33333333",
        "run 55555555",
        "backfill b1",
        "backfill b4",
    ]
    assert all(run[:8] == name.removeprefix("run ") for name, run in unfinished.items() if run)
    assert unfinished["backfill b1"] == ""


@pytest.mark.parametrize("ending", ["SUCCESS", "FAILURE"])
def test_days_are_reported_by_a_run_that_is_waited_for(ending):
    statuses = iter(["STARTED", ending, ending])
    asked = []

    def transport(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        asked.append(body)
        data: dict[str, Any]
        if body["query"] == documents.TABLES:
            data = {"assetNodes": [node("raw/a")]}
        elif body["query"] == documents.LAUNCH_RUN:
            data = {"launchRun": {"__typename": "LaunchRunSuccess", "run": {"runId": "r"}}}
        else:
            runs = [{"runId": "r", "status": next(statuses)}]
            data = {"runsOrError": {"__typename": "Runs", "results": runs}}
        return httpx.Response(200, json={"data": data})

    dagster = Dagster("http://dagster", transport=httpx.MockTransport(transport))
    with nullcontext() if ending == "SUCCESS" else pytest.raises(BackfillError):
        report_and_wait(dagster, [("raw/a", date(2026, 1, 2))], "why", sleep=lambda _: None)
    (params,) = [body["variables"]["params"] for body in asked if "params" in body["variables"]]
    assert params["selector"]["jobName"] == own(REPORT)
    (step,) = params["runConfigData"]["ops"].values()
    assert step == {"config": {"days": {"raw/a": "2026-01-02"}}}


def test_a_failure_after_many_events_is_found_on_a_later_page():
    failure = {
        "__typename": "ExecutionStepFailureEvent",
        "stepKey": "raw__a",
        "error": {"message": "no rows"},
    }
    pages = {
        None: {"events": [{"__typename": "LogMessageEvent"}] * 3, "cursor": "3", "hasMore": True},
        "3": {"events": [failure], "cursor": "4", "hasMore": False},
    }

    def transport(request: httpx.Request) -> httpx.Response:
        given = json.loads(request.content)["variables"]
        page = {"__typename": "EventConnection", **pages[given.get("cursor")]}
        return httpx.Response(200, json={"data": {"logsForRun": page}})

    dagster = Dagster("http://dagster", transport=httpx.MockTransport(transport))
    assert {table: step.message for table, step in dagster.failures("r").items()} == {
        "raw/a": "no rows"
    }
