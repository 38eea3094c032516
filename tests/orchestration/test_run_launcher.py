"""Runs that are forked from the run starter: real processes, a job of one step."""

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from dagster import DagsterRunStatus
from dagster._core.errors import DagsterInvariantViolationError
from dagster._core.launcher import WorkerStatus

from backfill_assets.dagster_client.tags import PROCESS
from backfill_assets.orchestration.local.run_launcher import arguments_of, process_of
from backfill_assets.orchestration.local.run_starter import start_run
from backfill_assets.servers.home import RUN_STARTER_VARIABLE
from tests.worlds.code_location import WRITES, Launches, launches_in, run_starter_in

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("starter")
    with run_starter_in(folder):
        yield folder / "starter"


@pytest.fixture
def launches(starter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    monkeypatch.setenv(RUN_STARTER_VARIABLE, str(starter))
    with launches_in(tmp_path) as launches:
        yield launches


def pid_of(launches: Launches, run_id: str) -> int:
    process = process_of(launches.run(run_id))
    assert process, "the run's process is gone"
    return process.pid


def test_a_run_executes_the_code_as_it_is_on_disk_when_it_begins(launches: Launches):
    for text in ("as first written", "as changed since"):
        launches.declare(WRITES, text)
        run = launches.ended(launches.launch())
        assert (run.status, launches.written.read_text()) == (DagsterRunStatus.SUCCESS, text)


def test_a_run_that_is_terminated_is_canceled_and_its_process_ends(launches: Launches):
    run = launches.launch_waiting()
    assert launches.instance.run_launcher.terminate(run.run_id)
    assert launches.ended(run.run_id).status == DagsterRunStatus.CANCELED
    launches.gone(run)


def test_a_killed_run_is_unhealthy_and_is_failed_by_the_starter(launches: Launches, golden):
    run = launches.launch_waiting()
    launcher = launches.instance.run_launcher
    assert launcher.check_run_worker_health(run).status == WorkerStatus.RUNNING
    os.kill(pid_of(launches, run.run_id), signal.SIGKILL)
    launches.gone(run)
    health = launcher.check_run_worker_health(run)
    assert health.status == WorkerStatus.FAILED
    golden(str(health.msg), PROCESS=run.tags[PROCESS])
    assert launches.ended(run.run_id).status == DagsterRunStatus.FAILURE
    messages = [entry.message for entry in launches.instance.all_logs(run.run_id)]
    (killed,) = [message for message in messages if "SIGKILL" in message]
    golden(killed.partition(". ")[0], "log", RUN=run.run_id)


def test_a_run_whose_process_is_gone_is_canceled_at_once_when_it_is_terminated(launches: Launches):
    run_id = launches.record(DagsterRunStatus.STARTED, no_such_process := 2**22 + 1)
    assert launches.run(run_id).tags[PROCESS] == f"{run_id} {no_such_process} 0.00"
    assert launches.instance.run_launcher.terminate(run_id)
    assert launches.run(run_id).status == DagsterRunStatus.CANCELED


def test_a_process_that_was_given_the_id_of_an_ended_one_is_not_taken_for_it(launches: Launches):
    run = launches.run(launches.record(DagsterRunStatus.STARTED, os.getpid()))
    assert launches.instance.run_launcher.check_run_worker_health(run).status == WorkerStatus.FAILED


def test_a_retry_is_not_judged_by_the_process_of_the_run_it_retries(launches: Launches):
    first = launches.run(launches.record(DagsterRunStatus.STARTED, 2**22 + 1))
    retry = launches.run(launches.record(DagsterRunStatus.STARTED, 0, tags=first.tags))
    assert (
        launches.instance.run_launcher.check_run_worker_health(retry).status == WorkerStatus.RUNNING
    )


def test_without_a_run_starter_the_code_server_launches_runs(launches: Launches, monkeypatch):
    monkeypatch.delenv(RUN_STARTER_VARIABLE)
    launches.declare(WRITES, "never")
    # Dagster's own launcher needs the workspace, in which the code server is; this launch has none.
    with pytest.raises(
        DagsterInvariantViolationError, match="DefaultRunLauncher requires a workspace"
    ):
        launches.launch()
    assert not launches.written.exists()


def test_a_starter_that_is_being_restarted_is_waited_for(
    launches: Launches, starter: Path, tmp_path, monkeypatch
):
    """Started by the code server instead, the run would have no process that is known, and could
    not be seen to have died.
    """
    monkeypatch.setenv(RUN_STARTER_VARIABLE, str(tmp_path / "starter"))
    launches.declare(WRITES, "written")
    with ThreadPoolExecutor(1) as pool:
        launched = pool.submit(launches.launch)
        with pytest.raises(TimeoutError):
            launched.result(timeout=0.5)
        (tmp_path / "starter").symlink_to(starter)
        assert launches.ended(launched.result()).status == DagsterRunStatus.SUCCESS


def test_a_process_whose_launcher_is_gone_before_it_recorded_it_does_not_begin(
    launches: Launches, starter: Path
):
    launches.declare(WRITES, "never")
    run = launches.create()
    with (
        pytest.raises(RuntimeError, match="killed"),
        start_run(starter, arguments_of(run, launches.instance)),
    ):
        raise RuntimeError("killed")
    assert launches.ended(run.run_id).status == DagsterRunStatus.FAILURE
    assert not launches.written.exists()


def test_a_launch_whose_answer_is_lost_is_not_launched_by_the_code_server_too(
    launches: Launches, tmp_path, monkeypatch
):
    monkeypatch.setenv(RUN_STARTER_VARIABLE, str(tmp_path / "silent"))
    launches.declare(WRITES, "never")
    with socket.socket(socket.AF_UNIX) as silent, ThreadPoolExecutor(1) as pool:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        hung_up = pool.submit(lambda: silent.accept()[0].close())
        with pytest.raises((ConnectionAbortedError, ConnectionResetError, BrokenPipeError)):
            launches.launch()
        hung_up.result()
