"""The run starter: a process that has imported the libraries of a run, and forks a process for each
run.

A run in a new Python spends three seconds of a core on importing Dagster, PySpark and pandas; a
forked one has them already. `backfill up` starts this file by its path (`python -P run_starter.py
SOCKET`), and nothing of this package or of a project is imported here: each run imports that code
as it is on disk. A library that was upgraded is seen after a restart.

A request on the socket is the arguments of a `dagster` command, as a line of JSON; the answer is
the process id. The process begins when the client sends GO, and ends at once if the client is gone:
a run whose process nobody has recorded could not be seen to have died. The folder of the socket
lets only its owner in.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

# What a run imports. Imports only: a channel, a session or a thread of Python's would not survive a
# fork. (The threads that OpenBLAS and jemalloc have are started again in the child by those
# libraries themselves.)
LIBRARIES = (
    "dagster._cli", "dagster_pyspark", "pandas", "pyarrow.dataset", "pyarrow.parquet", "deltalake.transaction", "grpc",
    "pyspark.sql.connect.session", "pyspark.sql.connect.functions", "pyspark.sql.connect.proto", "httpx", "pydantic_settings",
    "filelock", "psutil", "tenacity", "sqlalchemy.dialects.sqlite",
)  # fmt: skip

# How soon a process that ended is noticed, and its own starter's end by it; how long a client may
# take over its request.
REAP_EVERY_S = 0.5
LOOK_EVERY_S = 0.5
REQUEST_S = 5.0
# Reporting that it was interrupted takes a run a second. `backfill up` waits 20 s for its children.
PATIENCE_S = 15.0
GO = b"go"
NOT_BEGUN = "The launcher ended before it had recorded this process."


@contextmanager
def start_run(starter: Path, arguments: Sequence[str]) -> Iterator[int]:
    """Have the starter run `dagster` with these arguments; the id of the process, which begins when
    the block is left.

    If the block raises, the process ends without having begun. Raises ConnectionRefusedError or
    FileNotFoundError if no starter is there, and any other OSError if the starter ended meanwhile,
    which ends the process too.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(REQUEST_S)
        client.connect(str(starter))
        client.sendall(json.dumps(list(arguments)).encode() + b"\n")
        answer = client.recv(32)
        if not answer:
            raise ConnectionAbortedError("The run starter closed the connection without an answer.")
        yield int(answer)
        client.sendall(GO)


def main(path: str, patience: float = PATIENCE_S) -> None:
    for library in LIBRARIES:
        importlib.import_module(library)
    # What is imported stays; a collection in the child must not touch, and so copy, its pages.
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        Path(path).unlink(missing_ok=True)
        listening.bind(path)
        listening.listen(16)
        listening.settimeout(REAP_EVERY_S)
        work = serve(listening, patience)
    work()


def serve(listening: socket.socket, patience: float) -> Callable[[], None]:
    """Answer requests for ever; in a forked process, return what that process has to do."""
    running: dict[int, list[str]] = {}
    while True:
        with suppress(OSError):  # no child, or no process left to report with
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                arguments = running.pop(pid, None)
                if arguments and status and os.fork() == 0:
                    return partial(report_crash, arguments[-1], os.waitstatus_to_exitcode(status))
        try:
            client, _ = listening.accept()
        except TimeoutError:
            continue
        with client, suppress(OSError, ValueError):  # a client that hung up, or sent no JSON
            client.settimeout(REQUEST_S)
            with client.makefile("rb") as request:
                arguments = json.loads(request.readline())
            starter = os.getpid()
            pid = os.fork()
            if pid == 0:
                end_with_the_starter(starter, patience)
                return (
                    partial(run_dagster, arguments)
                    if told_to_begin(client)
                    else partial(sys.exit, NOT_BEGUN)
                )
            running[pid] = arguments
            client.sendall(str(pid).encode())


def told_to_begin(client: socket.socket) -> bool:
    """Wait until the client has recorded which process this is, or is gone."""
    client.settimeout(None)
    try:
        return client.recv(len(GO)) == GO
    except OSError:  # must not make this process go on as a second starter
        return False


def end_with_the_starter(starter: int, patience: float) -> None:
    """End this process when the starter has ended in whatever way: by SIGTERM, and `patience`
    seconds later by SIGKILL.

    A step that is interrupted may wait for an engine that is gone too, for minutes. The process
    gets a session of its own.
    """
    os.setsid()

    def watch() -> None:
        while os.getppid() == starter:
            time.sleep(LOOK_EVERY_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)
        os.killpg(0, signal.SIGKILL)  # with the processes that it started

    threading.Thread(target=watch, daemon=True).start()


def run_dagster(arguments: list[str]) -> None:
    """What the command `dagster <arguments>` does, its exit code included."""
    from dagster._cli import ENV_PREFIX, cli

    cli(arguments, prog_name="dagster", auto_envvar_prefix=ENV_PREFIX)


def report_crash(execute_run_args: str, exit_code: int) -> None:
    """Fail the run whose process ended before the run did, as Dagster's own code server does for
    the runs it starts.
    """
    from dagster import DagsterInstance, DagsterRunStatus
    from dagster._grpc.types import ExecuteRunArgs
    from dagster._serdes import deserialize_value
    from dagster._utils import get_run_crash_explanation

    args = deserialize_value(execute_run_args, ExecuteRunArgs)
    assert args.instance_ref, "a launcher names its instance"
    with DagsterInstance.from_ref(args.instance_ref) as instance:
        run = instance.get_run_by_id(args.run_id)
        if run is None or run.is_finished:
            return
        instance.report_engine_event(
            get_run_crash_explanation(f"The process of run {run.run_id}", exit_code), run
        )
        if run.status == DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run)
        else:
            instance.report_run_failed(run)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
