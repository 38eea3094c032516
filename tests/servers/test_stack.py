"""What happens when a server dies. The children are small Python processes; neither Dagster nor
Spark runs.
"""

import os
import sys
from pathlib import Path

import psutil
import pytest

from backfill_assets.errors import ServiceUnavailable
from backfill_assets.lake.spark.engine import TOKEN_VARIABLE, Engine
from backfill_assets.servers.child import Child, ProcessId, process_tree, stop
from backfill_assets.servers.home import servers_record
from backfill_assets.servers.parts import ServerPlace
from backfill_assets.servers.stack import MAX_RESTARTS, Servers, servers_of
from backfill_assets.settings import read_settings
from backfill_assets.tries import wait_until

pytestmark = pytest.mark.servers

# A server that runs until the test stops it; nothing waits for the sleep.
SLEEPING = "import time; time.sleep(600)"
DYING = "print('out of memory'); raise SystemExit(7)"


@pytest.fixture
def servers(tmp_path: Path):
    settings = read_settings(home=tmp_path / "home", lake="", landing="")
    settings.home.mkdir()

    def child(name: str, code: str) -> Child:
        return Child(
            name,
            [sys.executable, "-c", code],
            dict(os.environ),
            settings.home / "logs" / f"{name}.log",
            tmp_path,
        )

    messages: list[str] = []
    children = {name: child(name, SLEEPING) for name in ("webserver", "daemon", "engine")}
    for process in children.values():
        process.start()
    yield (
        Servers(settings, ServerPlace(3111), Engine(15999), children, tmp_path, messages.append),
        messages,
    )
    stop(children.values())


def kill(child: Child) -> None:
    assert child.process is not None
    child.process.kill()
    child.process.wait()


def test_an_engine_that_died_is_restarted_and_a_message_says_so(servers):
    stack, messages = servers
    before = stack.children["engine"].pid
    kill(stack.children["engine"])
    stack.check()
    engine = stack.children["engine"]
    assert (engine.alive, engine.pid != before) == (True, True)
    (message,) = messages
    assert f"(process {engine.pid})" in message
    assert str(engine.log) in message
    record = servers_record(stack.settings.home) or pytest.fail("no record")
    assert (record.children["engine"], record.engine_port) == (ProcessId.of(engine.pid), 15999)


def test_an_engine_that_keeps_dying_is_given_up_with_the_end_of_its_log(servers, golden):
    stack, messages = servers
    engine = stack.children["engine"]
    kill(engine)
    engine.command = [sys.executable, "-c", DYING]
    for _ in range(MAX_RESTARTS):
        stack.check()
        assert engine.process.wait(timeout=30) == 7
    with pytest.raises(ServiceUnavailable) as raised:
        stack.check()
    golden(str(raised.value))
    assert len(messages) == MAX_RESTARTS


@pytest.mark.parametrize("name", ["webserver", "daemon"])
def test_a_server_that_dies_is_an_error_that_names_its_log(servers, name):
    stack, _ = servers
    kill(stack.children[name])
    with pytest.raises(ServiceUnavailable, match=rf"{name} .*-9(.|\n)*{name}.log"):
        stack.check()


@pytest.mark.scale
def test_killed_servers_end_at_once_with_what_they_started_and_can_be_started_again(servers):
    stack, _ = servers
    daemon = stack.children["daemon"]
    kill(daemon)
    starts_another = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPING!r}])"
    daemon.command = [sys.executable, "-c", starts_another]
    daemon.start()
    assert wait_until(lambda: len(process_tree(daemon.pid)) == 2, 60)
    kill(stack.children["engine"])  # a server that has died already is no obstacle
    before = {pid: psutil.Process(pid) for pid in (*pids(stack), process_tree(daemon.pid)[1].pid)}
    assert set(stack.kill()) == before.keys()
    assert not any(process.is_running() for process in before.values())
    for child in stack.children.values():
        assert not child.alive
        child.start()
    assert all(child.alive for child in stack.children.values())
    assert before.keys() & set(pids(stack)) == set()


def pids(stack: Servers) -> list[int]:
    """The processes of the servers that run."""
    return [child.pid for child in stack.children.values() if child.alive]


def test_the_engines_token_is_given_to_the_engine_and_to_what_starts_runs(tmp_path, monkeypatch):
    settings = read_settings(home=tmp_path, lake="", landing="")
    monkeypatch.setenv(TOKEN_VARIABLE, "of an engine of the user's own")
    stack = servers_of(settings, ServerPlace(3111), print, tmp_path)
    assert stack.engine
    tokens = {name: child.environment.get(TOKEN_VARIABLE) for name, child in stack.children.items()}
    own = dict.fromkeys(("engine", "run-starter", "code-server"), stack.engine.token)
    assert tokens == own | dict.fromkeys(("webserver", "daemon"))


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"spark_remote": "sc://cluster:15002"}, id="a server of the user's own"),
        pytest.param({"spark_master": "spark://cluster:7077"}, id="a driver for each run"),
    ],
)
def test_no_engine_is_started_where_spark_runs_elsewhere(tmp_path, given):
    stack = servers_of(
        read_settings(home=tmp_path, lake="", landing="", shared_disk=True, **given),
        ServerPlace(3111),
        print,
        tmp_path,
    )
    assert (stack.engine, sorted(stack.children)) == (
        None,
        ["code-server", "daemon", "run-starter", "webserver"],
    )
    env = stack.children["daemon"].environment
    assert {
        k: v
        for k, v in env.items()
        if k in ("BACKFILL_SPARK_REMOTE", "BACKFILL_SPARK_MASTER") and v
    } == {f"BACKFILL_{name.upper()}": value for name, value in given.items()}
