"""Leases in an object store: locks and markers across hosts. They end with their process.

A lease is an object that its holder overwrites every few seconds. If the holder does not overwrite
it for the length of a lease, another process may take it over. Only the store's clock counts: the
time of the last write is compared with the time of a write made now. A holder counts its own
seconds from before its last write, so it knows of a lost lease before others do.

Every write is conditional, so one process at a time holds a lease. A holder that was suspended can
still believe in its lease for a moment. So leases only order work and save it. Correctness depends
on conditional commits.
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Event, Lock, Thread
from typing import Any

import obstore
from obstore.exceptions import BaseError
from pydantic import TypeAdapter

from backfill_assets.errors import Conflict, ServiceUnavailable
from backfill_assets.lake.object_store import (
    STORE_REMEDY,
    put_new,
    read_object,
    replace,
    store_at,
    why,
)

LENGTH_S = 60.0
# Three renewals may fail before a lease ends.
RENEWED_EVERY_S = 15.0
# Stores give times in whole seconds.
CLOCK_STEP_S = 2.0
_LOOKS_EVERY_S = 0.5
_CLOCK = "_clock"


class LockHeld(Exception):
    """Another process holds the lock, which is a lease or a file."""


def seconds_running() -> float:
    """The seconds since this machine started, including suspended time."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@dataclass(frozen=True)
class _Held:
    """What the object of a held lease contains. No two writes contain the same."""

    holder: str
    write: str
    contents: str


_HELD = TypeAdapter(_Held)
# The contents of a free lease.
_FREE = b"{}"


class Lease:
    """A lease below `place` that this process holds. A thread renews it until `end`.

    Each request reads the current credentials.
    """

    def __init__(self, place: str, path: str, contents: str = "") -> None:
        self._place = place
        self._path = path
        self._contents = contents
        self._holder = secrets.token_hex(8)
        self._etag = ""
        self._renewed = 0.0
        self._is_lost = False
        self._ended = Event()
        self._lock = Lock()
        self._thread = Thread(target=self._keep, name=f"lease {path}", daemon=True)

    @property
    def is_held(self) -> bool:
        """False if another process may hold the lease now."""
        return not self._is_lost and seconds_running() - self._renewed < LENGTH_S

    def refuse_lost(self) -> None:
        """Raise Conflict if another process may hold the lease now."""
        if not self.is_held:
            raise Conflict(
                f"The lease {self._path} was lost: for {LENGTH_S:.0f} seconds this process could"
                " not renew it.",
                unchanged="What was done before stays.",
                next_step="Type the same again.",
            )

    def take(self, after: str = "") -> bool:
        """Take the lease: the new object, or the one with the etag `after`. False if it changed."""
        if not self._write(after):
            return False
        self._thread.start()
        return True

    def end(self, *, delete: bool = False) -> None:
        """Give the lease back, or `delete` its object. Errors of the store are ignored."""
        self._ended.set()
        with self._lock, suppress(BaseError, OSError):
            if self._is_lost:
                return
            if delete:
                obstore.delete(store_at(self._place), self._path)
            else:
                self._put(_FREE, self._etag)

    def _keep(self) -> None:
        while not self._ended.wait(RENEWED_EVERY_S):
            # If the store does not answer, try again until the lease is over.
            with self._lock, suppress(BaseError, OSError):
                if self._ended.is_set():
                    return
                self._is_lost = not self._write(self._etag)
                if self._is_lost:
                    return

    def _write(self, after: str) -> bool:
        held = _Held(self._holder, secrets.token_hex(8), self._contents)
        started = seconds_running()
        etag = self._put(_HELD.dump_json(held), after)
        if etag is None:
            return False
        self._etag = etag
        self._renewed = started
        return True

    def _put(self, contents: bytes, after: str) -> str | None:
        """Write the object if it has the etag `after` ("": if it is new). Returns its new etag."""
        store = store_at(self._place)
        if not after:
            return put_new(store, self._path, contents)
        etag = replace(store, self._path, contents, after)
        # An earlier write of this lease may have arrived although it failed here.
        found = read_object(store, self._path) if etag is None else None
        if found and _holder_of(found.contents) == self._holder:
            etag = replace(store, self._path, contents, found.etag)
        return etag


def _holder_of(contents: bytes) -> str:
    with suppress(ValueError):
        return _HELD.validate_json(contents).holder
    return ""


@contextmanager
def leased(place: str, name: str, patience: float) -> Iterator[Lease]:
    """Hold the lease `name` below `place` in the block.

    Raises LockHeld after `patience` seconds, and ServiceUnavailable if the store does not answer.
    """
    try:
        lease = _taken(place, name, patience)
    except (BaseError, OSError) as error:
        raise ServiceUnavailable(
            f"The lock {place}/{name} cannot be taken: {why(error)}.",
            unchanged="Nothing was done under it.",
            next_step=STORE_REMEDY,
        ) from error
    try:
        yield lease
    finally:
        lease.end()


def _taken(place: str, name: str, patience: float) -> Lease:
    started = seconds_running()
    seen = ""
    asked = 0.0
    while True:
        lease = Lease(place, name)
        store = store_at(place)
        found = read_object(store, name)
        if found is None:
            if lease.take():
                return lease
            continue
        contents, etag, modified = found
        is_over = contents == _FREE
        # The clock is read at first, and when the holder's next write is due.
        if not is_over and (etag != seen or seconds_running() - asked > LENGTH_S / 4):
            is_over = _is_over(modified, time_of(store))
            seen = etag
            asked = seconds_running()
        if is_over:
            if lease.take(etag):
                return lease
            continue
        if seconds_running() - started >= patience:
            raise LockHeld(f"{place}/{name}")
        time.sleep(_LOOKS_EVERY_S)


@contextmanager
def marker(place: str, folder: str, name: str, contents: bytes) -> Iterator[None]:
    """Keep a marker in `folder` below `place` in the block.

    Markers of dead processes are removed. Markers only inform: if the store does not answer, no
    marker is kept.
    """
    lease = None
    with suppress(BaseError, OSError):
        store = store_at(place)
        for dead in _listed(store, folder, held=False):
            obstore.delete(store, dead)
        lease = Lease(place, f"{folder}/{name}.{secrets.token_hex(4)}.json", contents.decode())
        lease.take()
    try:
        yield
    finally:
        if lease:
            lease.end(delete=True)


def held_markers(place: str, folder: str) -> Iterator[bytes]:
    """The contents of the markers in `folder` below `place` that are renewed."""
    with suppress(BaseError, OSError):
        store = store_at(place)
        for path in _listed(store, folder, held=True):
            found = read_object(store, path)
            with suppress(ValueError):  # for objects of others
                yield _HELD.validate_json(found.contents if found else b"").contents.encode()


def _listed(store: Any, folder: str, *, held: bool) -> list[str]:
    """The paths of the held markers in a folder, or of the others."""
    objects = [entry for chunk in obstore.list(store, prefix=folder) for entry in chunk]
    if not objects:
        return []
    now = time_of(store)
    return [entry["path"] for entry in objects if _is_over(entry["last_modified"], now) is not held]


def _is_over(modified: datetime, now: datetime) -> bool:
    return (now - modified).total_seconds() > LENGTH_S + CLOCK_STEP_S


def time_of(store: Any) -> datetime:
    """The current time of the store."""
    obstore.put(store, _CLOCK, secrets.token_bytes(8))
    return obstore.head(store, _CLOCK)["last_modified"]
