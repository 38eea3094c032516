"""A command with its children, watched: its memory, and the bytes that it reads and writes."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.worlds.started import environment_without_spark

EVERY_S = 0.1
ENDING_S = 60


@dataclass(frozen=True)
class Sample:
    """What a command and its children hold at a time, and have read and written until then.

    Bytes are those of system calls. So they hold shuffles, and what the page cache answered.
    """

    at: float
    memory: int
    read: int
    written: int


def watched(
    command: Sequence[str], env: Mapping[str, str], log: Path, folder: Path
) -> tuple[int, list[Sample]]:
    """Run a command to its end. Returns its exit code, and samples of it from start to end.

    A JVM may outlive the command for a moment. It is waited for, but not measured.
    """
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            env=environment_without_spark() | {**env},
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
        tree = psutil.Process(process.pid)
        samples = [Sample(time.time(), 0, 0, 0)]
        children: list[psutil.Process] = []
        while process.poll() is None:
            children = tree.children(recursive=True)
            samples.append(_sample([tree, *children], samples[-1]))
            try:
                process.wait(EVERY_S)
            except subprocess.TimeoutExpired:
                continue
        psutil.wait_procs(children, ENDING_S)
    return process.returncode, samples


def _sample(processes: Sequence[psutil.Process], before: Sample) -> Sample:
    """Bytes of a child that has ended are its parent's, once the parent has noticed the end."""
    at = time.time()
    memory = 0
    read = 0
    written = 0
    for process in processes:
        try:
            memory += process.memory_info().rss
            counters = process.io_counters()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        read += counters.read_chars
        written += counters.write_chars
    return Sample(at, memory, max(read, before.read), max(written, before.written))
