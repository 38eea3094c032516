"""The places in a lake, and small files that are written atomically.

Live tables are at `<lake>/<layer>/<table>`, or where they were adopted. Names with an underscore
are our own.
"""

import errno
import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil
import pyarrow as pa
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from backfill_assets.errors import (
    NOTHING_CHANGED,
    SettingsError,
    TableUnreadable,
    causes,
    error_text,
)
from backfill_assets.lake.durable import flush, put_on_disk
from backfill_assets.lake.object_store import delta_options, put
from backfill_assets.settings import PRIVATE
from backfill_assets.tries import again_after

T = TypeVar("T")
R = TypeVar("R")


def make_cache(folder: Path, *, and_home: bool = False) -> None:
    """Create a cache folder in the home. Raises OSError if there is no home.

    With `and_home`, the home is created too, private to its owner.
    """
    if and_home:
        folder.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)


FULL_DISK = ("No space left on device", "Disk quota exceeded")


def is_disk_full(error: BaseException | None) -> bool:
    """True if an error, or one of its causes, means a full disk."""
    return any(
        getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        or any(words in str(cause) for words in FULL_DISK)
        for cause in causes(error)
    )


def full_disk_message(lake: str, table: str) -> str:
    """The message for a step of `table` on a full disk, with the free space."""
    places = {"the lake": lake} if "://" not in lake else {}
    places["temporary files"] = tempfile.gettempdir()
    room = ", ".join(f"{_free(path)} MB for {name} at {path}" for name, path in places.items())
    return error_text(
        f"The disk of the lake or of temporary files is full: {room}.",
        f"Days of {table} that were not committed are unchanged.",
        "Make room, then continue the plan with `backfill resume`, or re-execute this run from"
        " failure.",
    )


