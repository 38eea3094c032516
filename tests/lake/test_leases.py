"""Locks, markers and budgets of a lake in an object store: across processes and hosts, by leases.

A host is a process here, with a store's clock between them. A minute passes by shorter leases, and
where a test waits for it, by the store's own times.
"""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from uuid import uuid4

import obstore
import pytest

from backfill_assets.errors import Conflict, RefusedByGuard, ServiceUnavailable
from backfill_assets.lake import leases
from backfill_assets.lake.leases import LockHeld, leased
from backfill_assets.lake.locks import lock, writing
from backfill_assets.lake.object_store import RETRIES, store_at
from backfill_assets.lake.running import (
    RunningStep,
    announce,
    announced,
    mark_running,
    running_steps,
)
from backfill_assets.plan.store import Plans
from backfill_assets.sources.http.budget import Budget, Limit
from backfill_assets.tries import wait_until
from tests.worlds.deliveries import day, days
from tests.worlds.faulty_s3 import Fault, Rule, faulty_s3
from tests.worlds.s3 import KEY, S3, SECRET, s3_server

pytestmark = pytest.mark.long

WORK = RunningStep("raw/events", days(0, 2), "a run", "a plan", datetime(2019, 9, 1, tzinfo=UTC))
# Seconds of the tests' leases. A store tells whole seconds, and two more are waited for.
SHORT_S = 1.0

HOLDS = """
import sys, time
from contextlib import ExitStack
from datetime import date
from backfill_assets.lake import leases
from backfill_assets.lake.locks import lock
from backfill_assets.lake.running import RunningStep, announce, mark_running
leases.LENGTH_S, leases.RENEWED_EVERY_S = 1.0, 0.2
root = sys.argv[1]
with ExitStack() as held:
    held.enter_context(lock(root, "raw.events"))
    held.enter_context(mark_running(root, RunningStep("raw/events", [date(2019, 8, 15)], "killed")))
    held.enter_context(announce(root, "an act"))
    print("held", flush=True)
    time.sleep(600)  # until the test kills it
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def root(server, monkeypatch) -> str:
    """A new lake. Leases are short."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(leases, "LENGTH_S", SHORT_S)
    monkeypatch.setattr(leases, "RENEWED_EVERY_S", SHORT_S / 5)
    monkeypatch.setattr(leases, "_LOOKS_EVERY_S", 0.05)
    return server.place(f"lake-{uuid4().hex[:12]}")


def seen(root: str) -> dict[object, str]:
    return {partition: work.run for partition, work in running_steps(root).items()}


def test_one_process_at_a_time_has_a_lock_and_another_gets_it_at_once_after(root):
    with lock(root, "raw.events"):
        with pytest.raises(LockHeld), lock(root, "raw.events"):
            pass
        with lock(root, "raw.others"):
            pass
    with lock(root, "raw.events") as refuse_lost:
        refuse_lost()


def test_a_lock_is_held_for_longer_than_a_lease_while_its_process_works(root, server):
    with leased(f"{root}/_locks", "long.lock", 0) as lease:
        started = leases.seconds_running()
        assert wait_until(lambda: leases.seconds_running() - started > 4 * SHORT_S, 60)
        assert lease.is_held
        with pytest.raises(LockHeld), leased(f"{root}/_locks", "long.lock", 0):
            pass


def test_a_killed_process_loses_its_lock_and_its_markers_when_its_lease_ends(root):
    process = subprocess.Popen([sys.executable, "-c", HOLDS, root], stdout=subprocess.PIPE)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        assert seen(root) == {("raw/events", day(0)): "killed"}
        assert announced(root) == ["an act"]
        with pytest.raises(LockHeld), lock(root, "raw.events"):
            pass
    finally:
        process.kill()
        process.wait()
    with writing(root, "raw/events"):  # after waiting for the end of its lease
        # Each of its markers has a lease that was renewed at another time.
        assert wait_until(lambda: not [*seen(root), *announced(root)], 60)
    with mark_running(root, WORK):
        assert set(seen(root)) == {("raw/events", day(0)), ("raw/events", day(2))}
        chunks = obstore.list(store_at(f"{root}/_locks"), "running")
        assert sum(len(chunk) for chunk in chunks) == 1
    assert seen(root) == {}


def test_a_holder_that_was_suspended_is_told_so_and_ends_nobody_elses_lease(root, monkeypatch):
    monkeypatch.setattr(leases, "RENEWED_EVERY_S", 3600.0)  # its thread does not run
    locks = f"{root}/_locks"
    with leased(locks, "a.lock", 0) as lease, leased(locks, "a.lock", 60):
        assert not lease.is_held
        with pytest.raises(Conflict):
            lease.refuse_lost()
        lease.end()
        with pytest.raises(LockHeld), leased(locks, "a.lock", 0):
            pass


