"""Who may ask Dagster's webserver: no web page but its own, and nobody by another name. The real
application on a port.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from dagster import DagsterInstance, DailyPartitionsDefinition, TimeWindowPartitionsDefinition
from dagster._core.definitions.partitions.context import PartitionLoadingContext
from dagster._core.definitions.temporal_context import TemporalContext
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster_webserver import app
from httpx import Client, Response
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn import Config, Server
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from backfill_assets.calendar import Calendar
from backfill_assets.orchestration.assets import partitions_of
from backfill_assets.orchestration.local.webserver import (
    check_requests,
    from_the_last,
    has_mutation,
    page_from_the_last_day,
)
from backfill_assets.servers.child import free_port
from tests.worlds.depth import CHARACTERS, tries
from tests.worlds.station import eventually

# In headers, 3000 stands for the port that the server has.
OWN = "http://127.0.0.1:3000"
PROXY = "dagster.example.com"
LIMITS = "query { instance { concurrencyLimits { concurrencyKey } } }"
SET_LIMIT = 'mutation { setConcurrencyLimit(concurrencyKey: "a page", limit: 1) }'
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of Dagster's application, as its command makes it in the webserver's process, on an
    instance of its own.
    """
    folder: Path = tmp_path_factory.mktemp("webserver")
    with pytest.MonkeyPatch.context() as patch, DagsterInstance.local_temp(str(folder)) as instance:
        patch.setattr(app, "DagsterWebserver", app.DagsterWebserver)  # restored for later tests
        patch.setenv("BACKFILL_ALLOWED_HOSTS", f"{PROXY}, localhost:8080")
        check_requests()
        with WorkspaceProcessContext(instance, EmptyWorkspaceTarget()) as context:
            application = app.create_app_from_workspace_process_context(context)
            server = Server(Config(application, port=free_port(), log_level="warning"))
            own = OWN.replace("3000", str(server.config.port))
            with ThreadPoolExecutor(1) as thread, Client(base_url=own, trust_env=False) as client:
                ended = thread.submit(server.run)
                eventually(
                    lambda: server.started or ended.done(), what="the webserver", patience=30
                )
                yield client
                server.should_exit = True


def ask(client: Client, query: str, **headers: str) -> Response:
    sent = {
        name: value.replace("3000", str(client.base_url.port)) for name, value in headers.items()
    }
    return client.post("/graphql", content=json.dumps({"query": query}), headers=JSON | sent)


def limits(client: Client) -> list[str]:
    """The pools that were given a limit."""
    return [
        pool["concurrencyKey"]
        for pool in ask(client, LIMITS).json()["data"]["instance"]["concurrencyLimits"]
    ]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="a program"),
        pytest.param({"Origin": OWN}, id="the page of this server"),
        pytest.param(
            {"Host": "localhost:3000", "Origin": "http://localhost:3000"}, id="by its other name"
        ),
        pytest.param({"Host": "[::1]:3000"}, id="by its address of IPv6"),
        pytest.param({"Host": "LocalHost:3000"}, id="in capitals"),
        pytest.param(
            {"Host": PROXY, "Origin": f"https://{PROXY}"}, id="through a proxy that a setting names"
        ),
        pytest.param(
            {"Host": "localhost:8080", "Origin": "http://localhost:8080"},
            id="through a tunnel that a setting names",
        ),
        pytest.param({"Content-Type": "application/json; charset=utf-8"}, id="with a charset"),
    ],
)
def test_a_query_is_answered(client, headers):
    assert ask(client, LIMITS, **headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Origin": "http://evil.example"}, 403, id="a page of another site"),
        pytest.param({"Origin": "null"}, 403, id="a page that hides where it is from"),
        pytest.param({"Origin": ""}, 403, id="an empty origin"),
        pytest.param({"Origin": "http://localhost:8000"}, 403, id="of another port"),
        pytest.param(
            {"Origin": f"{OWN}.evil.example"}, 403, id="whose name begins as this server's"
        ),
        pytest.param(
            {"Origin": "http://evil.example?localhost:3000"}, 403, id="whose address ends so"
        ),
        pytest.param(
            {"Host": "evil.example:81"}, 403, id="a name that an attacker lets point here"
        ),
        pytest.param(
            {"Host": "evil.example:3000", "Origin": "http://evil.example:3000"}, 403, id="its page"
        ),
        pytest.param({"Host": "127.0.0.1"}, 403, id="no port"),
        pytest.param({"Host": ""}, 403, id="no host"),
        pytest.param({"Host": f"{PROXY}:81"}, 403, id="another port of the proxy"),
        pytest.param({"Content-Type": "text/plain"}, 415, id="plain text"),
        pytest.param(
            {"Content-Type": "text/plain; application/json"}, 415, id="JSON only by a parameter"
        ),
        pytest.param({"Content-Type": "application/x-www-form-urlencoded"}, 415, id="a form"),
        pytest.param(
            {"Content-Type": "multipart/form-data; boundary=x"}, 415, id="a form with files"
        ),
        pytest.param({"Content-Type": ""}, 415, id="an empty type"),
    ],
)
def test_a_request_from_a_page_of_another_site_is_refused(client, headers, status, golden):
    refused = ask(client, SET_LIMIT, **headers)
    assert (refused.status_code, refused.headers["content-type"]) == (
        status,
        "text/plain; charset=utf-8",
    )
    assert refused.text.endswith("\n")
    golden(refused.text, PORT=client.base_url.port)
    assert "a page" not in limits(client)


