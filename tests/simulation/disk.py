"""A local disk in memory that may lose its power.

Files and folders are nodes. What a node was at its last fsync is kept. At a cut, each name that was
added, removed or renamed since its folder was synced stays or goes by chance. The contents of each
file that were not synced stay, or are torn, or empty.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyarrow.fs import FileInfo, FileSelector, FileType, LocalFileSystem, SubTreeFileSystem

from backfill_assets.lake.leases import LockHeld
from tests.simulation.store import Written
from tests.simulation.turns import Process, Turns

TOP = "/simulated"
ROOT = f"{TOP}/lake"
# Calls at which the power may be cut.
_CHANGES = ("create", "write", "link", "rename", "fsync", "unlink")
DISK_FAULTS = ("disk full", "not synced")


@dataclass(eq=False)
class File:
    """The contents of a file, and what of them is on the disk (None: nothing)."""

    number: int
    contents: bytes = b""
    synced: bytes | None = None
    at: float = 0.0


@dataclass(eq=False)
class Folder:
    """The names in a folder: now, on the disk, and the changes that are not on the disk.

    A change has the names that it sets, to a node or to None.
    """

    number: int
    names: dict[str, Any] = field(default_factory=dict)
    synced: dict[str, Any] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)
    at: float = 0.0

    def change(self, **names: Any) -> None:
        self.changes.append(names)
        for name, node in names.items():
            if node is None:
                self.names.pop(name, None)
            else:
                self.names[name] = node


class Disk:
    """The files below TOP. `written` has each write that a reader can see."""

    def __init__(self, turns: Turns, files: Mapping[str, bytes], rates: dict[str, float]) -> None:
        self.turns = turns
        self.rates = rates
        # The chance of a cut at each change of the disk.
        self.cuts = 0.0
        self.written: list[Written] = []
        self._numbers = 0
        self._top = self._folder()
        self._opened: dict[int, Any] = {}
        self.locks: dict[str, Process] = {}
        self.markers: dict[str, dict[str, tuple[Process, bytes]]] = {}
        for path, contents in files.items():
            folder = self._top
            *above, name = path.split("/")
            for part in ["lake", *above]:
                if part not in folder.names:
                    folder.change(**{part: self._folder()})
                folder = folder.names[part]
            folder.change(**{name: self._file(contents, contents)})
        self._settle(self._top, lambda node: None)

    def _folder(self) -> Folder:
        self._numbers += 1
        return Folder(self._numbers, at=self.turns.now)

    def _file(self, contents: bytes = b"", synced: bytes | None = None) -> File:
        self._numbers += 1
        return File(self._numbers, contents, synced, self.turns.now)

    # --- what a process does

    def find(self, path: str) -> Any:
        """The node at a path. Raises FileNotFoundError or NotADirectoryError."""
        node: Any = self._top
        for part in Path(path).relative_to(TOP).parts:
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
            if part not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = node.names[part]
        return node

    def above(self, path: str) -> tuple[Folder, str]:
        place = Path(path)
        return self.find(str(place.parent)), place.name

    def call(self, what: str, path: str) -> None:
        self.turns.turn(f"{what} {path}")
        self.turns.note(f"{what} {path.removeprefix(ROOT)}")
        if what in _CHANGES and self.turns.random.random() < self.cuts:
            self.turns.cut()

    def fault(self, fault: str, number: int, path: str) -> None:
        if self.turns.random.random() < self.rates.get(fault, 0.0):
            self.turns.drawn[f"fault: {fault}"] += 1
            self.turns.actor.process.faults += 1
            self.turns.note(f"{path}: {fault}")
            raise OSError(number, os.strerror(number), path)

    def saw(self, path: str, contents: bytes | None) -> None:
        if path.startswith(f"{ROOT}/"):
            name = path.removeprefix(f"{ROOT}/")
            self.written.append(Written(len(self.written), name, contents))

    def read(self, path: str) -> bytes:
        self.call("read", path)
        node = self.find(path)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        return node.contents

    def create(self, path: str, *, is_new: bool = False) -> File:
        self.call("create", path)
        self.fault("disk full", errno.ENOSPC, path)
        folder, name = self.above(path)
        there = folder.names.get(name)
        if there is not None and is_new:
            raise FileExistsError(errno.EEXIST, "exists", path)
        if isinstance(there, File):
            there.contents = b""
            return there
        made = self._file()
        folder.change(**{name: made})
        folder.at = self.turns.now
        return made

    def fill(self, file: File, path: str, contents: bytes) -> None:
        self.call("write", path)
        self.fault("disk full", errno.ENOSPC, path)
        file.contents = contents
        file.at = self.turns.now
        self.saw(path, contents)

    def write(self, path: str, contents: bytes) -> None:
        self.mkdirs(str(Path(path).parent))
        self.fill(self.create(path), path, contents)

    def mkdirs(self, path: str) -> None:
        for folder in [*reversed(Path(path).parents), Path(path)]:
            if str(folder).startswith(TOP) and not self.exists(str(folder)):
                self.mkdir(str(folder))

    def exists(self, path: str) -> bool:
        try:
            self.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def mkdir(self, path: str) -> None:
        self.call("mkdir", path)
        folder, name = self.above(path)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "exists", path)
        folder.change(**{name: self._folder()})

    def rmdir(self, path: str) -> None:
        self.call("rmdir", path)
        folder, name = self.above(path)
        if folder.names[name].names:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        folder.change(**{name: None})

    def unlink(self, path: str) -> None:
        self.call("unlink", path)
        self.find(path)
        folder, name = self.above(path)
        folder.change(**{name: None})
        self.saw(path, None)

    def link(self, source: str, target: str) -> None:
        self.call("link", target)
        self.fault("disk full", errno.ENOSPC, target)
        node = self.find(source)
        folder, name = self.above(target)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "exists", target)
        folder.change(**{name: node})
        self.saw(target, node.contents)

    def replace(self, source: str, target: str) -> None:
        self.call("rename", target)
        node = self.find(source)
        before, old = self.above(source)
        after, new = self.above(target)
        if before is after:
            before.change(**{old: None, new: node})
        else:
            after.change(**{new: node})
            before.change(**{old: None})
        after.at = self.turns.now
        moved = {"": node.contents} if isinstance(node, File) else _files_below(node, "/")
        for name, contents in moved.items():
            self.saw(f"{source}{name}", None)
            self.saw(f"{target}{name}", contents)

    def scandir(self, path: str) -> Any:
        """What `Path.glob` asks for."""
        nodes = self.find(path).names
        entries = [
            SimpleNamespace(name=name, is_dir=lambda node=nodes[name]: isinstance(node, Folder))
            for name in self.listdir(path)
        ]
        return nullcontext(entries)

    def listdir(self, path: str) -> list[str]:
        self.call("list", path)
        node = self.find(path)
        if isinstance(node, File):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        return sorted(node.names)

    def stat(self, path: str) -> Any:
        node = self.find(path)
        is_file = isinstance(node, File)
        return SimpleNamespace(
            st_mode=stat.S_IFREG if is_file else stat.S_IFDIR,
            st_ino=node.number,
            st_size=len(node.contents) if is_file else 0,
            st_mtime=node.at,
            st_mtime_ns=int(node.at * 1e6) * 1000,
        )

    def open(self, path: str) -> int:
        self._numbers += 1
        number = 1_000_000 + self._numbers
        self._opened[number] = (path, Folder(0) if path == "/" else self.find(path))
        return number

    def fsync(self, number: int) -> None:
        path, node = self._opened[number]
        self.call("fsync", path)
        self.fault("not synced", errno.EIO, path)
        if isinstance(node, File):
            node.synced = node.contents
        else:
            node.synced = dict(node.names)
            node.changes = []

    def is_opened(self, number: object) -> bool:
        return number in self._opened

    # --- the power

    def cut(self) -> None:
        """Lose what was not synced, each by chance, and the locks of all processes."""
        chance = self.turns.random
        stays = chance.choice([0.0, 0.3, 0.7])
        before = self.files()

        def lose(node: Any) -> None:
            if isinstance(node, Folder):
                node.names = dict(node.synced)
                for change in node.changes:
                    if chance.random() < stays:
                        Folder.change(SimpleNamespace(names=node.names, changes=[]), **change)  # type: ignore[arg-type]
            elif node.contents != node.synced and chance.random() >= stays:
                torn = node.contents[: chance.randrange(len(node.contents) or 1)]
                node.contents = chance.choice([b"", torn, node.synced or b""])

        self._settle(self._top, lose)
        self._opened = {}
        self.locks = {}
        self.markers = {}
        after = self.files()
        for path in sorted({*before, *after}):
            if before.get(path) != after.get(path):
                self.turns.note(f"the cut changes {path}")
                self.written.append(Written(len(self.written), path, after.get(path), True))

    def _settle(self, node: Any, change: Callable[[Any], None]) -> None:
        """Change a node and those below it. All of them are on the disk then."""
        change(node)
        if isinstance(node, Folder):
            for below in node.names.values():
                self._settle(below, change)
            node.synced = dict(node.names)
            node.changes = []
        else:
            node.synced = node.contents

    def files(self) -> dict[str, bytes]:
        """The files of the lake, by path."""
        return _files_below(self._top.names["lake"], "") if "lake" in self._top.names else {}

    # --- locks and markers, which end with their process

    @contextmanager
    def lock(self, path: Path, *, patience: float = 0) -> Iterator[None]:
        process = self.turns.actor.process
        name = str(path)
        give_up = self.turns.now + patience
        self.turns.turn(f"lock {name}")
        while (holder := self.locks.get(name)) and not holder.is_dead:
            if self.turns.now >= give_up:
                raise LockHeld(name)
            self.turns.sleep(0.2)
        self.locks[name] = process
        try:
            yield
        finally:
            if self.locks.get(name) is process:
                del self.locks[name]

    @contextmanager
    def marker(self, root: str, folder: str, name: str, contents: bytes) -> Iterator[None]:
        self.turns.turn(f"mark {name}")
        markers = self.markers.setdefault(f"{root} {folder}", {})
        self._numbers += 1
        key = f"{name}.{self._numbers}"
        markers[key] = (self.turns.actor.process, contents)
        try:
            yield
        finally:
            markers.pop(key, None)

    def held(self, root: str, folder: str) -> Iterator[bytes]:
        self.turns.turn(f"marks {folder}")
        markers = self.markers.get(f"{root} {folder}", {})
        return iter([contents for owner, contents in markers.values() if not owner.is_dead])


def _files_below(folder: Folder, path: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, node in folder.names.items():
        if isinstance(node, Folder):
            found |= _files_below(node, f"{path}{name}/")
        else:
            found[f"{path}{name}"] = node.contents
    return found


class _Writer(BytesIO):
    def __init__(self, disk: Disk, path: str, *, is_new: bool) -> None:
        super().__init__()
        self._disk = disk
        self._path = path
        self._file = disk.create(path, is_new=is_new)

    def close(self) -> None:
        if not self.closed:
            contents = self.getvalue()
            super().close()
            self._disk.fill(self._file, self._path, contents)


def system_calls(disk: Disk) -> list[tuple[Any, str, Any]]:
    """The functions of `os` and `io` that see the simulated disk below TOP."""

    def ours(path: Any) -> bool:
        if not isinstance(path, str | os.PathLike):
            return False
        text = os.fspath(path)
        # A path that leads to the lake is synced up to the root.
        return text.startswith(TOP) or (text == "/" and disk.turns.is_simulated)

    def shadowed(module: Any, name: str, simulated: Callable[..., Any]) -> tuple[Any, str, Any]:
        real = getattr(module, name)

        def either(first: Any, *others: Any, **options: Any) -> Any:
            if ours(first) or disk.is_opened(first):
                return simulated(first, *others, **options)
            return real(first, *others, **options)

        return module, name, either

    def opened(path: Any, mode: str = "r", *_: Any, **__: Any) -> Any:
        if "w" in mode or "x" in mode:
            return _Writer(disk, os.fspath(path), is_new="x" in mode)
        contents = disk.read(os.fspath(path))
        return BytesIO(contents) if "b" in mode else io.StringIO(contents.decode())

    def plain(function: Callable[..., Any], paths: int = 1) -> Callable[..., Any]:
        return lambda *arguments, **_: function(*map(os.fspath, arguments[:paths]))

    return [
        shadowed(io, "open", opened),
        shadowed(os, "stat", plain(disk.stat)),
        shadowed(os, "listdir", plain(disk.listdir)),
        shadowed(os, "scandir", plain(disk.scandir)),
        shadowed(os, "mkdir", plain(disk.mkdir)),
        shadowed(os, "rmdir", plain(disk.rmdir)),
        shadowed(os, "unlink", plain(disk.unlink)),
        shadowed(os, "link", plain(disk.link, 2)),
        shadowed(os, "rename", plain(disk.replace, 2)),
        shadowed(os, "replace", plain(disk.replace, 2)),
        shadowed(os, "access", lambda *_, **__: True),
        shadowed(os, "open", plain(disk.open)),
        shadowed(os, "fsync", disk.fsync),
        shadowed(os, "close", lambda number: disk._opened.pop(number)),
    ]


class DiskFiles(SubTreeFileSystem):
    """What `storage.files_in` gives for the disk. Arrow's own code never calls it."""

    def __init__(self, disk: Disk, folder: str) -> None:
        super().__init__("/", LocalFileSystem())
        self.disk = disk
        self.folder = folder

    def _at(self, path: str) -> str:
        return f"{self.folder}/{path}".rstrip("/")

    def open_input_stream(self, path: str, *_: Any) -> BytesIO:
        return BytesIO(self.disk.read(self._at(path)))

    open_input_file = open_input_stream

    def get_file_info(self, what: Any) -> Any:
        if isinstance(what, FileSelector):
            if not self.disk.exists(self._at(what.base_dir)):
                return []
            return list(self._below(what.base_dir, recursive=what.recursive))
        self.disk.call("stat", self.folder)
        return self._info(what) if isinstance(what, str) else [self._info(path) for path in what]

    def _info(self, path: str) -> FileInfo:
        if not self.disk.exists(self._at(path)):
            return FileInfo(path, FileType.NotFound)
        node = self.disk.find(self._at(path))
        if isinstance(node, Folder):
            return FileInfo(path, FileType.Directory)
        at = int(node.at * 1e6) * 1000
        return FileInfo(path, FileType.File, size=len(node.contents), mtime_ns=at)

    def _below(self, path: str, *, recursive: bool) -> Iterator[FileInfo]:
        for name in self.disk.listdir(self._at(path)):
            info = self._info(f"{path}/{name}".lstrip("/"))
            yield info
            if recursive and info.type == FileType.Directory:
                yield from self._below(info.path, recursive=True)

    def delete_file(self, path: str) -> None:
        self.disk.unlink(self._at(path))

    def delete_dir(self, path: str) -> None:
        for info in list(self._below(path, recursive=False)):
            if info.type == FileType.Directory:
                self.delete_dir(info.path)
            else:
                self.delete_file(info.path)
        self.disk.rmdir(self._at(path))

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        self.disk.mkdirs(self._at(path))


class DiskLog:
    """The files of a Delta table for its stand-in. As the library, it syncs nothing."""

    def __init__(self, disk: Disk, table: str) -> None:
        self.disk = disk
        self.table = table

    def names(self) -> list[str]:
        log = f"{self.table}/_delta_log"
        try:
            return self.disk.listdir(log)
        except FileNotFoundError:
            return []

    def read(self, paths: list[str]) -> list[bytes]:
        return [self.disk.read(f"{self.table}/{path}") for path in paths]

    def add(self, path: str, contents: bytes) -> bool:
        target = f"{self.table}/{path}"
        draft = f"{target}#{self.disk.turns.calls}"
        self.disk.write(draft, contents)
        try:
            self.disk.link(draft, target)
        except FileExistsError:
            return False
        finally:
            self.disk.unlink(draft)
        return True

    def write(self, path: str, contents: bytes) -> None:
        self.disk.write(f"{self.table}/{path}", contents)
