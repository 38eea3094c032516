"""A process of this machine by its id and when it started, since ids are given again."""

from __future__ import annotations

from typing import NamedTuple

import psutil

# On Linux, where starts are counted from the boot in hundredths of a second, they are equal but for rounding. Elsewhere they
# are compared by the clock, which may be corrected a little meanwhile.
SAME_START_S = 0.05 if psutil.LINUX else 2.0


class ProcessId(NamedTuple):
    """`start` is in seconds since the machine's boot on Linux, whatever its clock is set to, and since 1970 elsewhere."""

    pid: int
    start: float

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process that has this id now; psutil.NoSuchProcess if none has."""
        return cls(pid, round(_start(psutil.Process(pid)), 2))

    def find(self) -> psutil.Process | None:
        """The process; None if it has ended."""
        try:
            process = psutil.Process(self.pid)
            same = abs(_start(process) - self.start) < SAME_START_S
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def _start(process: psutil.Process) -> float:
    return process.create_time() - (psutil.boot_time() if psutil.LINUX else 0)
