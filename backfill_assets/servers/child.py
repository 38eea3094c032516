"""One child process: started in a session of its own, its output in a log, ended by its process id with all its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

# A webserver or daemon closes its own children first; what has not gone by then is ended.
PATIENCE_S = 20.0


@dataclass
class Child:
    """A named process; `log` holds what it printed since its first start."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches us alone, and we end the children in order.
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask_to_end(self) -> list[psutil.Process]:
        """Send SIGTERM; the processes that must be gone before it has ended."""
        if self.process is None:
            return []
        with suppress(psutil.NoSuchProcess):
            found = family(self.process.pid)
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)
            return found
        return []

    def last_words(self, lines: int = 3) -> str:
        told = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return "\n".join(told[-lines:])


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it, those in sessions of their own too."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def end_all(processes: Iterable[psutil.Process], patience: float = PATIENCE_S) -> None:
    """Wait for processes that were asked to end, then end what is left."""
    _, left = psutil.wait_procs(list(processes), timeout=patience)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=5)


def end(children: Iterable[Child], patience: float = PATIENCE_S) -> None:
    """End every child and all it started, together."""
    every = list(children)
    end_all((process for child in every for process in child.ask_to_end()), patience)
    for child in every:
        if child.process is not None:
            child.process.wait(timeout=5)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let no second Ctrl-C break off what ends the children: it would leave some of them behind."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def free_port() -> int:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_taken(port: int) -> bool:
    """Whether something listens on this port of this machine."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
