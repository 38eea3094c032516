"""Files on the disks of this machine, and on what is mounted there."""

import os
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from backfill_assets.sources.files import CLOSED, Entry, Part, State, Tree, is_hidden

NOT_UTF8 = range(0xDC80, 0xDD00)  # how Python holds bytes of other encodings


@dataclass(frozen=True)
class LocalDisk:
    """Files of this machine, which are read where they lie."""

    readers: int = 2  # unpacking, most of the work, runs in several threads at once
    prefix: str = ""

    def tree(self, folder: str, parts: Callable[[], Collection[Part]]) -> Tree:
        return _Folders(Path(folder))

    def state(self, entry: Entry) -> State:
        state = entry.stat() if isinstance(entry, os.DirEntry) else Path(entry).stat()
        if not stat.S_ISREG(state.st_mode):
            return State((), 0.0, CLOSED if stat.S_ISDIR(state.st_mode) else "is not a file")
        return State((state.st_size, state.st_mtime_ns, state.st_ctime_ns), max(state.st_mtime, state.st_ctime))

    def has_changed(self, entry: Entry) -> bool:
        try:
            return self.state(Path(entry)) != self.state(entry)
        except OSError:
            return True

    def away(self, entry: Entry) -> str:
        return ""

    def has_beside(self, entry: Entry, name: str) -> bool:
        return Path(entry).with_name(name).exists()

    def at_hand(self, entry: Entry) -> AbstractContextManager[Path]:
        return nullcontext(Path(entry))

    def kept(self, entry: Entry, content: str) -> Path:
        return Path(entry)

    def shown(self, path: str) -> str:
        return path

    def unreadable(self, path: str) -> str:
        if ":" in os.path.basename(path):  # noqa: PTH119  # a `Path` takes most of the time of a look at many files
            return "has a colon in its name, with which Spark cannot read it. Rename it"
        if not path.isascii() and any(ord(letter) in NOT_UTF8 for letter in path):
            return "has a name that is not UTF-8. Rename it"
        return ""


DISK = LocalDisk()


@dataclass(frozen=True)
class _Folders:
    """Folders of a disk. Each is listed once at most."""

    top: Path
    fault: str = ""
    entries: Callable[[Entry], Sequence[Entry] | None] = field(default_factory=lambda: _listed_once(), repr=False)


def _listed_once() -> Callable[[Entry], Sequence[Entry] | None]:
    listed = cache(_listed)
    return lambda folder: listed(os.fspath(folder))


def _listed(folder: str) -> list[os.DirEntry[str]] | None:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not is_hidden(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None
