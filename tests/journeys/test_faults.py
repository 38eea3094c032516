"""What goes wrong in the middle of a plan, on real servers: nothing is done twice, and the plan
comes to its end.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from subprocess import Popen

import pytest

from backfill_assets.calendar import Calendar, between
from backfill_assets.dagster_client.client import Launched
from backfill_assets.dagster_client.requests import reload
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.locks import writing
from backfill_assets.plan.store import Plans
from backfill_assets.settings import BUNDLED
from tests.worlds.outages import LATE, RAW, REJECTED, UPDATES, World
from tests.worlds.servers import project_copy, station_on
from tests.worlds.station import FIRST, Station, ended, eventually

pytestmark = pytest.mark.nightly

LAST = date(2019, 8, 18)
DAYS = list(between(FIRST, LAST))
# Two chunks of two days, one after the other, computed whatever there is.
CHUNKS = (
    "run",
    "--yes",
    "--partitions",
    f"{FIRST}..{LAST}",
    "--target",
    RAW,
    "--force",
    "--into",
    "live",
    "--canary",
    "0",
    "--days-per-run",
    "2",
)


@pytest.fixture(scope="module")
def station(tmp_path_factory, spark):
    """Servers on a copy of the project, whose code may be changed; no test here is about their
    engine.
    """
    home = tmp_path_factory.mktemp("faults")
    with station_on(home, LAST, project_copy(home), own_engine=False) as found:
        # What is forced below is there; no server is needed for that.
        World(home / "lake", found.landing, lambda: spark, Calendar(FIRST, LAST)).run(
            DAYS, [REJECTED, RAW]
        )
        yield found


def started(station: Station, reason: str) -> tuple[str, Popen[str]]:
    """A forced plan of two chunks, at work; its id and its process."""
    plans = Plans(str(station.home / "lake"))
    known = set(plans.ids())
    process = station.started(*CHUNKS, "--reason", reason)

    def begun() -> list[str]:
        return [plan for plan in plans.ids() if plan not in known and station.of_plan(plan)]

    (plan,) = eventually(begun, what="a chunk was launched")
    return plan, process


@contextmanager
def commits_wait(station: Station) -> Iterator[None]:
    """Steps compute, and none commits: what happens meanwhile happens in the middle of a chunk,
    however slow the machine is.
    """
    with writing(str(station.home / "lake"), RAW):
        yield


def built_by(station: Station, plan: str) -> Counter[date]:
    return Counter(
        build.day for build in station.builds() if build.plan == plan and build.succeeded
    )


def chunks_of(station: Station, plan: str) -> list[str]:
    return [each.tags["backfill/chunk"] for each in station.of_plan(plan)]


def test_a_killed_run_is_launched_again_and_the_plan_is_locked_meanwhile(station: Station):
    with commits_wait(station):
        plan, command = started(station, "a run is killed")
        os.kill(station.process_of(station.of_plan(plan)[0]), signal.SIGKILL)
    refused = station.backfill(*CHUNKS, "--reason", "another plan", code=4)
    assert f"is in plan {plan} too, which is open" in refused
    again = station.backfill("resume", plan, code=4)
    assert f"Another command is carrying out plan {plan}. Nothing was changed." in again
    assert f"Plan {plan}: done" in ended(command, 0)
    assert built_by(station, plan) == dict.fromkeys(DAYS, 1)
    assert sorted(chunks_of(station, plan)) == ["1", "1", "2"]


def test_servers_that_are_ended_and_started_again_in_the_middle_are_waited_for(station: Station):
    plan, command = started(station, "the servers are restarted")
    station.up.end(lambda: station.backfill("down"))
    station.up.start()
    assert f"Plan {plan}: done" in ended(command, 0)
    assert built_by(station, plan) == dict.fromkeys(DAYS, 1)


def test_killed_commands_and_cancelled_plans_resume_and_build_no_day_twice(station: Station):
    with commits_wait(station):
        plan, command = started(station, "the command is killed")
        command.kill()
        command.wait()
        command = station.started("resume", plan)
        begun = Plans(str(station.home / "lake"))
        eventually(lambda: len(begun.events(plan, "started")) == 2, what="the plan is gone on with")
        assert f"Plan {plan} is cancelled" in station.backfill("cancel", plan)
        assert f"Plan {plan}: cancelled" in ended(command, 1)
    assert [(each.status, each.tags["backfill/chunk"]) for each in station.of_plan(plan)] == [
        ("CANCELED", "1")
    ]
    assert f"Plan {plan}: done" in station.backfill("resume", plan)
    assert built_by(station, plan) == dict.fromkeys(DAYS, 1)
    assert chunks_of(station, plan) in (["1", "1", "2"], ["1", "2"])


def test_code_that_changes_in_the_middle_stops_the_plan_and_names_the_table(station: Station):
    plan, command = started(station, "the code is changed")
    source = station.project / "backfill_assets" / "datasets" / "outages" / "raw.py"
    before = source.read_text()
    changed = changed_body(before)
    try:
        source.write_text(changed)
        reload(station.dagster, BUNDLED)
        printed = ended(command, 1)
        assert f"The code is not the one that plan {plan} was made for: {RAW} (planned " in printed
        assert len(built_by(station, plan)) < len(DAYS)
        assert f"plan {plan} was made for: {RAW}" in station.backfill("resume", plan, code=2)
    finally:
        source.write_text(before)
        reload(station.dagster, BUNDLED)
    assert f"Plan {plan}: done" in station.backfill("resume", plan)
    assert built_by(station, plan) == dict.fromkeys(DAYS, 1)


def test_a_day_that_breaks_a_new_rule_is_refused_and_keeps_its_rows(station: Station):
    rows = {
        build.day: build.rows
        for build in station.builds()
        if build.table == RAW and build.succeeded
    }
    most = max(rows.values()) - 1
    version = station.lake.version(RAW)
    refused = [day for day in DAYS if rows[day] > most]
    source = station.project / "backfill_assets" / "datasets" / "outages" / "raw.py"
    before = source.read_text()
    named = ("--partitions", f"{FIRST}..{LAST}", "--target", RAW)
    refused_run = (
        "run",
        *named,
        "--yes",
        "--force",
        "--into",
        "live",
        "--canary",
        "0",
        "--reason",
        "a new rule",
    )
    stricter = before.replace("import has_rows, ", "import has_rows, rows_between, ")
    stricter = stricter.replace(
        "        has_rows(),\n", f"        has_rows(),\n        rows_between(at_most={most}),\n"
    )
    try:
        source.write_text(stricter)
        reload(station.dagster, BUNDLED)
        (audited,) = json.loads(
            station.backfill("audit", *named, "--json", code=1).splitlines()[-1]
        )["tables"].values()
        message = f"rows_between: {most + 1:,} rows; at least 0, at most {most:,} promised"
        assert audited == {
            "days": len(DAYS), "passed": len(DAYS) - len(refused), "not_judged": 0,
            "failed": {str(day): message for day in refused},
        }  # fmt: skip
        assert station.verdicts(RAW, "rows_between") == {
            str(day): day not in refused for day in DAYS
        }
        assert f"refused by an audit: {message}" in station.backfill(
            "status", "--why", RAW, str(refused[0])
        )
        assert message in station.backfill(*refused_run, code=1)
    finally:
        source.write_text(before)
        reload(station.dagster, BUNDLED)
    assert station.lake.version(RAW) == version


def changed_body(source: str) -> str:
    """The module with one more call in the body of `outage_events`."""
    head, name, rest = source.partition("def outage_events(")
    body, arrow, after = rest.partition("    return known.")
    assert name
    assert arrow
    return f"{head}{name}{body}    return known.where('true').{after}"


@contextmanager
def late_arrivals_wait(station: Station, go: Path) -> Iterator[None]:
    """Steps of features/late_arrivals compute when the file `go` is there."""
    source = station.project / "backfill_assets" / "datasets" / "outages" / "lateness.py"
    before = source.read_text()
    imports, first, after = before.partition("\nfrom pyspark")
    held = f"    while not Path({str(go)!r}).exists():\n        sleep(0.1)\n"
    head, body, rest = after.partition("    lag = F.unix_timestamp")
    assert body
    clock = "\nfrom pathlib import Path\nfrom time import sleep\n"
    source.write_text(f"{imports}{clock}{first}{head}{held}{body}{rest}")
    try:
        reload(station.dagster, BUNDLED)
        yield
    finally:
        go.touch()
        source.write_text(before)
        reload(station.dagster, BUNDLED)


def test_a_publication_waits_for_a_half_done_run_and_a_new_run_for_the_publication(
    station: Station, tmp_path: Path
):
    shadow = ("--partitions", str(FIRST), "--target", RAW, "--force", "--into", "shadow")
    reason = ("--reason", "runs are waited for")
    plan = station.asked_json("run", *shadow, "--canary", "0", *reason, "--yes")["plan"]
    go = tmp_path / "go"

    def launched(*tables: str, **options: bool) -> Launched:
        days = dict.fromkeys(tables, DAYS)
        return station.dagster.launch(days, options=options, tags={})

    def built(run: Launched) -> list[Build]:
        return [build for build in station.builds() if build.run == run.id]

    with late_arrivals_wait(station, go):
        half_done = launched(UPDATES, LATE)
        eventually(lambda: built(half_done), what="the first table is committed")
        station.backfill("verify", plan)
        publication = station.started("publish", plan)
        assert publication.stdout
        assert half_done.id[:8] in next(
            line for line in publication.stdout if line.startswith("Waiting: ")
        )
        new = launched(RAW, force=True)
        station.process_of(new)
        go.touch()
        assert f"Plan {plan} is published as release " in ended(publication, 0)
        for run in (half_done, new):
            assert station.finished(run) == "SUCCESS"
    published = Plans(str(station.home / "lake")).history(plan)[-1].at
    assert max(build.at for build in built(half_done)) < published
    assert min(build.at for build in built(new)) > published


def test_a_server_that_is_not_there_is_said_and_nothing_is_noted(station: Station, tmp_path: Path):
    env = dict(station.env) | {"BACKFILL_DAGSTER_URL": "http://127.0.0.1:9"}
    plan = station.asked_json("plan", *CHUNKS[1:], "--reason", "no server")["id"]
    away = Station(station.dagster, station.home, station.landing, station.project, env, station.up)
    assert env["BACKFILL_DAGSTER_URL"] in away.backfill("run", plan, code=3)
    assert station.asked_json("show", plan)["events"] == []
