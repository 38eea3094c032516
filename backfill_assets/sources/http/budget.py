"""The request budget of a service, shared by all processes in one file.

A limit is a number of units in any span of some seconds. What counts is when a request reaches the
service. The client does not know that moment, only that it is between start and end of the request.
So a request counts from before it is sent until one span after its answer came. A request without
an answer counts as if it had taken the longest allowed time. However long requests travel, the
service never sees more than the limit.

The file has its own clock, which never goes back. It follows the seconds since the machine started,
whatever the machine's time is set to. Only across a restart it follows the time.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from backfill_assets.errors import NotFetchedYet

# A writer holds the file for milliseconds.
_LOCK_TIMEOUT_S = 30
# At least so long a request is remembered: for other limits, which a source of the same name has,
# or will have.
_MEMORY_S = 86_400.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SCHEMA = (
    # Numbers are not given again: an answer may come after its request was forgotten.
    (
        "CREATE TABLE IF NOT EXISTS sent (id INTEGER PRIMARY KEY AUTOINCREMENT, until REAL, units"
        " INTEGER)"
    ),
    "CREATE INDEX IF NOT EXISTS sent_until ON sent (until)",
    "CREATE TABLE IF NOT EXISTS waits (until REAL)",
    "CREATE TABLE IF NOT EXISTS clock (boot TEXT, since_boot REAL, wall REAL, now REAL)",
)


class Moment(NamedTuple):
    """A moment: the machine's boot id, the seconds since that boot, and the wall-clock time."""

    boot: str
    since_boot: float
    wall: float


def current_moment() -> Moment:
    """Read the machine's clocks. Without a boot id, only its time counts."""
    if _BOOT_ID.exists():
        return Moment(
            _BOOT_ID.read_text().strip(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time()
        )
    return Moment("", now := time.time(), now)


class Limit(NamedTuple):
    """At most `units` in any span of `seconds`."""

    units: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.units:,} in {self.seconds:,.0f} s"


class Slot(NamedTuple):
    """Permission to send one request, or the seconds to wait for it.

    `limit` names the limit that requires waiting; "" means that the service asked to wait.
    """

    id: int = 0
    wait: float = 0.0
    limit: str = ""


@dataclass(frozen=True)
class Budget:
    """The budget in the file `path`. The client must end a request within `longest` seconds."""

    path: Path
    limits: Sequence[Limit]
    longest: float
    clock: Callable[[], Moment] = field(default=current_moment, repr=False)

    def take(self, units: int = 1) -> Slot:
        """Take a slot for a request that costs `units`.

        Raises ValueError if a limit never allows that many, NotFetchedYet if the file cannot be
        used.
        """
        if tight := [limit for limit in self.limits if units > limit.units]:
            raise ValueError(
                f"a request of {units:,} units never fits into a limit of {tight[0]}: request less"
                " at a time"
            )
        with self._file() as (file, now):
            oldest = now - max(_MEMORY_S, *(limit.seconds for limit in self.limits))
            file.execute("DELETE FROM sent WHERE until <= ?", [oldest])
            (pause,) = file.execute(
                "SELECT coalesce(max(until), 0) - ? FROM waits", [now]
            ).fetchone()
            waits = [Slot(0, _wait(file, limit, units, now), str(limit)) for limit in self.limits]
            longest = max([Slot(0, pause), *waits], key=lambda slot: slot.wait)
            if longest.wait > 0:
                return longest
            added = file.execute(
                "INSERT INTO sent (until, units) VALUES (?, ?)", [now + self.longest, units]
            )
            return Slot(added.lastrowid or 0)

    def answered(self, slot: Slot) -> None:
        """Record that the request of `slot` has ended."""
        with self._file() as (file, now):
            file.execute("UPDATE sent SET until = ? WHERE id = ?", [now, slot.id])

    def pause(self, seconds: float) -> None:
        """Stop all requests for so many seconds, because the service asked for it."""
        with self._file() as (file, now):
            file.execute("DELETE FROM waits WHERE until <= ?", [now + seconds])
            file.execute(
                "INSERT INTO waits SELECT ? WHERE NOT EXISTS (SELECT * FROM waits)", [now + seconds]
            )

    @contextmanager
    def _file(self) -> Iterator[tuple[sqlite3.Connection, float]]:
        """Open the file for this process alone, with its time, and save what is written.

        Raises NotFetchedYet if it cannot be used, because then what the limits allow is not known.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(
                sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)
            ) as file:
                file.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA:
                    file.execute(statement)
                yield file, _now(file, self.clock())
                file.execute("COMMIT")  # else, nothing is written
        except sqlite3.Error as error:
            raise NotFetchedYet(
                f"The record of requests {self.path} cannot be used ({error}).",
                unchanged="Nothing was requested.",
                next_step="Free disk space, or correct its permissions. If it is damaged, delete it"
                " a day after the last request.",
            ) from None


def _now(file: sqlite3.Connection, at: Moment) -> float:
    """Advance the file's clock and return its time."""
    last = file.execute("SELECT boot, since_boot, wall, now FROM clock").fetchone()
    now = at.wall
    if last:
        boot, since_boot, wall, before = last
        now = before + max(0.0, at.since_boot - since_boot if at.boot == boot else at.wall - wall)
    file.execute("DELETE FROM clock")
    file.execute("INSERT INTO clock VALUES (?, ?, ?, ?)", [*at, now])
    return now


def _wait(file: sqlite3.Connection, limit: Limit, units: int, now: float) -> float:
    """Return the seconds until `limit` allows `units` more."""
    counted = file.execute(
        "SELECT until, units FROM sent WHERE until > ? ORDER BY until DESC", [now - limit.seconds]
    )
    for until, of_request in counted:
        units += of_request
        if units > limit.units:  # the requests that ended last alone use it up
            return min(float(until), now) + limit.seconds - now  # one on its way may end any moment
    return 0.0
