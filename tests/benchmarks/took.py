"""What something takes: seconds on the clock, and of processors, which other work on the machine
leaves alone.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Took:
    """Seconds on the clock, and of the processors: those of this process and of its Spark."""

    clock: float
    worked: float

    def __str__(self) -> str:
        return f"{self.clock:.1f} s, worked {self.worked:.1f} s"


def took(act: Callable[[], object]) -> Took:
    """What it takes to `act`."""
    started = time.perf_counter()
    worked = _worked()
    act()
    return Took(time.perf_counter() - started, _worked() - worked)


def _worked() -> float:
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(each.user + each.system for each in times)
