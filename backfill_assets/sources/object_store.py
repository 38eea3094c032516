"""Files in an object store: S3 and compatible stores, Google Cloud Storage, Azure.

`obstore` reads them, with the same settings as a lake in a store. Set these variables for the
servers and commands:

- `s3://bucket/prefix`: AWS's variables, or a profile (`lake/object_store.py`).
- `gs://bucket/prefix`: GOOGLE_SERVICE_ACCOUNT, the path of a service account's key file.
- `abfs://container@account.dfs.core.windows.net/prefix`: AZURE_STORAGE_ACCOUNT_KEY; or
  AZURE_STORAGE_CLIENT_ID, AZURE_STORAGE_CLIENT_SECRET and AZURE_STORAGE_TENANT_ID of a service
  principal.

Tests use moto's S3. Google's, Azure's and Amazon's own stores were not tried.

Listings contain etags, and each read is bound to one: reading an object that was replaced fails.
Objects are copied to this machine first (`copies.py`), so Spark reads exactly the judged bytes. If
the engine runs elsewhere, BACKFILL_HOME must be a folder that the engine sees too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import obstore
from obstore.exceptions import BaseError, InvalidPathError, PreconditionError

from backfill_assets.digest import digest
from backfill_assets.lake.object_store import RETRIES, store_at, why
from backfill_assets.sources.copies import LocalCopies
from backfill_assets.sources.filesystem import (
    CANNOT_BE_LISTED,
    Entry,
    FileState,
    FileSystem,
    Subfolder,
    Tree,
    is_hidden,
)

# The bytes of one request. Its answer must come within the client's 30 seconds.
_RANGE_BYTES = 8 * 2**20


@dataclass(frozen=True)
class ObjectStore(FileSystem):
    """The objects below `place`, such as s3://bucket/prefix, read through `copies`."""

    place: str
    copies: LocalCopies = field(compare=False)
    retries: int = RETRIES
    readers: int = 8

    @property
    def prefix(self) -> str:
        return f"{digest(self.place, length=12)}-"

    @cached_property
    def _store(self) -> Any:
        return store_at(self.place, self.retries)

    def tree(self, folder: str, parts: Callable[[], Collection[Subfolder]]) -> Tree:
        folder = "" if folder == "." else folder
        folders = {folder: StoredObject(folder, within={})}
        wanted = [(f"{folder}/{below}".strip("/"), with_folders) for below, with_folders in parts()]
        with ThreadPoolExecutor(self.readers) as readers:
            listings = {
                path: readers.submit(self._listed, path, with_folders)
                for path, with_folders in wanted
            }
        for path, listing in listings.items():
            try:
                inner, objects = listing.result()
            except (BaseError, OSError) as error:
                fault = f"{CANNOT_BE_LISTED} ({self.place}: {why(error)})"
                is_away = not isinstance(error, InvalidPathError)
                if not is_away:
                    # Objects next to that object are not listed either.
                    fault += ". Rename or remove that object"
                if is_away or path == folder:
                    top = StoredObject(folder, within={}, fault=fault, is_away=is_away)
                    return Tree(top, _entries, fault)
                _add(folders, path, within={}, fault=fault)
                continue
            for inner_path in inner:
                _add(folders, inner_path.rstrip("/"), within={})
            for listed in objects:
                _add(
                    folders,
                    listed["path"],
                    etag=listed["e_tag"] or "",
                    size=listed["size"],
                    modified_ns=round(listed["last_modified"].timestamp() * 1e9),
                )
        return Tree(folders[folder], _entries)

    def _listed(self, folder: str, with_folders: bool) -> tuple[Sequence[str], Sequence[Any]]:
        """List a folder: its objects and folders, or all objects below it `with_folders`."""
        if with_folders:
            return [], list(
                chain.from_iterable(obstore.list(self._store, prefix=folder, chunk_size=1000))
            )
        listed = obstore.list_with_delimiter(self._store, prefix=folder)
        return listed["common_prefixes"], listed["objects"]

    def entry(self, path: str, size: int) -> Entry:
        return StoredObject(path, size=size)

    def state(self, entry: Entry) -> FileState:
        assert isinstance(entry, StoredObject)
        if entry.is_dir():
            return FileState((), fault=entry.fault or CANNOT_BE_LISTED)
        stamp = (entry.size, entry.modified_ns, entry.etag)
        return FileState(stamp, 0.0 if entry.etag else entry.modified_ns / 1e9)

    def unavailable_reason(self, entry: Entry) -> str:
        assert isinstance(entry, StoredObject)
        return entry.fault if entry.is_away else ""

    def has_sibling(self, entry: Entry, name: str) -> bool:
        assert isinstance(entry, StoredObject)
        return name in entry.siblings

    @contextmanager
    def open_local(self, entry: Entry) -> Iterator[Path]:
        with self.copies.open_local(*self._copied(entry)) as path:
            yield path

    def cached(self, entry: Entry, content: str) -> Path:
        return self.copies.cached(*self._copied(entry), content)

    def spark_address(self, entry: Entry) -> str:
        assert isinstance(entry, StoredObject)
        scheme, _, place = self.display_path(entry.path).partition("://")
        return f"s3a://{place}" if scheme in ("s3", "s3a") else ""

    def display_path(self, path: str) -> str:
        return f"{self.place}/{path}" if path not in ("", ".") else self.place

    def _copied(self, entry: Entry) -> tuple[str, Callable[[], Iterator[bytes]]]:
        """Return the name of an object's copy, and a function that fetches its bytes."""
        assert isinstance(entry, StoredObject)
        key = digest(f"{self.display_path(entry.path)} {self.state(entry).text}")
        ending = re.sub(r"[^\w.]", "_", PurePosixPath(entry.path).suffix)
        return f"{key}{ending}", lambda: self._pieces(entry)

    def _pieces(self, entry: StoredObject) -> Iterator[bytes]:
        same = {"if_match": entry.etag} if entry.etag else {}
        try:
            for start in range(0, entry.size, _RANGE_BYTES):
                options = same | {"range": (start, min(start + _RANGE_BYTES, entry.size))}
                answer = obstore.get(self._store, entry.path, options=options)  # type: ignore[arg-type]
                yield bytes(answer.bytes())
        except PreconditionError:
            raise OSError("it was replaced while it was read") from None
        except FileNotFoundError:
            raise OSError("it was deleted") from None
        except BaseError as error:
            raise OSError(f"{self.place}: {why(error)}") from None