def _free(path: str) -> int:
    folder = next(place for place in [Path(path), *Path(path).parents] if place.exists())
    return int(psutil.disk_usage(str(folder)).free // 2**20)


SHADOWS = "_shadow"
TABLE_FACTS = "_table_facts"
ARCHIVED = "_archived"
LEDGER = "_ledger"
ANSWERS = "_answers"
ALERTS = "_alerts"
ELSEWHERE = "_elsewhere"


# The form of the documents in a lake, as `decisions/formats.md` specifies it. A lake is marked with
# a newer form by the name of a file in each folder of numbered documents, and by a property of the
# ledger. Form 0 is from before there were numbers.
FORM = 1
FORM_MARK = "_form-"
FORM_PROPERTY = "backfill_assets.form"
# A property of the ledger: the zone of the lake's days. Without it they are of UTC.
ZONE_PROPERTY = "backfill_assets.zone"


def refuse_other_form(path: str, form: int) -> None:
    """Raise TableUnreadable for records in a newer form, or in form 0."""
    if form > FORM:
        raise TableUnreadable(
            f"{path} was written by a newer version, in form {form}; this version reads form"
            f" {FORM}.",
            unchanged=NOTHING_CHANGED,
            next_step="Use the version that wrote it, or a later one.",
        )
    if not form:
        raise TableUnreadable(
            f"{path} was written by an earlier version, in a form that is not read.",
            unchanged=NOTHING_CHANGED,
            next_step="Use the version that wrote it, or build the days in a new lake.",
        )


def refuse_other_zone(root: str, zone: str, kept: str) -> None:
    """Raise SettingsError if the days of a lake, which are `kept` in a zone, are not of `zone`."""
    if zone not in ("", kept):
        raise SettingsError(
            f"Days of the lake {root} begin at midnight in {kept}, and those of the project in"
            f" {zone}.",
            unchanged=NOTHING_CHANGED,
            next_step=(
                f"Set BACKFILL_ZONE={kept}, or for days of {zone} set BACKFILL_LAKE to an empty"
                " place."
            ),
        )


@dataclass(frozen=True)
class Paths:
    """The places below `root`, a directory or an object-store prefix."""

    root: str

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def table(self, name: str) -> str:
        in_lake = f"{self.root}/{name}"
        # Records and shadows have no tables elsewhere.
        if name.startswith("_") or f"/{SHADOWS}/" in self.root:
            return in_lake
        return recorded_places(self.root).get(name, Place(in_lake)).folder

    @property
    def table_facts(self) -> str:
        return f"{self.root}/{TABLE_FACTS}"

    @property
    def shadows(self) -> str:
        return f"{self.root}/{SHADOWS}"

    @property
    def plans(self) -> str:
        return f"{self.root}/_plans"

    @property
    def verdicts(self) -> str:
        return f"{self.root}/_verdicts"

    @property
    def diffs(self) -> str:
        return f"{self.root}/_diffs"

    def archived(self, name: str) -> str:
        """The files of one day that files of several days were split into."""
        return f"{self.root}/{ARCHIVED}/{name}"

    def answers(self, name: str) -> str:
        """The answers of a service that is a source."""
        return f"{self.root}/{ANSWERS}/{name}"

    @property
    def locks(self) -> Path:
        """Files on which processes hold locks: only in a local lake (`lake/locks.py`)."""
        return Path(self.root) / "_locks"

    @property
    def leases(self) -> str:
        """The locks and markers of a lake in an object store (`lake/leases.py`)."""
        return f"{self.root}/_locks"


def uri_of(folder: str) -> str:
    """The address of a folder. It does not depend on the spelling of the path."""
    return folder if "://" in folder else Path(folder).resolve().as_uri()


# The times in the names of documents that are read in the order of writing.
STAMP = "%Y%m%dT%H%M%S%f"


def name_after(names: Sequence[str], at: datetime, kind: str = "") -> str:
    """The name of a document that was written at a time, sorted after these `names`.

    If another host's clock is ahead, the time in the name is later than `at`.
    """
    order = at.astimezone(UTC)
    for name in names[-1:]:
        last = datetime.strptime(name.partition("-")[0], STAMP).replace(tzinfo=UTC)
        order = max(order, last + timedelta(microseconds=1))
    return "-".join(filter(None, (f"{order:{STAMP}}", kind, f"{secrets.token_hex(2)}.json")))


def files_in(folder: str) -> FileSystem:
    """The files below a directory or an object-store prefix, with Delta's credentials."""
    if "://" in folder:
        return PyFileSystem(DeltaStorageHandler(folder, delta_options(folder)))
    return SubTreeFileSystem(str(Path(folder).absolute()), LocalFileSystem())


# Concurrent requests to an object store.
AT_ONCE = 16


def at_once(folder: str, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Do `work` on all items. In an object store the requests are concurrent."""
    if "://" not in folder:
        return list(map(work, items))
    with ThreadPoolExecutor(AT_ONCE) as workers:
        return list(workers.map(work, items))


def infos_of(folder: str, paths: Iterable[str]) -> list[fs.FileInfo]:
    """The size, the time and the type of files below `folder`. A missing file is `NotFound`."""
    store = files_in(folder)
    if "://" in folder:
        return at_once(folder, store.get_file_info, paths)
    return store.get_file_info(wanted) if (wanted := list(paths)) else []


def archived_in(root: str) -> list[str]:
    """The folders of split files in the lake at `root`."""
    folders = files_in(root).get_file_info(FileSelector(ARCHIVED, allow_not_found=True))
    return sorted(f"{ARCHIVED}/{folder.base_name}" for folder in folders if not folder.is_file)


# In spite of `allow_not_found`, Arrow raises while another process creates or removes a folder.
_RETRY = again_after(FileNotFoundError, 3).wraps


@dataclass(frozen=True)
class Documents:
    """The JSON files in a directory or an object-store prefix, and in the folders in it."""

    folder: str

    @cached_property
    def _files(self) -> fs.FileSystem:
        return files_in(self.folder)

    @_RETRY
    def names(self, within: str = "") -> list[str]:
        """The names of the finished files in the folder `within`, in order."""
        return sorted(file.base_name for file in self._listed(within))

    @_RETRY
    def by_folder(self) -> dict[str, dict[str, fs.FileInfo]]:
        """The files by folder and name, in order, from one listing. The top folder is ""."""
        found: dict[str, dict[str, fs.FileInfo]] = {"": {}}
        for file in sorted(self._listed("", recursive=True), key=lambda file: file.path):
            found.setdefault(file.path.rpartition("/")[0], {})[file.base_name] = file
        return found

    def _listed(self, within: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        files = self._files.get_file_info(
            fs.FileSelector(within, allow_not_found=True, recursive=recursive)
        )
        return [
            file
            for file in files
            if file.extension == "json" and not file.base_name.startswith("_")
        ]

    def read(self, path: str) -> bytes:
        with self._files.open_input_stream(path) as file:
            return bytes(file.read())

    def delete(self, path: str) -> None:
        """Delete the file at `path`, if it exists."""
        with suppress(FileNotFoundError):
            self._files.delete_file(path)

    def write(self, path: str, contents: str | bytes) -> None:
        """Write the file at `path` below the folder. Readers see the whole file or none."""
        encoded = contents if isinstance(contents, bytes) else contents.encode()
        write_file(self.folder, path, encoded, write_whole)


class Place(NamedTuple):
    """The recorded folder of a table outside of its lake.

    If its adoption was undone, nothing is written there, and the folder is only read.
    """

    folder: str
    is_undone: bool = False


# In an object store, places are read again after this many seconds.
_PLACES_AGAIN_S = 10
_NS = 10**9
# The lake and the name of each table outside of its lake, by the folders that were read.
_TABLES: dict[str, tuple[str, str]] = {}


def lake_and_table(folder: str) -> tuple[str, str]:
    """The root of the lake and the name of the table in `folder`."""
    root, layer, name = folder.rsplit("/", 2)
    return _TABLES.get(folder, (root, f"{layer}/{name}"))


def record_place(root: str, name: str, place: Place | None) -> None:
    """Record where a table lies outside of the lake at `root`. None: it lies in the lake."""
    documents = Documents(f"{root}/{ELSEWHERE}")
    file = f"{name.replace('/', '.')}.json"
    if place:
        documents.write(file, json.dumps({"path": place.folder, "undone": place.is_undone}))
    else:
        documents.delete(file)
    _places_at.cache_clear()


def recorded_places(root: str, *, are_new: bool = False) -> Mapping[str, Place]:
    """The places of tables outside of the lake, by the names of the tables.

    In an object store they may be some seconds old, unless `are_new`.
    """
    moment = int(time.monotonic() / _PLACES_AGAIN_S)
    if "://" not in root:
        try:
            moment = Path(root, ELSEWHERE).stat().st_mtime_ns
        except FileNotFoundError:
            return {}
        # Two changes may have the same time.
        are_new = are_new or time.time_ns() - moment < _NS
    if are_new:
        _places_at.cache_clear()
    return _places_at(root, moment)


@lru_cache(maxsize=8)
def _places_at(root: str, moment: int) -> Mapping[str, Place]:
    documents = Documents(f"{root}/{ELSEWHERE}")
    places = dict[str, Place]()
    for file in documents.names():
        document = json.loads(documents.read(file))
        name = file.removesuffix(".json").replace(".", "/", 1)
        places[name] = Place(document["path"], document.get("undone", False))
        _TABLES[document["path"]] = root, name
    return places


def write_file(
    folder: str,
    path: str,
    contents: bytes | pa.Buffer,
    write: Callable[[Path, Any], object] = Path.write_bytes,
) -> None:
    """Write a file below `folder`. By default, a new one that has no readers yet."""
    if "://" in folder:
        put(folder, path, bytes(contents))
        return
    target = Path(folder, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write(target, contents)


def write_whole(path: Path, contents: str | bytes) -> None:
    """Write a local file. Readers see the whole new file, or the whole earlier one."""
    with replacing(path) as draft:
        draft.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the path of a draft that replaces the file `path` at the end of the block.

    If the block fails, the draft is removed. Its name begins with an underscore, so sources and
    `Documents` do not read it.
    """
    draft = path.with_name(f"_{secrets.token_hex(4)}.{path.name}")
    try:
        yield draft
        # After a power cut, a file with the final name is complete.
        flush(draft)
        draft.replace(path)
        put_on_disk(str(path.parent))
    finally:
        draft.unlink(missing_ok=True)
