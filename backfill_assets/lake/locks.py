"""Locks between processes, as files of a lake on a local path; a lock ends with its process.

Object stores have no such locks: there, a commit is refused if another one came first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from backfill_assets.errors import Conflict
from backfill_assets.lake.paths import Paths

# Longer than any single commit should take; a lock dies with its process, so waiting longer means a writer is stuck.
TIMEOUT_S = 1800


class Locked(Exception):
    """Another process holds the lock."""


@contextmanager
def file_lock(path: Path, *, patience: float = 0) -> Iterator[None]:
    """Hold the lock of `path`, waiting `patience` seconds at most; then Locked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=patience, poll_interval=0.01)
    try:
        lock.acquire()
    except Timeout:
        raise Locked(str(path)) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def writing(root: str, name: str) -> Iterator[None]:
    """Hold the right to write the table `name` in the lake at `root`; Conflict if another process keeps it for half an hour."""
    paths = Paths(root)
    if not paths.is_local:
        yield
        return
    path = paths.locks / f"{name.replace('/', '.')}.lock"
    try:
        with file_lock(path, patience=TIMEOUT_S):
            yield
    except Locked:
        raise Conflict(
            f"Another process has been writing {name} for {TIMEOUT_S // 60} minutes (lock {path}). Nothing was written. "
            "Wait for it or end it, then run again."
        ) from None
