"""The run starter: a process with imported libraries that forks a process for each run.

In a new Python process, a run spends three seconds of a core on importing Dagster, PySpark and
pandas. A forked run has imported them already. `backfill up` starts this file by its path (`python
-P run_starter.py SOCKET`). It imports nothing of this package or of a project: each run imports
that code from disk. An upgraded library is used after a restart.

A request on the socket is one line of JSON, the arguments of a `dagster` command. The answer is the
process id. The process begins when the client sends GO, and ends at once if the client is gone,
because the death of an unrecorded process could not be seen. Only the owner can enter the folder of
the socket.
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

# The imports of a run. Nothing else is prepared: channels, sessions and threads would not survive a
# fork. (OpenBLAS and jemalloc restart their own threads in the child.)
LIBRARIES = (
    "dagster._cli",
    "dagster_pyspark",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "deltalake.transaction",
    "grpc",
    "pyspark.sql.connect.session",
    "pyspark.sql.connect.functions",
    "pyspark.sql.connect.proto",
    "httpx",
    "pydantic_settings",
    "filelock",
    "psutil",
    "tenacity",
    "sqlalchemy.dialects.sqlite",
)

# The intervals for noticing ended processes and an ended starter, and the timeout of a request.
REAP_EVERY_S = 0.5
LOOK_EVERY_S = 0.5
REQUEST_S = 5.0
# An interrupted run needs a second to report. `backfill up` waits 20 s for its children.
PATIENCE_S = 15.0
GO = b"go"
NOT_BEGUN = "The launcher ended before it had recorded this process."


@contextmanager
def start_run(starter: Path, arguments: Sequence[str]) -> Iterator[int]:
    """Fork a process that runs `dagster` with these arguments when the block is left.

    Yields the process id. If the block raises, the process ends without beginning. Raises
    ConnectionRefusedError or FileNotFoundError if there is no starter. Any other OSError means that
    the starter and the process ended.
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
    # A garbage collection in the child must not touch pages of imported objects, because it would
    # copy them.
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        Path(path).unlink(missing_ok=True)
        listening.bind(path)
        listening.listen(16)
        listening.settimeout(REAP_EVERY_S)
        work = serve(listening, patience)
    work()


def serve(listening: socket.socket, patience: float) -> Callable[[], None]:
    """Answer requests forever. In a forked process, return the work of that process."""
    running: dict[int, list[str]] = {}
    while True:
        with suppress(OSError):  # no child left to report with
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
                    if may_begin(client)
                    else partial(sys.exit, NOT_BEGUN)
                )
            running[pid] = arguments
            client.sendall(str(pid).encode())


def may_begin(client: socket.socket) -> bool:
    """Wait until the client has recorded this process; false if the client is gone."""
    client.settimeout(None)
    try:
        return client.recv(len(GO)) == GO
    except OSError:  # this process must not continue as a second starter
        return False


def end_with_the_starter(starter: int, patience: float) -> None:
    """End this process with the starter: by SIGTERM, by SIGKILL `patience` seconds later.

    An interrupted step may wait minutes for an engine that has also ended. The process gets its own
    session.
    """
    os.setsid()

    def watch() -> None:
        while os.getppid() == starter:
            time.sleep(LOOK_EVERY_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)
        os.killpg(0, signal.SIGKILL)  # with the child processes

    threading.Thread(target=watch, daemon=True).start()


def run_dagster(arguments: list[str]) -> None:
    """Run the command `dagster <arguments>`, with its exit code."""
    from dagster._cli import ENV_PREFIX, cli

    cli(arguments, prog_name="dagster", auto_envvar_prefix=ENV_PREFIX)


def report_crash(execute_run_args: str, exit_code: int) -> None:
    """Fail a run that its process left unfinished, as Dagster's code server does for its runs."""
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