@dataclass(frozen=True)
class StoredObject:
    """An object, or a folder: the common part of several objects' paths.

    `fault` says why a folder cannot be listed. `is_away`: the store does not answer now.
    """

    path: str
    etag: str = ""
    size: int = 0
    modified_ns: int = 0
    siblings: Mapping[str, StoredObject] = field(default_factory=dict, compare=False, repr=False)
    within: dict[str, StoredObject] | None = field(default=None, compare=False, repr=False)
    fault: str = ""
    is_away: bool = False

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def is_dir(self) -> bool:
        return self.within is not None

    def is_symlink(self) -> bool:
        return False

    def __fspath__(self) -> str:
        return self.path


def _entries(folder: Entry) -> Sequence[Entry] | None:
    assert isinstance(folder, StoredObject)
    if folder.fault:
        return None
    return [entry for name, entry in (folder.within or {}).items() if not is_hidden(name)]


def _add(folders: dict[str, StoredObject], path: str, **facts: Any) -> None:
    """Add an object or a folder to its parent. A missing parent is added too."""
    is_folder = "within" in facts
    if path in folders and not facts.get("fault"):
        return
    above, _, name = path.rpartition("/")
    _add(folders, above, within={})
    siblings = folders[above].within
    assert siblings is not None
    if is_folder or name not in siblings:  # some stores list a folder as an object
        siblings[name] = StoredObject(path, siblings=siblings, **facts)
    if is_folder:
        folders[path] = siblings[name]
