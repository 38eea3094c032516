"""File systems that deliveries are read from: this machine's disk, or an object store.

A look at a folder is a `Tree`. Its entries behave like those of `os.scandir`, also in an object
store (`object_store.py`).
"""

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

CANNOT_BE_LISTED = "cannot be listed"
# A subfolder: its path below the folder, with "/" at its end, and whether it includes its own
# subfolders.
Subfolder = tuple[str, bool]
EVERYTHING: Sequence[Subfolder] = (("", True),)


class Entry(Protocol):
    """A file or folder in a listing. `os.fspath` returns its path."""

    @property
    def name(self) -> str: ...
    def is_dir(self) -> bool: ...
    def is_symlink(self) -> bool: ...
    def __fspath__(self) -> str: ...


@dataclass(frozen=True)
class Packed:
    """The entry of a pack, such as a zip, which is like a folder; or of `path` in it."""

    file: Entry
    path: str = ""
    is_folder: bool = True

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] or self.file.name

    def is_dir(self) -> bool:
        return self.is_folder

    def is_symlink(self) -> bool:
        return False

    def __fspath__(self) -> str:
        return f"{os.fspath(self.file)}/{self.path}".rstrip("/")


def delivered_file(entry: Entry) -> Entry:
    """Return the delivered file: for a file in a pack, the pack."""
    return entry.file if isinstance(entry, Packed) else entry


class FileState(NamedTuple):
    """The state of a file. While its `stamp` stays the same, its contents count as unchanged.

    The second part of the stamp is the modification time in nanoseconds. `changed` is the time of
    the last change in seconds, or 0 if the stamp alone identifies the contents. `fault` says why it
    is not a readable file.
    """

    stamp: tuple[int | str, ...]
    changed: float = 0.0
    fault: str = ""

    @property
    def text(self) -> str:
        return " ".join(map(str, self.stamp))

    @property
    def modified(self) -> float:
        """The modification time in seconds."""
        return int(self.stamp[1]) / 1e9

    def age(self, now: float) -> float:
        """Return the seconds since the file was written, moved or given another time.

        A copy may keep the times of its original, so the newest time counts. Times after `now` are
        ignored unless all of them are.
        """
        times = [time / 1e9 for time in self.stamp[1:] if isinstance(time, int)]
        return now - max((time for time in times if time <= now), default=min(times))


@dataclass(frozen=True)
class Tree:
    """One look at the folder `top` and everything below it.

    entries  lists a folder: [] if there is none, None if it cannot be listed. Names that begin with
             _ or . are uploads in progress or markers. They are left out, as Spark does
    fault    why none of it can be listed, or ""
    """

    top: Entry
    entries: Callable[[Entry], Sequence[Entry] | None] = field(repr=False)
    fault: str = ""


class FileSystem(ABC):
    """A file system. Every method that takes an entry raises OSError if it cannot be read.

    readers  how many files are read at the same time
    prefix   the prefix of manifest names. Each store has its own
    """

    readers: int

    @property
    @abstractmethod
    def prefix(self) -> str: ...

    @abstractmethod
    def tree(self, folder: str, parts: Callable[[], Collection[Subfolder]]) -> Tree:
        """Look at these parts of a folder. Files elsewhere in it may be left out."""

    @abstractmethod
    def entry(self, path: str, size: int) -> Entry:
        """Return the entry for this path and size, without listing anything."""

    @abstractmethod
    def state(self, entry: Entry) -> FileState:
        """Return the state of an entry when it was listed."""

    def size(self, entry: Entry) -> int:
        """Return the bytes of a file; -1 if it cannot be read."""
        with suppress(OSError):
            if stamp := self.state(entry).stamp:
                return int(stamp[0])
        return -1

    def has_changed(self, entry: Entry) -> bool:
        """Tell whether the bytes that were read may differ from the listed file."""
        return False

    def unavailable_reason(self, entry: Entry) -> str:
        """Return why the store cannot be read now; "" if the entry is available."""
        return ""

    @abstractmethod
    def has_sibling(self, entry: Entry, name: str) -> bool:
        """Tell whether the entry's folder has a file of this name."""

    @abstractmethod
    def open_local(self, entry: Entry) -> AbstractContextManager[Path]:
        """Provide a local file with the entry's bytes within the block."""

    @abstractmethod
    def cached(self, entry: Entry, content: str) -> Path:
        """Return a local file with these bytes until this process ends.

        Raises OSError if their hash is not `content`.
        """

    def spark_address(self, entry: Entry) -> str:
        """Return the address at which Spark reads the entry on any machine. "" if there is none."""
        return ""

    def display_path(self, path: str) -> str:
        """Return the path as people write it."""
        return path

    def unreadable_reason(self, path: str) -> str:
        """Return why Spark cannot read a file of this name, or ""."""
        return ""


def is_hidden(name: str) -> bool:
    """Tell whether a name belongs to an upload in progress or a marker."""
    return name.startswith(("_", "."))


_NOT_UTF8 = range(0xDC80, 0xDD00)  # Python's form for bytes of other encodings


@dataclass(frozen=True)
class LocalDisk(FileSystem):
    """Files of this machine, read in place."""

    readers: int = 2  # unpacking, most of the work, runs in several threads at once
    prefix: str = ""

    def tree(self, folder: str, parts: Callable[[], Collection[Subfolder]]) -> Tree:
        listed = cache(_listed)
        return Tree(Path(folder), lambda entry: listed(os.fspath(entry)))

    def entry(self, path: str, size: int) -> Entry:
        return Path(path)

    def state(self, entry: Entry) -> FileState:
        state = entry.stat() if isinstance(entry, os.DirEntry) else Path(entry).stat()
        if not stat.S_ISREG(state.st_mode):
            return FileState(
                (), 0.0, CANNOT_BE_LISTED if stat.S_ISDIR(state.st_mode) else "is not a file"
            )
        return FileState(
            (state.st_size, state.st_mtime_ns, state.st_ctime_ns),
            max(state.st_mtime, state.st_ctime),
        )

    def has_changed(self, entry: Entry) -> bool:
        try:
            return self.state(Path(entry)) != self.state(entry)
        except OSError:
            return True

    def has_sibling(self, entry: Entry, name: str) -> bool:
        return Path(entry).with_name(name).exists()

    def open_local(self, entry: Entry) -> AbstractContextManager[Path]:
        return nullcontext(Path(entry))

    def cached(self, entry: Entry, content: str) -> Path:
        return Path(entry)

    def unreadable_reason(self, path: str) -> str:
        # A `Path` would take most of the time for many files.
        if ":" in os.path.basename(path):  # noqa: PTH119
            return "has a colon in its name, with which Spark cannot read it. Rename it"
        if not path.isascii() and any(ord(letter) in _NOT_UTF8 for letter in path):
            return "has a name that is not UTF-8. Rename it"
        return ""


DISK = LocalDisk()


def _listed(folder: str) -> list[os.DirEntry[str]] | None:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not is_hidden(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None
