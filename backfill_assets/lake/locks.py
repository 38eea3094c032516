"""Locks of a lake: files of a lake on a local path, leases in an object store.

Both end with their process. A lock orders the work of several writers. Commits protect the data: a
commit is refused if another commit came first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from backfill_assets.errors import Conflict
from backfill_assets.lake.leases import LockHeld, leased
from backfill_assets.lake.storage import Paths

# Longer than any commit takes. A lock ends with its process, so a longer wait means a stuck writer.
LOCK_PATIENCE_S = 1800


@contextmanager
def file_lock(path: Path, *, patience: float = 0) -> Iterator[None]:
    """Hold the lock of `path`. Raises LockHeld after waiting `patience` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=patience, poll_interval=0.01)
    try:
        lock.acquire()
    except Timeout:
        raise LockHeld(str(path)) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def lock(root: str, name: str, *, patience: float = 0) -> Iterator[Callable[[], None]]:
    """Hold the lock `name` of the lake at `root`.

    Yields a function that raises Conflict if the lock may be lost. Raises LockHeld after waiting
    `patience` seconds.
    """
    paths = Paths(root)
    if paths.is_local:
        with file_lock(paths.locks / f"{name}.lock", patience=patience):
            yield lambda: None
        return
    with leased(paths.leases, f"{name}.lock", patience) as lease:
        yield lease.refuse_lost


@contextmanager
def writing(root: str, name: str) -> Iterator[None]:
    """Hold the lock for writing the table `name` in the lake at `root`.

    Raises Conflict if another process holds it for half an hour.
    """
    try:
        with lock(root, name.replace("/", "."), patience=LOCK_PATIENCE_S):
            yield
    except LockHeld as held:
        raise Conflict(
            f"Another process has been writing {name} for {LOCK_PATIENCE_S // 60} minutes"
            f" (lock {held}).",
            unchanged="Nothing was written.",
            next_step="Wait for it or end it, then run again.",
        ) from None
