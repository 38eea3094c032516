"""Where files are: on a disk of this machine, or in an object store (`object_store.py`).

A look at a folder is a `Tree`. Its entries are those of `os.scandir`. An object store gives entries
that behave like them.
"""

import os
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

CANNOT_BE_LISTED = "cannot be listed"
# A part of a folder: the path of one below it, with "/" at its end, and whether the folders in that
# belong to it.
Part = tuple[str, bool]
EVERYTHING: Sequence[Part] = (("", True),)


class Entry(Protocol):
    """A file or a folder, as its folder lists it. Its path is what `os.fspath` says."""

    @property
    def name(self) -> str: ...
    def is_dir(self) -> bool: ...
    def is_symlink(self) -> bool: ...
    def __fspath__(self) -> str: ...


class FileState(NamedTuple):
    """How a file lies there: while its `stamp` stays the same, its contents count as unchanged. The
    second part of that is when it was modified, in nanoseconds. `changed`: when it was last
    changed, in seconds; 0 if the stamp itself tells contents apart. `fault`: why it is no file that
    can be read.
    """

    stamp: tuple[int | str, ...]
    changed: float = 0.0
    fault: str = ""

    @property
    def text(self) -> str:
        return " ".join(map(str, self.stamp))

    @property
    def modified(self) -> float:
        """In seconds."""
        return int(self.stamp[1]) / 1e9

    def age(self, now: float) -> float:
        """The seconds since it was last written to, moved or given another time: copies may keep
        the times of what they are copies of. Times that are ahead of `now` are not believed, unless
        all are.
        """
        times = [each / 1e9 for each in self.stamp[1:] if isinstance(each, int)]
        return now - max((each for each in times if each <= now), default=min(times))


class Tree(Protocol):
    """One look at a folder and all below it."""

    @property
    def top(self) -> Entry: ...

    @property
    def fault(self) -> str:
        """Why none of it can be listed, "" if that is not known."""
        ...

    def entries(self, folder: Entry) -> Sequence[Entry] | None:
        """What a folder of the tree holds, nothing if there is no such folder; None if it cannot be
        listed. Names that begin with _ or . are unfinished uploads and markers, and left out; Spark
        skips them too.
        """
        ...


class FileSystem(Protocol):
    """A file system. Everything that takes an entry raises OSError for one that cannot be read."""

    def __hash__(self) -> int: ...

    @property
    def readers(self) -> int:
        """How many files are read at once."""
        ...

    @property
    def prefix(self) -> str:
        """What the names of manifests begin with: that of another store begins otherwise."""
        ...

    def tree(self, folder: str, parts: Callable[[], Collection[Part]]) -> Tree:
        """A look at these parts of a folder: what lies elsewhere in it may be left out."""
        ...

    def state(self, entry: Entry) -> FileState:
        """How it was when it was listed."""
        ...

    def has_changed(self, entry: Entry) -> bool:
        """Whether what was read of it may be other than what was listed."""
        ...

    def unavailable_reason(self, entry: Entry) -> str:
        """Why nobody can say now what is there; "" of what a look has found."""
        ...

    def has_sibling(self, entry: Entry, name: str) -> bool:
        """Whether its folder has a file of that name."""
        ...

    def open_local(self, entry: Entry) -> AbstractContextManager[Path]:
        """A file of this machine with its bytes, for as long as the block."""
        ...

    def cached(self, entry: Entry, content: str) -> Path:
        """The same for as long as this process: its bytes have the hash `content`."""
        ...

    def display_path(self, path: str) -> str:
        """A path as people write it."""
        ...

    def unreadable_reason(self, path: str) -> str:
        """Why Spark cannot read a file of that name; "" if it can."""
        ...


def is_hidden(name: str) -> bool:
    """Whether a name is that of an unfinished upload, or of a marker."""
    return name.startswith(("_", "."))


_NOT_UTF8 = range(0xDC80, 0xDD00)  # how Python holds bytes of other encodings


@dataclass(frozen=True)
class LocalDisk:
    """Files of this machine, which are read where they lie."""

    readers: int = 2  # unpacking, most of the work, runs in several threads at once
    prefix: str = ""

    def tree(self, folder: str, parts: Callable[[], Collection[Part]]) -> Tree:
        return _LocalTree(Path(folder))

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

    def unavailable_reason(self, entry: Entry) -> str:
        return ""

    def has_sibling(self, entry: Entry, name: str) -> bool:
        return Path(entry).with_name(name).exists()

    def open_local(self, entry: Entry) -> AbstractContextManager[Path]:
        return nullcontext(Path(entry))

    def cached(self, entry: Entry, content: str) -> Path:
        return Path(entry)

    def display_path(self, path: str) -> str:
        return path

    def unreadable_reason(self, path: str) -> str:
        if ":" in os.path.basename(path):  # noqa: PTH119  # a `Path` takes most of the time of a look at many files
            return "has a colon in its name, with which Spark cannot read it. Rename it"
        if not path.isascii() and any(ord(letter) in _NOT_UTF8 for letter in path):
            return "has a name that is not UTF-8. Rename it"
        return ""


DISK = LocalDisk()


@dataclass(frozen=True)
class _LocalTree:
    """Folders of a disk. Each is listed once at most."""

    top: Path
    fault: str = ""
    entries: Callable[[Entry], Sequence[Entry] | None] = field(
        default_factory=lambda: _listed_once(), repr=False
    )


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