def test_a_lease_whose_answers_are_lost_is_taken_renewed_and_given_back(root, server, monkeypatch):
    lost = Rule(Fault.LOSE, "PUT", "a.lock")
    with faulty_s3(server.endpoint, lost) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with leased(f"{root}/_locks", "a.lock", 0) as lease:
            assert proxy.set(lost) == [1]
            assert lease.is_held
        with leased(f"{root}/_locks", "a.lock", 0):
            pass


def test_a_renewal_that_arrived_although_it_failed_is_not_another_holder(root, server, monkeypatch):
    monkeypatch.setattr(leases, "LENGTH_S", 60.0)
    file = server.folder / root.removeprefix("s3://") / "_locks" / "a.lock"

    with faulty_s3(server.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with leased(f"{root}/_locks", "a.lock", 0) as lease:
            written = {file.read_bytes()}

            def writes() -> int:
                written.add(file.read_bytes())
                return len(written)

            proxy.set(Rule(Fault.LOSE, "PUT", "a.lock"), Rule(Fault.CUT, "GET", times=RETRIES + 1))
            assert wait_until(lambda: not lease.is_held or writes() > 3, 60)
            assert proxy.set() == [1, RETRIES + 1]
            assert lease.is_held
        with leased(f"{root}/_locks", "a.lock", 0):
            pass


def test_a_lease_is_renewed_with_the_settings_of_that_time(root, server, tmp_path, monkeypatch):
    for name in server.environment():
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))

    def set_profile(endpoint: str) -> None:
        keys = f"aws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
        (tmp_path / "new").write_text(f"[default]\n{keys}endpoint_url = {endpoint}\n")
        (tmp_path / "new").replace(tmp_path / "credentials")

    with faulty_s3(server.endpoint) as proxy:
        set_profile(proxy.endpoint)
        with leased(f"{root}/_locks", "a.lock", 0) as lease:
            proxy.set(Rule(Fault.EXPIRED, times=0))
            set_profile(server.endpoint)
            started = leases.seconds_running()
            assert wait_until(lambda: leases.seconds_running() - started > 3 * SHORT_S, 60)
            assert lease.is_held


def test_a_marker_that_cannot_be_read_is_left_out(root):
    obstore.put(store_at(f"{root}/_locks"), "running/other.json", b"\xff")
    with mark_running(root, WORK):
        assert set(seen(root)) == {("raw/events", day(0)), ("raw/events", day(2))}


def test_a_store_that_is_away_gives_no_lock(root, monkeypatch):
    monkeypatch.setattr(leases, "store_at", partial(store_at, retries=0))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ServiceUnavailable), lock(root, "raw.events"):
        pass
    with mark_running(root, WORK), announce(root, "an act"):
        assert (seen(root), announced(root)) == ({}, [])


def counted(arguments: tuple[str, int]) -> None:
    """Add one to the number in an object, so often, under a lock."""
    root, times = arguments
    leases._LOOKS_EVERY_S = 0.01
    store = store_at(root)
    for _ in range(times):
        with lock(root, "number", patience=120):
            number = int(bytes(obstore.get(store, "number").bytes()))
            obstore.put(store, "number", str(number + 1).encode())


def test_processes_that_write_under_a_lock_lose_no_update(root):
    obstore.put(store_at(root), "number", b"0")
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        list(pool.map(counted, [(root, 8)] * 3))
    assert bytes(obstore.get(store_at(root), "number").bytes()) == b"24"


def test_a_plan_is_carried_out_by_one_host_at_a_time(root):
    with Plans(root).exclusive("abc"):
        with pytest.raises(RefusedByGuard), Plans(root).exclusive("abc"):
            pass
        with Plans(root).exclusive("def"):
            pass
    with Plans(root).exclusive("abc"):
        pass


def test_hosts_share_the_budget_of_a_service(root):
    limits = [Limit(5, 3600.0)]
    hosts = [Budget(f"{root}/_answers/weather/_budget.sqlite", limits, 60.0) for _ in range(4)]
    with ThreadPoolExecutor(4) as at_once:
        slots = list(at_once.map(lambda n: hosts[n % 4].take(), range(8)))
    granted = [slot for slot in slots if not slot.wait]
    assert len(granted) == 5
    assert len({slot.id for slot in granted}) == 5
    for slot in granted:
        hosts[0].answered(slot)
    assert 3500 < hosts[1].take().wait <= 3602
    assert 3500 < hosts[1].wait().wait <= 3602
    hosts[2].pause(30)
    assert hosts[3].take().wait > 3500
