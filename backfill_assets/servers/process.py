"""A process of this machine by its id and the time when it started, since ids are given again."""

from __future__ import annotations

from typing import NamedTuple

import psutil

# The system computes the time from its clock, which may be set meanwhile.
SAME_START_S = 2.0


class ProcessId(NamedTuple):
    """`start` is in seconds since 1970."""

    pid: int
    start: float

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process that has this id now; psutil.NoSuchProcess if none has."""
        return cls(pid, round(psutil.Process(pid).create_time(), 2))

    def find(self) -> psutil.Process | None:
        """The process; None if it has ended."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.start) < SAME_START_S
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None
