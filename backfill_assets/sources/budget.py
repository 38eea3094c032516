"""How much a service is asked: one budget for all processes, in a file that they share.

A limit is so many units in any span of so many seconds. What counts is when a request reaches the service, which the asker does
not know: it lies between the request's start and its end. So a request counts from before it is sent until one span after its
answer came; and one whose process died, or whose answer never came, as if it had taken as long as a request may. However
requests are delayed on their way, the service never sees more than the limit.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# A writer holds the file for milliseconds.
BUSY_S = 30
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS requests (id INTEGER PRIMARY KEY, until REAL, units INTEGER)",
    "CREATE TABLE IF NOT EXISTS pauses (until REAL)",
)


class Limit(NamedTuple):
    """At most so many `units` in any span of so many `seconds`."""

    units: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.units:,} in {self.seconds:,.0f} s"


class Slot(NamedTuple):
    """Leave to send one request; or for how many seconds there is none, and by which limit ("" if the service said so)."""

    id: int = 0
    wait: float = 0.0
    limit: str = ""


@dataclass(frozen=True)
class Budget:
    """The budget that is kept in the file `path`. A request takes `longest` seconds at most, as whoever sends it sees to."""

    path: Path
    limits: Sequence[Limit]
    longest: float
    clock: Callable[[], float] = field(default=time.time, repr=False)  # one for all processes, and after a restart

    def take(self, units: int = 1) -> Slot:
        """A slot for a request that costs `units`; ValueError for more than a limit allows at all."""
        if tight := [limit for limit in self.limits if units > limit.units]:
            raise ValueError(f"a request of {units:,} units never fits into a limit of {tight[0]}: ask for less at a time")
        with self._file() as file:
            now = self.clock()
            # After the clock was set back: nothing that was sent before it can still be on its way any longer than that.
            file.execute("UPDATE requests SET until = ?1 WHERE until > ?1", [now + self.longest])
            file.execute("DELETE FROM requests WHERE until <= ?", [now - max(limit.seconds for limit in self.limits)])
            (pause,) = file.execute("SELECT coalesce(max(until), 0) - ? FROM pauses", [now]).fetchone()
            waits = [Slot(0, _wait(file, limit, units, now), str(limit)) for limit in self.limits]
            longest = max([Slot(0, pause), *waits], key=lambda slot: slot.wait)
            if longest.wait > 0:
                return longest
            added = file.execute("INSERT INTO requests (until, units) VALUES (?, ?)", [now + self.longest, units])
            return Slot(added.lastrowid or 0)

    def answered(self, slot: Slot) -> None:
        """The request of `slot` is over: the service had it before now."""
        with self._file() as file:
            file.execute("UPDATE requests SET until = ? WHERE id = ?", [self.clock(), slot.id])

    def pause(self, seconds: float) -> None:
        """No process asks for so many seconds: the service said so."""
        with self._file() as file:
            until = self.clock() + seconds
            file.execute("DELETE FROM pauses WHERE until <= ?", [until])
            file.execute("INSERT INTO pauses VALUES (?)", [until])

    @contextmanager
    def _file(self) -> Iterator[sqlite3.Connection]:
        """The file, while no other process reads or writes it; what is written is there before it ends."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        try:
            file.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA:
                file.execute(statement)
            yield file
            file.execute("COMMIT")
        finally:
            file.close()  # without a commit, nothing was written


def _wait(file: sqlite3.Connection, limit: Limit, units: int, now: float) -> float:
    """The seconds until `units` more are within `limit`."""
    counted = file.execute("SELECT until, units FROM requests WHERE until > ? ORDER BY until DESC", [now - limit.seconds])
    for until, of_request in counted:
        units += of_request
        if units > limit.units:  # the requests that ended last alone use it up
            return min(float(until), now) + limit.seconds - now  # one on its way may end any moment
    return 0.0
