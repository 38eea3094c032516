"""Real servers whose Dagster keeps its records in PostgreSQL, also while that goes away and comes
back.
"""

import signal
from datetime import date

import psutil
import pytest

from backfill_assets.calendar import between
from backfill_assets.lake.locks import writing
from backfill_assets.plan.store import Plans
from backfill_assets.servers.home import servers_record
from backfill_assets.servers.storage import VARIABLE
from tests.worlds.outages import RAW
from tests.worlds.servers import deliver, environment, files_with, servers_of
from tests.worlds.services import PostgresServer
from tests.worlds.station import FIRST, Station, ended, eventually, spans

pytestmark = pytest.mark.nightly

LAST = date(2019, 8, 18)
DAYS = list(between(FIRST, LAST))
PLAN = ("run", "--yes", "--partitions", f"{FIRST}..{LAST}", "--into", "live", "--canary", "0")


@pytest.fixture(scope="module")
def station(tmp_path_factory, spark, postgres: PostgresServer):
    home = tmp_path_factory.mktemp("on-postgres")
    deliver(home / "landing", DAYS)
    env = environment(home, LAST, own_engine=False) | {VARIABLE: postgres.new_database()}
    with servers_of(home, env) as found:
        yield found


def test_a_plan_and_a_forced_run_are_recorded_in_postgres(station: Station, postgres):
    printed = station.backfill(*PLAN, "--target", RAW, "--upstream", "--reason", "on PostgreSQL")
    assert ": done" in printed
    assert station.materialized(RAW) == spans(DAYS)
    launched = station.dagster.launch(
        {RAW: DAYS[:2]}, options={"force": True, "reason": "by GraphQL"}, tags={}
    )
    assert station.finished(launched) == "SUCCESS"
    forced = [build.day for build in station.builds() if build.reason == "by GraphQL"]
    assert sorted(forced) == DAYS[:2]
    assert " agree on " in station.backfill("reconcile")


def test_the_password_is_in_no_file_and_on_no_command_line(station: Station, postgres):
    assert files_with(station.home, postgres.password) == []
    record = servers_record(station.home)
    assert record
    lines = [p.cmdline() for p in psutil.Process(record.up.pid).children(recursive=True)]
    assert len(lines) >= len(record.children)
    assert postgres.password not in str(lines)


def test_postgres_that_goes_away_and_comes_back_stops_no_plan(station: Station, postgres):
    plans = Plans(str(station.home / "lake"))
    known = set(plans.ids())
    with writing(str(station.home / "lake"), RAW):
        command = station.started(
            *PLAN, "--target", RAW, "--force", "--days-per-run", "2", "--reason", "away"
        )

        def begun() -> list[str]:
            return [plan for plan in plans.ids() if plan not in known and station.of_plan(plan)]

        (plan,) = eventually(begun, what="a chunk was launched")
        station.process_of(station.of_plan(plan)[0])
        postgres.stop(signal.SIGQUIT)
    try:
        log = station.home / "logs" / "daemon.log"
        eventually(lambda: "too many retries" in log.read_text(), what="the daemon noticed")
    finally:
        postgres.start()
    assert f"Plan {plan}: done" in ended(command, 0)
    built = [build.day for build in station.builds() if build.plan == plan and build.succeeded]
    assert sorted(built) == DAYS
    assert station.materialized(RAW) == spans(DAYS)
