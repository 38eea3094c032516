"""An object store in memory, with faults. It answers `obstore`, Arrow's files and Delta's log.

Which faults a real store has:

- A call fails before it has an effect, or has its effect and the answer is lost (503, a connection
  that ends). A write may then arrive late, while its client has given up.
- The library repeats a call after a lost answer. So a conditional write may be answered by 412
  although the client's own write is there. Stores also answer 409 to writes at the same time.
- Stores answer gets and listings by what was written last (S3, Azure, Google). Caches before a
  store may answer a get by the object before it was overwritten. So only objects that are
  overwritten in place may be stale (`STALE`). All others are written once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, TypeVar

from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from pyarrow.fs import FileInfo, FileSelector, FileType, LocalFileSystem, SubTreeFileSystem

from tests.simulation.turns import Turns

T = TypeVar("T")
ADDRESS = "sim://lake"
STALE = re.compile(r"_locks/|.*/_known$|.*/_last_checkpoint$")
FAULTS = ("fails", "503", "lost answer", "late", "412", "409", "stale")


@dataclass(frozen=True)
class Entry:
    """An object of the store."""

    contents: bytes
    etag: str
    at: float

    @property
    def modified(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


@dataclass(frozen=True)
class Written:
    """A write or a deletion (no contents) that had its effect, as the `number`th of a history.

    `is_cut`: a cut of the power had it.
    """

    number: int
    path: str
    contents: bytes | None
    is_cut: bool = False


class Store:
    """Objects by path, and everything that happened to them."""

    def __init__(self, turns: Turns, objects: Mapping[str, Entry], rates: dict[str, float]) -> None:
        self.turns = turns
        self.objects = dict(objects)
        self.rates = rates
        self.written: list[Written] = []
        self._etags = len(objects)
        self._before: dict[str, Entry] = {}

    def set(self, path: str, contents: bytes | None) -> Entry:
        """Write or delete an object now."""
        self._etags += 1
        entry = Entry(contents or b"", f"e{self._etags}", self.turns.now)
        if path in self.objects:
            self._before[path] = self.objects[path]
        if contents is None:
            self.objects.pop(path, None)
        else:
            self.objects[path] = entry
        self.written.append(Written(len(self.written), path, contents))
        return entry

    def put(self, path: str, contents: bytes, after: str | None = None) -> Entry:
        """Write an object: a new one (`after` ""), the one with this etag, or any (None).

        Raises AlreadyExistsError, PreconditionError or GenericError.
        """

        def apply() -> Entry:
            there = self.objects.get(path)
            if after == "" and there:
                raise AlreadyExistsError(f"{path} is there")
            if after and (there is None or there.etag != after):
                raise PreconditionError(f"{path} has another etag")
            return self.set(path, contents)

        kind = "put" if after is None else "put if"
        return self._write(kind, path, apply, is_conditional=after is not None)

    def delete(self, path: str) -> None:
        def apply() -> None:
            if path in self.objects:
                self.set(path, None)

        self._write("delete", path, apply)

    def copy(self, source: str, target: str) -> None:
        def apply() -> None:
            self.set(target, self._get(source).contents)

        self._write("copy", target, apply)

    def get(self, path: str) -> Entry:
        """Raises FileNotFoundError or GenericError."""
        self._read("get", path)
        before = self._before.get(path)
        may_be_stale = STALE.match(path) and self.turns.now - self._get_time(path) < 1
        if before and may_be_stale and self._is_drawn("stale"):
            self.turns.note(f"gets a stale {path}")
            return before
        return self._get(path)

    def get_many(self, paths: list[str]) -> list[Entry]:
        """Several objects by requests at once."""
        self._read("get", paths[0] if paths else "")
        return [self._get(path) for path in paths]

    def list(self, prefix: str, what: str = "list") -> list[tuple[str, Entry]]:
        """The objects whose paths begin with this text, in order."""
        self._read(what, prefix)
        return sorted(
            (path, entry) for path, entry in self.objects.items() if path.startswith(prefix)
        )

    def _get(self, path: str) -> Entry:
        try:
            return self.objects[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def _get_time(self, path: str) -> float:
        entry = self.objects.get(path)
        return entry.at if entry else 0.0

    def _is_drawn(self, fault: str) -> bool:
        if self.turns.random.random() >= self.rates.get(fault, 0.0):
            return False
        self.turns.drawn[f"fault: {fault}"] += 1
        self.turns.actor.process.faults += 1
        return True

    def _fail(self, fault: str, what: str) -> GenericError:
        self.turns.note(f"{what}: {fault}")
        return GenericError(f"{what}: the simulated store answers: {fault}")

    def _read(self, what: str, path: str) -> None:
        self.turns.turn(f"{what} {path}")
        self.turns.note(f"{what} {path}")
        if self.rates and self._is_drawn("fails"):
            raise self._fail("fails", f"{what} {path}")

    def _write(
        self, kind: str, path: str, apply: Callable[[], T], *, is_conditional: bool = False
    ) -> T:
        what = f"{kind} {path}"
        actor = self.turns.actor

        def late() -> None:
            try:
                apply()
            except (GenericError, AlreadyExistsError, PreconditionError, FileNotFoundError):
                pass
            else:
                self.turns.note(f"{what} of {actor.name} arrives late")

        self.turns.turn(what)
        self.turns.note(what)
        if not self.rates:
            return apply()
        for fault in ("fails", "503"):
            if self._is_drawn(fault):
                raise self._fail(fault, what)
        if self._is_drawn("late"):
            self.turns.later(self.turns.random.choice([0.05, 2.0, 15.0]), late)
            raise self._fail("late", what)
        if is_conditional and self._is_drawn("409"):
            self.turns.note(f"{what}: 409")
            raise AlreadyExistsError(f"{what}: 409")
        done = apply()
        if self._is_drawn("lost answer"):
            raise self._fail("lost answer", what)
        if is_conditional and self._is_drawn("412"):
            self.turns.note(f"{what}: 412 to its own write")
            raise PreconditionError(f"{what}: 412")
        return done


class StoreAt:
    """What `object_store.store_at` gives: the objects below a path."""

    def __init__(self, place: str) -> None:
        self.prefix = f"{place}/".removeprefix(f"{ADDRESS}/").lstrip("/")

    def path(self, path: str) -> str:
        return f"{self.prefix}{path}"


@contextmanager
def _as_oserror() -> Iterator[None]:
    """Raise what Delta's and Arrow's file systems raise instead of the errors of `obstore`."""
    try:
        yield
    except GenericError as error:
        raise OSError(str(error)) from None


class Obstore:
    """The functions of the module `obstore` over a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, at: StoreAt, path: str, contents: bytes, mode: Any = None) -> dict[str, Any]:
        after = "" if mode == "create" else mode["e_tag"] if mode else None
        return {"e_tag": self._store.put(at.path(path), bytes(contents), after).etag}

    def get(self, at: StoreAt, path: str) -> Any:
        return _Answer(self._store.get(at.path(path)))

    def head(self, at: StoreAt, path: str) -> dict[str, Any]:
        return _meta(self._store.get(at.path(path)))

    def list(self, at: StoreAt, prefix: str, offset: str = "", chunk_size: int = 0) -> Any:
        found = self._store.list(at.path(f"{prefix}/"))
        start = len(at.prefix)
        named = [(path[start:], entry) for path, entry in found]
        yield [_meta(entry) | {"path": path} for path, entry in named if path > offset]

    def delete(self, at: StoreAt, path: str) -> None:
        self._store.delete(at.path(path))

    def copy(self, at: StoreAt, source: str, target: str) -> None:
        # The address of the bucket is the lake's own here.
        start = ADDRESS.rpartition("/")[2] + "/"
        self._store.copy(source.removeprefix(start), target.removeprefix(start))


