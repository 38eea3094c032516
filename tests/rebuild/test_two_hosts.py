"""Hosts that share a lake in an object store: one plan, one lock, and clocks minutes apart.

A host is a process here, with its own time of day. Leases are short, and both have one Dagster.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from backfill_assets.errors import Conflict, RefusedByGuard
from backfill_assets.lake import leases
from backfill_assets.lake.leases import seconds_running
from backfill_assets.lake.locks import lock
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Ending, Progress
from backfill_assets.plan.request import PlanOptions
from backfill_assets.rebuild.carry_out import carry_out
from tests.worlds.clocks import moved_clock
from tests.worlds.http_server import Request, http_server
from tests.worlds.s3 import S3, s3_server
from tests.worlds.small_lake import DAYS, A, SmallLake
from tests.worlds.webservers import Server, chain

pytestmark = [pytest.mark.long, pytest.mark.services]

# Seconds of a lease. A store tells whole seconds, and two more are waited for.
LENGTH_S = 2.0
HOST = f"""
import sys, time
from backfill_assets.lake import leases
leases.LENGTH_S, leases.RENEWED_EVERY_S = {LENGTH_S}, 0.2
root, *arguments = sys.argv[1:]
"""
CARRIES_OUT = f"""{HOST}
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.rebuild.carry_out import carry_out
from backfill_assets.rebuild.launch import Launcher
from backfill_assets.rebuild.run import Rebuild
from tests.worlds.webservers import chain
url, plan = arguments
world = chain(root)
plan = world.plans.read(plan)
launcher = Launcher(plan, Dagster(url), world.plans, "host", time.sleep)
rebuild = Rebuild(launcher, world.remaining_reader(plan))
def follow(updates):
    for update in updates:
        if len(update.running) == 2:
            print("launched", flush=True)
    return update
carry_out(rebuild, follow)
"""
TAKES = f"""{HOST}
from backfill_assets.lake.leases import LockHeld
from backfill_assets.lake.locks import lock
try:
    with lock(root, "a", patience={3 * (LENGTH_S + leases.CLOCK_STEP_S)}):
        print("taken")
except LockHeld:
    print("held")
"""
WRITES = f"""{HOST}
from tests.worlds.small_lake import DAYS, SmallLake
print(SmallLake(root).write({{DAYS[0]: int(arguments[0])}}, of_run="host")[0].outcome)
"""
# Seconds by which the clock of the other host is ahead.
AHEAD = pytest.mark.parametrize("ahead", [-300, 300], ids=["behind", "ahead"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def root(server, monkeypatch) -> Any:
    for name, value in (server.environment() | {"AWS_ALLOW_HTTP": "true"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(leases, "LENGTH_S", LENGTH_S)
    monkeypatch.setattr(leases, "RENEWED_EVERY_S", 0.2)
    return server.place(f"lake-{uuid4().hex[:12]}")


@contextmanager
def host(script: str, ahead: int, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process with a clock of its own, until the block ends."""
    command = [sys.executable, "-c", script, *arguments]
    env = os.environ | moved_clock(ahead)
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


@contextmanager
def served(dagster: Server) -> Iterator[str]:
    """The address of a Dagster for other processes."""
    lock = Lock()

    def respond(request: Request) -> None:
        asked = httpx.Request("POST", "http://dagster", content=request.body())
        with lock:
            answer = dagster.answer(asked)
        request.answer(200, answer.content)

    with http_server(respond) as address:
        yield address


def carried_out(dagster: Server, plan: Plan) -> Progress:
    return carry_out(dagster.rebuild(plan), lambda updates: [*updates][-1])


@AHEAD
def test_a_plan_whose_host_was_killed_is_taken_over_when_its_lease_ends(root, ahead):
    dagster = chain(root, polls_needed=10**9)
    plan = dagster.planned(PlanOptions(days_per_run=3, canary=0, max_parallel=2))
    dagster.plans.keep(plan)
    with served(dagster) as url, host(CARRIES_OUT, ahead, root, url, plan.id) as other:
        assert said(other) == "launched"
        started = seconds_running()
        while seconds_running() - started < 2 * (LENGTH_S + leases.CLOCK_STEP_S):
            with pytest.raises(RefusedByGuard):
                carried_out(dagster, plan)
        other.kill()
        other.wait()
    before = len(dagster.launched)
    dagster.polls_needed = 1
    until_free = Retrying(
        retry=retry_if_exception_type(RefusedByGuard),
        stop=stop_after_delay(60),
        wait=wait_fixed(0.5),
    )
    end = until_free(carried_out, dagster, plan)
    assert (before, end.ending) == (2, Ending.DONE)
    assert set(dagster.built) == set(plan.partitions())
    assert set(dagster.built.values()) == set(dagster.requested().values()) == {1}


def test_a_host_that_was_suspended_between_two_chunks_launches_no_more(root, monkeypatch):
    monkeypatch.setattr(leases, "LENGTH_S", 600.0)
    monkeypatch.setattr(leases, "RENEWED_EVERY_S", 3600.0)  # its thread does not run
    dagster = chain(root, polls_needed=0)
    plan = dagster.planned(PlanOptions(days_per_run=3, canary=0, max_parallel=1))

    def suspended(seconds: float) -> None:
        monkeypatch.setattr(leases, "LENGTH_S", 0.0)  # more seconds than a lease have passed
        dagster.sleep(seconds)

    rebuild = dagster.rebuild(plan)
    rebuild.launcher = replace(rebuild.launcher, sleep=suspended)
    with pytest.raises(Conflict):
        carry_out(rebuild, lambda updates: [*updates][-1])
    assert len(dagster.launched) == 1
    assert len(plan.chunks) > 1


@AHEAD
def test_a_lock_that_is_held_is_not_taken_by_a_host_with_another_time(root, ahead):
    with lock(root, "a"), host(TAKES, ahead, root) as other:
        assert said(other) == "held"
    with host(TAKES, ahead, root) as other:
        assert said(other) == "taken"


@AHEAD
def test_the_last_commit_counts_and_not_the_latest_time_of_day(root, ahead):
    lake = SmallLake(root)
    lake.write({DAYS[0]: 1})
    with host(WRITES, ahead, root, "2") as other:
        assert said(other) == "accepted"
    assert lake.workspace.lake.latest({A.name: DAYS}).accepted[A.name, DAYS[0]].rows == 2
    lake.write({DAYS[0]: 3})
    assert lake.workspace.lake.latest({A.name: DAYS}).accepted[A.name, DAYS[0]].rows == 3
    assert lake.values() == {DAYS[0]: 3}
