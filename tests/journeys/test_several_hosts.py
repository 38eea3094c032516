"""Servers that run alone, each with a home of its own as on a host of its own: the code server over
TCP, the webserver behind a proxy with TLS and a token, and the daemon. They share PostgreSQL, the
lake and the landing area.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date

import pytest

from backfill_assets.calendar import between
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.servers.child import free_port
from backfill_assets.servers.home import servers_records
from backfill_assets.servers.storage import VARIABLE
from tests.worlds.deployed import UP, started
from tests.worlds.outages import RAW
from tests.worlds.proxy import TOKEN, token_proxy
from tests.worlds.servers import PROJECT, deliver, environment
from tests.worlds.services import PostgresServer
from tests.worlds.station import FIRST, Station, ended, eventually, spans

pytestmark = pytest.mark.nightly

LAST = date(2019, 8, 16)
DAYS = list(between(FIRST, LAST))
PLAN = ("run", "--yes", "--partitions", f"{FIRST}..{LAST}", "--target", RAW, "--into", "live")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory, spark, postgres: PostgresServer) -> Iterator[Station]:
    folder = tmp_path_factory.mktemp("hosts")
    deliver(folder / "landing", DAYS)
    code = free_port()
    web = free_port()
    with ExitStack() as running:
        url, ca = running.enter_context(token_proxy(folder, f"http://127.0.0.1:{web}"))
        env = environment(folder / "client", LAST, own_engine=False) | {
            VARIABLE: postgres.new_database(),
            "BACKFILL_LAKE": str(folder / "client" / "lake"),
            "BACKFILL_LANDING": str(folder / "landing"),
            "BACKFILL_CODE_SERVER": f"127.0.0.1:{code}",
            "BACKFILL_DAGSTER_URL": f"{url}/dagster",
            "BACKFILL_DAGSTER_TOKEN": TOKEN,
            "BACKFILL_DAGSTER_CA": str(ca),
        }
        for options in (
            ("code", "--host", "0.0.0.0", "--port", str(code)),
            ("webserver", "--port", str(web), "--path-prefix", "/dagster"),
            ("daemon",),
        ):
            running.enter_context(
                started([*UP, "--only", *options], env, folder / options[0], PROJECT)
            )
        dagster = Dagster(env["BACKFILL_DAGSTER_URL"], token=TOKEN, ca=ca)
        yield Station(dagster, folder / "client", folder / "landing", folder, env, None)  # type: ignore[arg-type]


def test_a_plan_is_carried_out_by_servers_on_several_hosts(hosts: Station):
    assert ": done" in hosts.backfill(*PLAN, "--reason", "several hosts")
    assert hosts.materialized(RAW) == spans(DAYS)
    pools = hosts.dagster.ask("{ instance { concurrencyLimits { concurrencyKey limit } } }")
    limits = pools["instance"]["concurrencyLimits"]
    assert {"concurrencyKey": "archives", "limit": 1} in limits


def test_the_job_of_a_plan_reaches_the_webserver_through_the_proxy(hosts: Station):
    made = hosts.asked_json(*("plan", *PLAN[1:]), "--force", "--reason", "by a job")
    run = hosts.dagster.launch_run(
        "backfill_run_plan",
        {"ops": {"backfill_run": {"config": {"plan": made["id"]}}}},
        {},
        next(iter(hosts.dagster.nodes().values())),
    )
    assert hosts.ended(run.id)["status"] == "SUCCESS"


def test_a_wrong_token_is_explained(hosts: Station):
    other = Station(
        hosts.dagster,
        hosts.home,
        hosts.landing,
        hosts.project,
        {**hosts.env, "BACKFILL_DAGSTER_TOKEN": "another"},
        hosts.up,
    )
    printed = ended(other.started(*PLAN, "--force", "--reason", "no token"), 3)
    assert "BACKFILL_DAGSTER_TOKEN" in printed
    unknown = Dagster(hosts.env["BACKFILL_DAGSTER_URL"], token=TOKEN)
    assert not unknown.answers()


def test_a_code_server_that_dies_is_started_again(hosts: Station):
    (record,) = servers_records(hosts.project / "code")
    process = record.children["code-server"].find()
    assert process
    process.send_signal(signal.SIGKILL)
    eventually(
        lambda: servers_records(hosts.project / "code")[0].children != record.children,
        what="the code server was started again",
    )
    printed = ended(hosts.started(*PLAN, "--force", "--reason", "after that"), 0)
    assert ": done" in printed
