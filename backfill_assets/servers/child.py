"""A child process: start it in its own session, log its output, stop it with its children.

A process is identified by its id and its start time, because ids are reused.
"""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from backfill_assets.settings import LOOPBACK

# On Linux, starts are counted from the boot in hundredths of a second, and differ only by rounding.
# Elsewhere they are read from the clock, which may be corrected meanwhile.
_SAME_START_S = 0.05 if psutil.LINUX else 2.0


class ProcessId(NamedTuple):
    """A process by its id and its start, because ids are reused.

    `start` is in seconds: since the machine's boot on Linux, and since 1970 elsewhere.
    """

    pid: int
    start: float

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process that has this id now. Raises psutil.NoSuchProcess if there is none."""
        return cls(pid, round(_start(psutil.Process(pid)), 2))

    def find(self) -> psutil.Process | None:
        """The process, or None if it has ended."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            is_same = abs(_start(process) - self.start) < _SAME_START_S
            if is_same and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


def _start(process: psutil.Process) -> float:
    return process.create_time() - (psutil.boot_time() if psutil.LINUX else 0)


# A webserver or daemon stops its own children first; processes still alive after this are killed.
_TIMEOUT_S = 20.0
# Loaded before a fork, because a child may not load libraries.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Child:
    """A named process. Its output is appended to `log` at every start."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    id: ProcessId | None = None

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # In its own session: Ctrl-C in the terminal must reach only this process, which stops
            # its children in order.
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_as_a_child,
            )
            self.id = ProcessId.of(self.process.pid)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def terminate(self) -> list[psutil.Process]:
        """Send SIGTERM. Return the process and its descendants, which all must end."""
        if self.process is None:
            return []
        with suppress(psutil.NoSuchProcess):
            processes = process_tree(self.process.pid)
            self.process.terminate()
            return processes
        return []

    def log_tail(self, lines: int = 3) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.strip().splitlines()[-lines:])


def _as_a_child() -> None:
    """Let signals end the process. On Linux, the end of its parent ends it too.

    A shell ignores SIGINT in its background jobs, and children inherit this. Then Dagster would
    also ignore SIGTERM.
    """
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def process_tree(pid: int) -> list[psutil.Process]:
    """The process and its descendants, including those in other sessions."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def wait_or_kill(processes: Iterable[psutil.Process], patience: float = _TIMEOUT_S) -> None:
    """Wait for processes that were sent SIGTERM, then kill those still alive."""
    _, alive = psutil.wait_procs(list(processes), timeout=patience)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=5)


def stop(children: Iterable[Child], patience: float = _TIMEOUT_S) -> None:
    """Stop all children and their descendants, at the same time."""
    stopping = list(children)
    wait_or_kill((process for child in stopping for process in child.terminate()), patience)
    for child in stopping:
        if child.process is not None:
            child.process.wait(timeout=5)


@contextmanager
def ignoring_signals() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP, so that a second Ctrl-C leaves no child running."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# The webserver's port, unless another port is named.
USUAL_PORT = 3000


def free_port() -> int:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def accepts(address: str) -> bool:
    """True if something listens at this address: a Unix socket's path, or a host and a port."""
    if not address.startswith("/"):
        host, port = host_and_port(address)
        return is_taken(port, host)
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        return probe.connect_ex(address) == 0


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_taken(port: int, host: str = LOOPBACK) -> bool:
    """True if something listens on this port of this machine, or of another host."""
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def listen_error(host: str, port: int) -> OSError | None:
    """The reason why a server cannot listen at an address of this machine. None if it can."""
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
        with closing(socket.socket(family)) as probe:
            # A port whose last connections were just closed is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return error
    return None
