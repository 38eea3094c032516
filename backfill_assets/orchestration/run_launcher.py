"""Dagster's run launcher on servers that `backfill up` started: each run is forked from the run starter.

Without a starter (`dagster dev`, servers of one's own) runs are started by the code server, as Dagster does by default.
The process is kept with the run in a tag, so that any process can end the run, or see that its process is gone.
"""

import os
import signal
from pathlib import Path

import psutil
from dagster import DagsterRun, DefaultRunLauncher
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._grpc.types import ExecuteRunArgs

from backfill_assets.dagster_client.tags import PROCESS
from backfill_assets.orchestration.run_starter import start_run
from backfill_assets.servers.home import RUN_STARTER_VARIABLE

# A process id is given again; by its start time a process is known. The system's clock may be set meanwhile.
SAME_START_S = 2.0


class ForkingRunLauncher(DefaultRunLauncher):
    """Launches runs through the run starter, and knows whether a run's process is alive."""

    def launch_run(self, context: LaunchRunContext) -> None:
        run, starter = context.dagster_run, os.environ.get(RUN_STARTER_VARIABLE)
        if not starter or run.job_code_origin is None:
            super().launch_run(context)
            return
        args = ExecuteRunArgs(run.job_code_origin, run.run_id, self._instance.get_ref(), set_exit_code_on_failure=None)
        try:
            with start_run(Path(starter), list(args.get_command_args()[-3:])) as pid:
                self._instance.add_run_tags(run.run_id, {PROCESS: as_tag(run.run_id, pid)})
        except (ConnectionRefusedError, FileNotFoundError):  # it is being restarted
            super().launch_run(context)
            return
        self._run_ids.add(run.run_id)

    def terminate(self, run_id: str) -> bool:
        """Interrupt the run, which then reports itself canceled; a run whose process is gone is reported canceled here."""
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        if run is None or run.is_finished or not forked(run):
            return super().terminate(run_id)
        self._instance.report_run_canceling(run)
        process = process_of(run)
        if process is None:
            self._instance.report_run_canceled(run)
        else:
            process.send_signal(signal.SIGINT)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """FAILED if the run's process is gone. Runs of a code server are watched by that server, and called RUNNING here."""
        if not forked(run) or process_of(run):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"The process of the run is gone ({run.tags[PROCESS]})")


def as_tag(run_id: str, pid: int) -> str:
    """A process as `RUN_ID PID START`, START in seconds since 1970."""
    return f"{run_id} {pid} {psutil.Process(pid).create_time():.2f}"


def forked(run: DagsterRun) -> bool:
    """Whether the run was started by a run starter. Dagster copies tags to a retry, so the tag names its run."""
    return run.tags.get(PROCESS, "").startswith(run.run_id)


def process_of(run: DagsterRun) -> psutil.Process | None:
    """The process of a forked run; None if it is gone."""
    _, pid, start = run.tags[PROCESS].split(" ")
    try:
        process = psutil.Process(int(pid))
        same = abs(process.create_time() - float(start)) < SAME_START_S
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None
