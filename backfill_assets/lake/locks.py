"""One writer at a time to a table on a local path.

Delta's log store for local files locks inside one process only; two drivers committing at once can lose a commit. Object
stores refuse the second writer themselves, so there nothing is locked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from backfill_assets.errors import Conflict

# Longer than any single commit should take; a lock dies with its process, so waiting longer means a writer is stuck.
PATIENCE_S = 1800


@contextmanager
def writing(root: str, name: str) -> Iterator[None]:
    """Hold the right to write `name` in the lake at `root`; Conflict if another process keeps it for half an hour."""
    if "://" in root:
        yield
        return
    folder = Path(root) / "_locks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace('/', '.')}.lock"
    try:
        with FileLock(path, timeout=PATIENCE_S):
            yield
    except Timeout:
        raise Conflict(
            f"Another process has been writing {name} for {PATIENCE_S // 60} minutes (lock {path}). Nothing was written. "
            "Wait for it or end it, then run again."
        ) from None
