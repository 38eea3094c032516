"""Local copies of remote files. An unchanged file is fetched once.

All processes share one folder of copies. Files that were not used for a week are removed, and the
least recently used files beyond `most` bytes. A process reads hard links in its own folder, so a
file in use stays. That folder is removed after the process has ended.
"""

import atexit
import hashlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from uuid import uuid4

import psutil

from backfill_assets.lake.storage import make_cache, replacing

_MAX_BYTES = 10 * 2**30
_UNUSED_S = 7 * 86_400
# A file counts as at least this part of the allowed bytes, because there may be many small files.
_PART_OF_MOST = 10_000
Fetch = Callable[[], Iterator[bytes]]


@dataclass
class LocalCopies:
    """The copies in `folder`, at most `most` bytes."""

    folder: Path
    most: int = _MAX_BYTES
    _lock: Lock = field(default_factory=Lock, repr=False)
    _own: Path | None = field(default=None, repr=False)
    _since: int = field(default=0, repr=False)

    @contextmanager
    def open_local(self, name: str, fetch: Fetch) -> Iterator[Path]:
        """Provide a copy within the block. Raises OSError, also for an error of `fetch`."""
        path = self._linked(name, fetch, f"{uuid4().hex}-{name}")
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def cached(self, name: str, fetch: Fetch, content: str) -> Path:
        """Return a copy that stays until this process ends.

        Raises OSError if its bytes do not have the hash `content`.
        """
        path = self._place() / name
        if not path.exists():
            self._linked(name, fetch, name, content)
        return path

    def _linked(self, name: str, fetch: Fetch, as_name: str, content: str = "") -> Path:
        shared = self.folder / name
        own = self._place() / as_name
        with suppress(FileNotFoundError):
            with suppress(FileExistsError):  # another thread was first
                os.link(shared, own)
            os.utime(shared)
            return own
        with replacing(own) as draft:
            digest = _write(fetch(), draft)
            if content and digest != content:
                raise OSError("it changed after it was first read")
        with suppress(FileExistsError):  # another process fetched it meanwhile
            os.link(own, shared)
        self._count(own.stat().st_size)
        return own

    def _place(self) -> Path:
        """Return this process's folder.

        The folders of ended processes are removed when it is created.
        """
        with self._lock:
            if self._own is None or int(self._own.name.partition("-")[0]) != os.getpid():
                make_cache(self.folder.parent, and_home=True)
                self.folder.mkdir(exist_ok=True)
                for folder in self.folder.iterdir():
                    if folder.is_dir() and _is_abandoned(folder):
                        shutil.rmtree(folder, ignore_errors=True)
                self._own = self.folder / _name_of(psutil.Process())
                self._own.mkdir(exist_ok=True)
                atexit.register(shutil.rmtree, self._own, ignore_errors=True)
            return self._own

    def _count(self, size: int) -> None:
        """Clear the copies after a tenth of the allowed bytes, or many files, were fetched."""
        with self._lock:
            self._since += max(size, self.most // _PART_OF_MOST)
            if self._since > self.most // 10:
                self._since = 0
                self._clear()

    def _clear(self) -> None:
        """Remove copies that were not used for a week, and the oldest copies beyond the limit."""
        copies = []
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # another process clears too
                if path.is_file():
                    state = path.stat()
                    copies.append((state.st_mtime, state.st_size, path))
        bytes_left = self.most
        oldest = time.time() - _UNUSED_S
        for last_use, size, path in sorted(copies, reverse=True):
            bytes_left -= size
            if bytes_left < 0 or last_use < oldest:
                path.unlink(missing_ok=True)


@cache
def local_copies(folder: Path) -> LocalCopies:
    """Return this process's only copies below the folder."""
    return LocalCopies(folder / "copies")


def _write(pieces: Iterator[bytes], path: Path) -> str:
    """Write a file and return its hash."""
    digest = hashlib.blake2b()
    with path.open("wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()[:32]


def _name_of(process: psutil.Process) -> str:
    return f"{process.pid}-{process.create_time():.0f}-{socket.gethostname()}"


def _is_abandoned(folder: Path) -> bool:
    """Tell whether the process of a folder has ended. For another host, age decides."""
    pid, _, rest = folder.name.partition("-")
    if not rest.endswith(f"-{socket.gethostname()}"):
        return folder.stat().st_mtime < time.time() - _UNUSED_S
    try:
        return _name_of(psutil.Process(int(pid))) != folder.name
    except (psutil.NoSuchProcess, ValueError):
        return True
