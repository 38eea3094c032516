"""What happens when a server dies. The children are small Python processes; nothing of Dagster or Spark runs."""

import os
import sys
from pathlib import Path

import pytest

from backfill_assets.errors import ServiceUnavailable
from backfill_assets.lake.engine import Engine
from backfill_assets.servers.child import Child, end
from backfill_assets.servers.place import running
from backfill_assets.servers.stack import TOO_OFTEN, Servers, planned
from backfill_assets.settings import read_settings

# Nobody waits for this: a server that stays up until the test ends it.
SLEEPING = "import time; time.sleep(600)"
DYING = "print('out of memory'); raise SystemExit(7)"


@pytest.fixture
def servers(tmp_path: Path):
    chosen = read_settings(home=tmp_path / "home", lake="", landing="")
    chosen.home.mkdir()

    def child(name: str, code: str) -> Child:
        return Child(name, [sys.executable, "-c", code], dict(os.environ), chosen.home / "logs" / f"{name}.log", tmp_path)

    told: list[str] = []
    made = Servers(chosen, 3111, Engine(15999), {n: child(n, SLEEPING) for n in ("webserver", "daemon", "engine")}, told.append)
    for each in made.children.values():
        each.start()
    yield made, told
    end(made.children.values())


def killed(child: Child) -> None:
    assert child.process is not None
    child.process.kill()
    child.process.wait()


def test_an_engine_that_died_is_started_again_and_said(servers):
    made, told = servers
    before = made.children["engine"].pid
    killed(made.children["engine"])
    made.check()
    engine = made.children["engine"]
    assert (engine.alive, engine.pid != before) == (True, True)
    assert told == [f"The engine died and was started again (process {engine.pid}). Log: {engine.log}"]
    found = running(made.chosen.home) or pytest.fail("no record")
    # The record names this test's process as the one that runs them.
    assert (found.children["engine"], found.engine_port) == (engine.pid, 15999)


def test_an_engine_that_dies_again_and_again_is_given_up_with_its_last_words(servers):
    made, told = servers
    engine = made.children["engine"]
    killed(engine)
    engine.command = [sys.executable, "-c", DYING]
    for _ in range(TOO_OFTEN):
        made.check()
        assert engine.process.wait(timeout=30) == 7
    with pytest.raises(ServiceUnavailable, match=r"out of memory\nIts log: .*engine.log. It was restarted 3 times"):
        made.check()
    assert len(told) == TOO_OFTEN


@pytest.mark.parametrize("name", ["webserver", "daemon"])
def test_a_server_that_dies_ends_everything_and_its_log_is_named(servers, name):
    made, _ = servers
    killed(made.children[name])
    with pytest.raises(ServiceUnavailable, match=rf"The {name} ended by itself \(exit code -9\)(.|\n)*{name}.log"):
        made.check()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"spark_remote": "sc://cluster:15002"}, id="a server of the user's own"),
        pytest.param({"spark_master": "spark://cluster:7077"}, id="a driver for each run"),
    ],
)
def test_no_engine_is_started_beside(tmp_path, given):
    made = planned(read_settings(home=tmp_path, lake="", landing="", **given), 3111, print)
    assert (made.engine, sorted(made.children)) == (None, ["daemon", "webserver"])
    env = made.children["daemon"].environment
    assert {k: v for k, v in env.items() if k in ("BACKFILL_SPARK_REMOTE", "BACKFILL_SPARK_MASTER") and v} == {
        f"BACKFILL_{name.upper()}": value for name, value in given.items()
    }
