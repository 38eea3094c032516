"""Servers of tests: started as processes, waited for, and ended."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from backfill_assets.servers.child import is_taken, process_tree, wait_or_kill
from backfill_assets.tries import wait_until


def environment_without_spark() -> dict[str, str]:
    """The environment for a process that starts a Spark of its own.

    PySpark's variables of this process's session must not decide the kind of the other session.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}


@contextmanager
def listening(
    command: Sequence[str], port: int, log: Path, *, patience: float = 60, **options: Any
) -> Iterator[int]:
    """The process id of a server that listens at a port, until the block ends."""
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, **options)
    try:
        wait_until(lambda: is_taken(port) or server.poll() is not None, patience, every=0.05)
        assert is_taken(port), log.read_text()
        yield server.pid
    finally:
        kill(server)


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a process and its children. Children of pytest-xdist may ignore SIGTERM."""
    tree = process_tree(process.pid) if psutil.pid_exists(process.pid) else []
    for one in tree:
        one.kill()
    wait_or_kill(tree)
    process.wait()