class _Answer:
    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self.meta = _meta(entry)

    def bytes(self) -> bytes:
        return self._entry.contents


def _meta(entry: Entry) -> dict[str, Any]:
    return {"e_tag": entry.etag, "last_modified": entry.modified, "size": len(entry.contents)}


class StoreFiles(SubTreeFileSystem):
    """What `storage.files_in` gives. Arrow's own code never calls it: only ours does."""

    def __init__(self, store: Store, folder: str) -> None:
        super().__init__("/", LocalFileSystem())
        self.store = store
        self.prefix = StoreAt(folder).prefix

    def open_input_stream(self, path: str, *_: Any) -> BytesIO:
        with _as_oserror():
            return BytesIO(self.store.get(f"{self.prefix}{path}").contents)

    open_input_file = open_input_stream

    def get_file_info(self, what: Any) -> Any:
        if isinstance(what, FileSelector):
            return self._selected(what)
        if isinstance(what, str):
            return self._info(what)
        return [self._info(path) for path in what]

    def _info(self, path: str) -> FileInfo:
        with _as_oserror():
            found = dict(self.store.list(f"{self.prefix}{path}", "head"))
        if entry := found.get(f"{self.prefix}{path}"):
            return _info(path, entry)
        is_folder = any(name.startswith(f"{self.prefix}{path}/") for name in found)
        return FileInfo(path, FileType.Directory if is_folder else FileType.NotFound)

    def _selected(self, what: FileSelector) -> list[FileInfo]:
        folder = f"{self.prefix}{what.base_dir}/" if what.base_dir else self.prefix
        with _as_oserror():
            found = self.store.list(folder)
        infos: dict[str, FileInfo] = {}
        for name, entry in found:
            inner = name[len(folder) :]
            path = name[len(self.prefix) :]
            if what.recursive or "/" not in inner:
                infos[path] = _info(path, entry)
            else:
                above = path[: len(path) - len(inner)] + inner.partition("/")[0]
                infos[above] = FileInfo(above, FileType.Directory)
        return list(infos.values())

    def delete_file(self, path: str) -> None:
        with _as_oserror():
            if not self.store.list(f"{self.prefix}{path}", "head"):
                raise FileNotFoundError(path)
            self.store.delete(f"{self.prefix}{path}")

    def delete_dir(self, path: str) -> None:
        with _as_oserror():
            for name, _ in self.store.list(f"{self.prefix}{path}/"):
                self.store.delete(name)

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        pass


def _info(path: str, entry: Entry) -> FileInfo:
    return FileInfo(
        path, FileType.File, size=len(entry.contents), mtime_ns=int(entry.at * 1e6) * 1000
    )


class StoreLog:
    """The files of a Delta table for its stand-in: they are objects of the store."""

    def __init__(self, store: Store, table: str) -> None:
        self.store = store
        self.prefix = StoreAt(table).prefix

    def names(self) -> list[str]:
        start = f"{self.prefix}_delta_log/"
        with _as_oserror():
            return [path[len(start) :] for path, _ in self.store.list(start)]

    def read(self, paths: list[str]) -> list[bytes]:
        with _as_oserror():
            return [entry.contents for entry in self.store.get_many([self._at(p) for p in paths])]

    def add(self, path: str, contents: bytes) -> bool:
        """Write a new object. False if there is one."""
        with _as_oserror():
            try:
                self.store.put(self._at(path), contents, "")
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def write(self, path: str, contents: bytes) -> None:
        with _as_oserror():
            self.store.put(self._at(path), contents)

    def _at(self, path: str) -> str:
        return f"{self.prefix}{path}"
