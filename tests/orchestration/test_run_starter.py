"""The process that runs are forked from: what it must not do, and runs without it."""

import ast
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterRunStatus

from backfill_assets.orchestration.local import run_starter
from backfill_assets.orchestration.local.run_starter import start_run
from backfill_assets.servers.child import Child
from backfill_assets.servers.home import RUN_STARTER_VARIABLE
from tests.worlds.code_location import STUBBORN, launches_in, run_starter_in

pytestmark = pytest.mark.servers


def test_the_starter_imports_nothing_that_a_run_must_load_as_it_is_on_disk():
    tree = ast.parse(Path(run_starter.__file__).read_text())
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    assert [
        name for name in (*names, *run_starter.LIBRARIES) if name.startswith("backfill_assets")
    ] == []


def test_where_no_starter_listens_nothing_is_started_and_the_error_says_so(tmp_path: Path):
    with pytest.raises(FileNotFoundError), start_run(tmp_path / "starter", ["--version"]):
        pass


@pytest.fixture
def starter(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Child]:
    """A run starter; its parameter is how long an interrupted run may take to end."""
    monkeypatch.setenv(RUN_STARTER_VARIABLE, str(tmp_path / "starter"))
    with run_starter_in(tmp_path, getattr(request, "param", run_starter.PATIENCE_S)) as starter:
        yield starter


def test_the_starter_survives_bad_clients_and_ends_its_runs_with_itself(starter, tmp_path: Path):
    for request in (b"", b"nonsense\n"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "starter"))
            client.sendall(request)
    with launches_in(tmp_path) as launches:
        run = launches.launch_waiting()
        starter.process.kill()
        assert launches.ended(run.run_id).status == DagsterRunStatus.FAILURE
        launches.gone(run)


@pytest.mark.parametrize("starter", [1.0], indirect=True, ids=["within a second"])
def test_a_run_that_goes_on_in_spite_of_being_interrupted_is_killed(starter, tmp_path: Path):
    with launches_in(tmp_path) as launches:
        run = launches.launch_waiting(STUBBORN)
        starter.process.kill()
        launches.gone(run)
        assert not launches.run(
            run.run_id
        ).is_finished  # it could not say so: the daemon will find it dead
