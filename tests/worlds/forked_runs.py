"""A run starter, and a Dagster instance that launches runs of a small job through it."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.launcher import LaunchRunContext
from dagster._core.utils import make_new_run_id

from backfill_assets.dagster_client.tags import PROCESS
from backfill_assets.orchestration.local import run_starter
from backfill_assets.orchestration.local.run_launcher import process_of
from backfill_assets.servers.child import Child, stop
from tests.worlds.station import eventually

LAUNCHER = {
    "module": "backfill_assets.orchestration.local.run_launcher",
    "class": "ForkingRunLauncher",
}
TIMEOUT_S = 120.0

WRITES = """
from pathlib import Path
from dagster import in_process_executor, job, op

@op
def write():
    Path({path!r}).write_text({text!r})

@job(executor_def=in_process_executor)
def build():
    write()
"""
# Nobody waits for it: the step is ended by the test.
WAITS = """
import threading
from pathlib import Path
from dagster import in_process_executor, job, op

@op
def write():
    Path({path!r}).write_text({text!r})
    threading.Event().wait(600)

@job(executor_def=in_process_executor)
def build():
    write()
"""
# What a step is like that waits for an engine that is gone.
STUBBORN = WAITS.replace(
    "    threading.Event().wait(600)",
    """
    while True:
        try:
            threading.Event().wait(600)
        except BaseException:
            pass
""",
)


@contextmanager
def run_starter_in(folder: Path, patience: float = run_starter.PATIENCE_S) -> Iterator[Child]:
    """A run starter that listens on `folder / "starter"`."""
    command = [sys.executable, "-P", run_starter.__file__, str(folder / "starter"), str(patience)]
    starter = Child("run-starter", command, dict(os.environ), folder / "starter.log", folder)
    starter.start()
    try:
        eventually(
            lambda: (folder / "starter").exists() or not starter.alive,
            what="the run starter",
            patience=TIMEOUT_S,
        )
        assert starter.alive, starter.log_tail(20)
        yield starter
    finally:
        stop([starter], patience=5)


@dataclass
class Launches:
    """Runs of the job that `folder / "job.py"` declares, launched in `instance`."""

    folder: Path
    instance: DagsterInstance

    @property
    def written(self) -> Path:
        return self.folder / "written"

    def declare(self, source: str, text: str) -> None:
        """Make `source` the job, whose step writes `text`."""
        (self.folder / "job.py").write_text(source.format(path=str(self.written), text=text))

    def create(self) -> DagsterRun:
        """A new run, not launched."""
        job = ReconstructableJob.for_file(str(self.folder / "job.py"), "build")
        return self.instance.create_run_for_job(
            job.get_definition(), job_code_origin=job.get_python_origin()
        )

    def launch(self) -> str:
        """The id of a new run, launched."""
        run = self.create()
        self.instance.run_launcher.launch_run(LaunchRunContext(run, workspace=None))
        return run.run_id

    def record(
        self, status: DagsterRunStatus, pid: int, tags: Mapping[str, str] | None = None
    ) -> str:
        """The id of a run that is recorded with this status in a process `pid` of another start, or
        with these `tags`.
        """
        self.declare(WRITES, "")
        job = ReconstructableJob.for_file(str(self.folder / "job.py"), "build")
        run_id = make_new_run_id()
        given = {PROCESS: f"{run_id} {pid} 0.00"} if tags is None else tags
        self.instance.create_run_for_job(
            job.get_definition(), run_id=run_id, status=status, tags=given
        )
        return run_id

    def launch_waiting(self, source: str = WAITS) -> DagsterRun:
        """A run whose step has begun and waits."""
        self.declare(source, "begun")
        self.written.unlink(missing_ok=True)
        run_id = self.launch()
        eventually(self.written.exists, what="the step began", patience=TIMEOUT_S)
        return self.run(run_id)

    def run(self, run_id: str) -> DagsterRun:
        run = self.instance.get_run_by_id(run_id)
        assert run, run_id
        return run

    def ended(self, run_id: str) -> DagsterRun:
        """The run, as soon as it is over."""
        eventually(
            lambda: self.run(run_id).is_finished, what=f"run {run_id} over", patience=TIMEOUT_S
        )
        return self.run(run_id)

    def gone(self, run: DagsterRun) -> None:
        """Wait until the run's process is gone."""
        eventually(lambda: process_of(run) is None, what="the process gone", patience=TIMEOUT_S)


@contextmanager
def launches_in(folder: Path) -> Iterator[Launches]:
    """Launches on an instance of its own in `folder`."""
    (folder / "dagster.yaml").write_text(
        json.dumps({"run_launcher": LAUNCHER, "telemetry": {"enabled": False}})
    )
    with DagsterInstance.from_config(str(folder)) as instance:
        yield Launches(folder, instance)