@pytest.mark.parametrize(
    "query",
    [SET_LIMIT, f"query A {{ version }}\n#\n{SET_LIMIT.replace('mutation', 'mutation B')}"],
    ids=["alone", "the second of two"],
)
def test_a_mutation_in_an_address_is_refused(client, query, golden):
    asked = {"query": ["{ version }", query], "operationName": "B"}
    for method, accepts in product(("GET", "HEAD", "POST"), ("*/*", "text/html")):
        refused = client.request(method, "/graphql", params=asked, headers={"Accept": accepts})
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        assert refused.text[-1:] == ("" if method == "HEAD" else "\n")
        if refused.text:
            golden(refused.text)
        assert "a page" not in limits(client)


def test_a_query_by_get_is_answered_and_invalid_graphql_gets_the_error_of_dagster(client):
    assert client.get("/graphql", params={"query": LIMITS}).json()["data"]["instance"]
    wrong = client.get("/graphql", params={"query": "{ mutation"})
    assert (wrong.status_code, "Syntax Error" in wrong.text) == (400, True)


@settings(max_examples=tries(30))
@given(st.text(CHARACTERS, max_size=30), st.sampled_from(["mutation", "query", "subscription"]))
def test_only_a_document_with_a_mutation_has_one(comment, kind):
    """Whatever a comment or a string in it says."""
    line = " ".join(comment.split())
    document = (
        f"# {line} mutation {{ a }}\n{kind} A {{ mutation: a(text:"
        f" {json.dumps('mutation { b }')}) }}"
    )
    assert has_mutation(document) == (kind == "mutation")


def test_a_mutation_of_a_program_is_carried_out(client):
    answer = ask(client, SET_LIMIT.replace("a page", "a program"))
    assert (answer.status_code, "a program" in limits(client)) == (200, True)


def test_a_day_can_be_reported_by_a_program_and_by_no_page_of_another_site(client):
    report = "/report_asset_materialization/raw/outage_events"
    assert client.post(report, json={"partition": "2019-08-15"}).status_code == 200
    assert (
        client.post(
            report, json={"partition": "2019-08-16"}, headers={"Origin": "http://evil.example"}
        ).status_code
        == 403
    )


def test_subscriptions_are_for_pages_of_this_server(client):
    own = str(client.base_url)
    address = f"{own.replace('http', 'ws')}/graphql"
    connected = partial(connect, address, subprotocols=[Subprotocol("graphql-ws")], proxy=None)
    with connected(origin=Origin(own)) as socket:
        socket.send(json.dumps({"type": "connection_init"}))
        assert json.loads(socket.recv(timeout=30)) == {"type": "connection_ack"}
    with pytest.raises(InvalidStatus) as refused:
        connected(origin=Origin("http://evil.example"))
    assert refused.value.response.status_code == 403
    assert b"A web page of http://evil.example sent" in (refused.value.response.body or b"")


def test_no_other_page_may_show_this_server_in_a_frame(client):
    assert client.get("/runs").headers["x-frame-options"] == "DENY"


PAGINATE = TimeWindowPartitionsDefinition.get_paginated_partition_keys
FROM_THE_LAST = from_the_last(PAGINATE)
FIRST = date(2019, 8, 15)


def pages(
    partitions: DailyPartitionsDefinition, now: datetime, *, ascending: bool, paginate=FROM_THE_LAST
) -> Iterator:
    """Every page of four keys, as long as there are more."""
    context = PartitionLoadingContext(
        temporal_context=TemporalContext(effective_dt=now, last_event_id=None),
        dynamic_partitions_store=None,
    )
    cursor = None
    more = True
    while more:
        page = paginate(partitions, context=context, limit=4, ascending=ascending, cursor=cursor)
        yield page.results
        cursor = page.cursor
        more = page.has_more


@pytest.mark.parametrize(
    ("last", "now"),
    [
        pytest.param(
            date(2019, 8, 24), datetime(2026, 11, 22, 9, tzinfo=UTC), id="ended years ago"
        ),
        pytest.param(date(2019, 8, 24), datetime(2019, 8, 25, tzinfo=UTC), id="ended this moment"),
        pytest.param(None, datetime(2019, 8, 25, 9, tzinfo=UTC), id="without an end"),
        pytest.param(
            date(2019, 12, 31), datetime(2019, 8, 25, 9, tzinfo=UTC), id="to end in months"
        ),
    ],
)
def test_backwards_the_pages_hold_every_day_there_is_from_the_last_to_the_first(
    last: date | None, now: datetime
):
    partitions = partitions_of(Calendar(FIRST, last))
    days = partitions.get_partition_keys(now)
    assert (len(days), days[-1]) == (10, "2019-08-24")
    assert list(pages(partitions, now, ascending=False)) == [days[:5:-1], days[5:1:-1], days[1::-1]]
    assert [key for page in pages(partitions, now, ascending=True) for key in page] == days


def test_the_process_of_the_webserver_pages_so(monkeypatch):
    # Restored for other tests.
    monkeypatch.setattr(TimeWindowPartitionsDefinition, "get_paginated_partition_keys", PAGINATE)
    page_from_the_last_day()
    paginate = TimeWindowPartitionsDefinition.get_paginated_partition_keys
    partitions = partitions_of(Calendar(FIRST, date(2019, 8, 24)))
    now = datetime(2026, 11, 22, 9, tzinfo=UTC)
    first = next(pages(partitions, now, ascending=False, paginate=paginate))
    assert first == ["2019-08-24", "2019-08-23", "2019-08-22", "2019-08-21"]


def test_dagsters_own_first_page_of_an_ended_calendar_has_no_day_of_it():
    """Once this fails, Dagster has mended it, and `from_the_last` can go."""
    partitions = partitions_of(Calendar(FIRST, date(2019, 8, 24)))
    now = datetime(2026, 11, 22, 9, tzinfo=UTC)
    page = next(pages(partitions, now, ascending=False, paginate=PAGINATE))
    assert page == ["2026-11-21", "2026-11-20", "2026-11-19", "2026-11-18"]
