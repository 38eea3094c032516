"""The request budget of a service, shared by all processes in one file or one object.

A limit is a number of units in any span of some seconds. The service counts the moment at which a
request arrives. The client knows only that this moment is between start and end of the request. So
a request counts from before it is sent until one span after its answer came. A request without an
answer counts as if it had taken the longest allowed time. However long requests travel, the service
never sees more than the limit.

The file has its own clock, which never goes back. It follows the seconds since the machine started,
and ignores changes of the machine's time. Only across a restart it follows that time.

In an object store the file is an object, which is replaced if no other process was faster. There,
processes of several hosts share it, and it uses the store's clock.
"""

import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from obstore.exceptions import BaseError

from backfill_assets.errors import NotFetchedYet
from backfill_assets.lake.leases import CLOCK_STEP_S, time_of
from backfill_assets.lake.object_store import put_new, read_object, replace, store_at

T = TypeVar("T")

# A writer holds the file for milliseconds.
_LOCK_TIMEOUT_S = 30
# The longest time for a change of the object. After that, its time is too old to send a request.
_SLOWEST_S = 10.0
# The number of times that the object is read again after another process replaced it.
_ATTEMPTS = 50
# The shortest time for which a request is remembered: a source of the same name may have other
# limits, now or later.
_MEMORY_S = 86_400.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SCHEMA = (
    # Numbers are not reused: an answer may come after its request was forgotten.
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
    """Read the machine's clocks. Without a boot id, only the wall-clock time counts."""
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

    @property
    def why(self) -> str:
        """The reason for waiting."""
        return (
            f"its budget of {self.limit} is used up" if self.limit else "the service asked to wait"
        )


@dataclass(frozen=True)
class Budget:
    """The budget in the file `path`, or in the object at this address.

    The client must end a request within `longest` seconds.
    """

    path: Path | str
    limits: Sequence[Limit]
    longest: float
    clock: Callable[[], Moment] = field(default=current_moment, repr=False)

    def take(self, units: int = 1) -> Slot:
        """Take a slot for a request that costs `units`.

        Raises ValueError if a limit never allows this cost, and NotFetchedYet if the file cannot be
        used.
        """
        if tight := [limit for limit in self.limits if units > limit.units]:
            raise ValueError(
                f"a request of {units:,} units never fits into a limit of {tight[0]}: request less"
                " at a time"
            )

        def take(file: sqlite3.Connection, now: float, step: float) -> Slot:
            oldest = now - max(_MEMORY_S, *(limit.seconds for limit in self.limits))
            file.execute("DELETE FROM sent WHERE until <= ?", [oldest])
            longest = self._longest_wait(file, now, units)
            if longest.wait > 0:
                return longest
            sent = now + step + (_SLOWEST_S if step else 0.0)
            added = file.execute(
                "INSERT INTO sent (until, units) VALUES (?, ?)", [sent + self.longest, units]
            )
            return Slot(added.lastrowid or 0)

        return self._change(take)

    def _longest_wait(self, file: sqlite3.Connection, now: float, units: int = 1) -> Slot:
        (pause,) = file.execute("SELECT coalesce(max(until), 0) - ? FROM waits", [now]).fetchone()
        waits = [Slot(0, _wait(file, limit, units, now), str(limit)) for limit in self.limits]
        return max([Slot(0, pause), *waits], key=lambda slot: slot.wait)

    def wait(self) -> Slot:
        """The wait for one unit now, without taking it. No request waits for this.

        There is no wait if the file does not exist or cannot be read.
        """
        with suppress(sqlite3.Error, BaseError, OSError):
            contents = self._contents()
            with closing(sqlite3.connect(":memory:")) as copy:
                copy.deserialize(contents)
                return self._longest_wait(copy, _now(copy, self.clock()))
        return Slot()

    def _contents(self) -> bytes:
        if isinstance(self.path, str):
            folder, _, name = self.path.rpartition("/")
            found = read_object(store_at(folder), name)
            return found.contents if found else b""
        address = f"{self.path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as file:
            return file.serialize()

    def answered(self, slot: Slot) -> None:
        """Record that the request of `slot` has ended."""
        self._change(
            lambda file, now, step: file.execute(
                "UPDATE sent SET until = ? WHERE id = ?", [now + step, slot.id]
            )
        )

    def pause(self, seconds: float) -> None:
        """Stop all requests for this many seconds, because the service asked for it."""

        def pause(file: sqlite3.Connection, now: float, step: float) -> None:
            until = now + step + seconds
            file.execute("DELETE FROM waits WHERE until <= ?", [until])
            file.execute(
                "INSERT INTO waits SELECT ? WHERE NOT EXISTS (SELECT * FROM waits)", [until]
            )

        self._change(pause)

    def _change(self, change: Callable[[sqlite3.Connection, float, float], T]) -> T:
        """Change and save the file, exclusively. Returns the result of `change`.

        `change` gets the file's time, and the number of seconds by which it may be late. Raises
        NotFetchedYet if the file cannot be used, because then the remaining budget is unknown.
        """
        try:
            if isinstance(self.path, str):
                return self._change_object(self.path, change)
            return self._change_file(self.path, change)
        except (sqlite3.Error, BaseError, OSError) as error:
            raise NotFetchedYet(
                f"The record of requests {self.path} cannot be used ({error}).",
                unchanged="Nothing was requested.",
                next_step="Free disk space, or correct its permissions. If it is damaged, delete it"
                " a day after the last request.",
            ) from None

    def _change_file(
        self, path: Path, change: Callable[[sqlite3.Connection, float, float], T]
    ) -> T:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                file.execute(statement)
            done = change(file, _now(file, self.clock()), 0.0)
            file.execute("COMMIT")  # otherwise nothing is written
        return done

    def _change_object(
        self, place: str, change: Callable[[sqlite3.Connection, float, float], T]
    ) -> T:
        folder, _, name = place.rpartition("/")
        store = store_at(folder)
        for _ in range(_ATTEMPTS):
            found = read_object(store, name)
            started = time.monotonic()
            # Read after the object, so the time is never earlier than that of its last writer.
            wall = time_of(store).timestamp()
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as file:
                if found:
                    file.deserialize(found.contents)
                for statement in _SCHEMA:
                    file.execute(statement)
                done = change(file, _now(file, Moment("", wall, wall)), CLOCK_STEP_S)
                # No two writes have the same bytes, so each writer recognises its own.
                file.execute(f"PRAGMA user_version = {secrets.randbits(31)}")
                contents = file.serialize()
            written = (
                replace(store, name, contents, found.etag)
                if found
                else put_new(store, name, contents)
            )
            if time.monotonic() - started > _SLOWEST_S:
                raise OSError(f"its store took longer than {_SLOWEST_S:.0f} s")
            if written:
                return done
        raise OSError(f"other processes changed it {_ATTEMPTS} times first")


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
        if units > limit.units:  # the requests that ended last use up the limit alone
            return min(float(until), now) + limit.seconds - now  # a running one may end any moment
    return 0.0
