"""The two most telling of the drill's stops (`python -m tests.drills.hard_stops` makes all of
them), on real servers.
"""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.drills.hard_stops import Drill, drill_on, kill
from tests.worlds.station import ended, eventually


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Iterator[Drill]:
    """Servers that use the test session's engine: what is killed is everything else."""
    with drill_on(tmp_path_factory.mktemp("stops"), own_engine=False) as drill:
        yield drill


@pytest.mark.scale
def test_after_everything_is_killed_up_and_resume_build_the_rest(drill: Drill):
    """About 25 s: a start of the servers, and the runs of a day before and after it."""
    plan, command, _ = drill.begin("in a step", runs=1)
    at_work = set(drill.runs(plan))
    kill([command.pid, *(process.pid for process in drill.family())])
    command.communicate()
    drill.open_gates()
    drill.up.start()
    assert f"Plan {plan}: done" in ended(drill.station.started("resume", plan), 0)
    assert (len(drill.built(plan)), set(drill.built(plan).values())) == (2, {1})
    eventually(
        lambda: not drill.held_places(), what="every place free, and no run unfinished", patience=60
    )
    assert "FAILURE" in {status for run, status in drill.runs(plan).items() if run in at_work}


@pytest.mark.nightly
def test_a_server_that_outlives_a_killed_up_is_named_and_ended_by_the_next_one(drill: Drill):
    """About 15 s: a start of the servers. The others end by themselves, with their parent."""
    before = drill.family()
    webserver = drill.children["webserver"]
    assert drill.up.process
    os.kill(webserver, signal.SIGSTOP)  # it cannot end, until it is continued
    kill([drill.up.process.pid])
    drill.up.process.wait()
    log = drill.station.home / "up.log"
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(drill.up.start)
        try:
            eventually(
                lambda: "Ending what it left running" in log.read_text(),
                what="the webserver was found",
                patience=60,
            )
        finally:
            os.kill(webserver, signal.SIGCONT)
        started.result()
    (line,) = [line for line in log.read_text().splitlines() if "was killed" in line]
    assert f"webserver (process {webserver})" in line

    def alive() -> list[psutil.Process]:
        return [
            each for each in before if each.is_running() and each.status() != psutil.STATUS_ZOMBIE
        ]

    # Those that end with their parent first end what they have started: nobody waits for them but
    # this test.
    eventually(
        lambda: not alive(), what="every process of the killed servers has ended", patience=60
    )
