"""Dagster's run launcher for `backfill up`: each run is forked from the run starter.

Without a run starter (`dagster dev`, your own servers) the code server starts runs, which is
Dagster's default. A tag of the run names its process, so that any process can stop the run, or see
that its process is gone.
"""

import os
import signal
from pathlib import Path

import psutil
from dagster import DagsterInstance, DagsterRun, DefaultRunLauncher
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._grpc.types import ExecuteRunArgs
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from backfill_assets.dagster_client.tags import PROCESS
from backfill_assets.orchestration.local.run_starter import start_run
from backfill_assets.servers.child import ProcessId
from backfill_assets.servers.home import RUN_STARTER_VARIABLE

# A starter that died restarts within 5 s. Servers that are stopping wait 20 s for their daemon.
STARTER_S = 15.0
NO_STARTER = (ConnectionRefusedError, FileNotFoundError)


class ForkingRunLauncher(DefaultRunLauncher):
    """Launcher that forks runs from the run starter, and checks their processes."""

    def launch_run(self, context: LaunchRunContext) -> None:
        run = context.dagster_run
        starter = os.environ.get(RUN_STARTER_VARIABLE)
        if not starter or run.job_code_origin is None:
            super().launch_run(context)
            return
        again = retry_if_exception_type(NO_STARTER)
        Retrying(retry=again, stop=stop_after_delay(STARTER_S), wait=wait_fixed(0.2), reraise=True)(
            self._launch, run, Path(starter)
        )
        self._run_ids.add(run.run_id)

    def _launch(self, run: DagsterRun, starter: Path) -> None:
        with start_run(starter, arguments_of(run, self._instance)) as pid:
            # `RUN_ID PID START`; see ProcessId for START.
            process = f"{run.run_id} {pid} {ProcessId.of(pid).start:.2f}"
            self._instance.add_run_tags(run.run_id, {PROCESS: process})

    def terminate(self, run_id: str) -> bool:
        """Interrupt the run, which then reports that it was canceled.

        If the run's process is gone, this method reports it.
        """
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
        """FAILED if the run's process is gone. A code server watches its own runs."""
        if not forked(run) or process_of(run):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(
            WorkerStatus.FAILED, f"The process of the run is gone ({run.tags[PROCESS]})"
        )


def arguments_of(run: DagsterRun, instance: DagsterInstance) -> list[str]:
    """The arguments of the command `dagster` that executes a run."""
    assert run.job_code_origin, "a run that is launched has the code of its job"
    args = ExecuteRunArgs(
        run.job_code_origin, run.run_id, instance.get_ref(), set_exit_code_on_failure=None
    )
    return list(args.get_command_args()[-3:])


def forked(run: DagsterRun) -> bool:
    """True if a run starter started the run.

    Dagster copies tags to a retry, so the tag names its run.
    """
    return run.tags.get(PROCESS, "").startswith(run.run_id)


def process_of(run: DagsterRun) -> psutil.Process | None:
    """The process of a forked run; None if it is gone."""
    _, pid, start = run.tags[PROCESS].split(" ")
    return ProcessId(int(pid), float(start)).find()
