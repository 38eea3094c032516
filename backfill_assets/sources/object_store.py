"""Files in an object store: S3 and compatible stores, Google Cloud Storage, Azure.

`obstore` reads them, with the same environment variables as `deltalake`. Set these where the
servers and commands are started:

- `s3://bucket/prefix`: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION; for a compatible
  store also AWS_ENDPOINT_URL.
- `gs://bucket/prefix`: GOOGLE_SERVICE_ACCOUNT, the path of a service account's key file.
- `abfs://container@account.dfs.core.windows.net/prefix`: AZURE_STORAGE_ACCOUNT_KEY; or
  AZURE_STORAGE_CLIENT_ID, AZURE_STORAGE_CLIENT_SECRET and AZURE_STORAGE_TENANT_ID of a service
  principal.

Tests use moto's S3. Google's, Azure's and Amazon's own stores were not tried.

Listings contain etags, and each read is bound to one: an object that was replaced is not read.
Objects are copied to this machine first (`copies.py`), so Spark reads exactly what was judged. If
the engine runs elsewhere, BACKFILL_HOME must be a folder that it sees too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import obstore
from obstore.exceptions import BaseError, InvalidPathError, PreconditionError
from obstore.store import from_url

from backfill_assets.sources.copies import LocalCopies
from backfill_assets.sources.filesystem import (
    CANNOT_BE_LISTED,
    Entry,
    FileState,
    Part,
    Tree,
    is_hidden,
)

# Read in one request: an answer has to come within the client's 30 seconds.
_RANGE_BYTES = 8 * 2**20
# Where clouds hand credentials to their own machines: who is sent there has none of its own.
_METADATA_SERVICE = "169.254.169.254"
_NO_CREDENTIALS = (
    "there are no credentials for it: set the store's variables, as AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY"
)


@dataclass(frozen=True)
class ObjectStore:
    """The objects below `place`, such as s3://bucket/prefix. Files that are read go to `copies`."""

    place: str
    copies: LocalCopies = field(compare=False)
    retries: int = 4
    readers: int = 8

    @property
    def prefix(self) -> str:
        return f"{hashlib.sha256(self.place.encode()).hexdigest()[:12]}-"

    @cached_property
    def _store(self) -> Any:
        # A store that does not answer is said to within a minute.
        retry = {"max_retries": self.retries, "retry_timeout": timedelta(seconds=30)}
        return from_url(self.place, retry_config=retry)  # type: ignore[call-overload]

    def tree(self, folder: str, parts: Callable[[], Collection[Part]]) -> Tree:
        folder = "" if folder == "." else folder
        top = StoredObject(folder, within={})
        folders = {folder: top}
        asked = [(f"{folder}/{below}".strip("/"), with_folders) for below, with_folders in parts()]
        with ThreadPoolExecutor(self.readers) as readers:
            listings = [
                (path, readers.submit(self._listed, path, with_folders))
                for path, with_folders in asked
            ]
        for path, listing in listings:
            try:
                inner, objects = listing.result()
            except (
                InvalidPathError
            ) as error:  # nor is anything beside it listed: whoever wrote it has to rename it
                why = f"{CANNOT_BE_LISTED} ({self.place}: {_why(error)})"
                closed = f"{why}. Rename or remove that object"
                if path == folder:
                    return _StoreTree(StoredObject(folder, within={}, fault=closed))
                _add_unlistable(folders, path, closed)
                continue
            except (BaseError, OSError) as error:
                return _StoreTree(
                    StoredObject(
                        folder,
                        within={},
                        fault=f"{CANNOT_BE_LISTED} ({self.place}: {_why(error)})",
                        is_away=True,
                    )
                )
            for each in inner:
                _folder_in(folders, each.rstrip("/"))
            for each in objects:
                _add_object(folders, each)
        return _StoreTree(top)

    def _listed(self, folder: str, with_folders: bool) -> tuple[Sequence[str], Sequence[Any]]:
        """List a folder: its objects and folders, or all objects below it `with_folders`."""
        if with_folders:
            return [], list(
                chain.from_iterable(obstore.list(self._store, prefix=folder, chunk_size=1000))
            )
        listed = obstore.list_with_delimiter(self._store, prefix=folder)
        return listed["common_prefixes"], listed["objects"]

    def state(self, entry: Entry) -> FileState:
        assert isinstance(entry, StoredObject)
        if entry.is_dir():
            return FileState((), fault=entry.fault or CANNOT_BE_LISTED)
        stamp = (entry.size, entry.modified_ns, entry.etag)
        return FileState(stamp, 0.0 if entry.etag else entry.modified_ns / 1e9)

    def has_changed(self, entry: Entry) -> bool:
        return False  # reading another would have failed

    def unavailable_reason(self, entry: Entry) -> str:
        assert isinstance(entry, StoredObject)
        return entry.fault if entry.is_away else ""

    def has_sibling(self, entry: Entry, name: str) -> bool:
        assert isinstance(entry, StoredObject)
        return name in entry.beside

    @contextmanager
    def open_local(self, entry: Entry) -> Iterator[Path]:
        with self.copies.open_local(*self._copied(entry)) as path:
            yield path

    def cached(self, entry: Entry, content: str) -> Path:
        return self.copies.cached(*self._copied(entry), content)

    def display_path(self, path: str) -> str:
        return f"{self.place}/{path}" if path not in ("", ".") else self.place

    def unreadable_reason(self, path: str) -> str:
        return ""  # Spark reads the copy

    def _copied(self, entry: Entry) -> tuple[str, Callable[[], Iterator[bytes]]]:
        """Return the name of an object's copy, and how to fetch its bytes."""
        assert isinstance(entry, StoredObject)
        key = hashlib.sha256(
            f"{self.display_path(entry.path)} {self.state(entry).text}".encode()
        ).hexdigest()[:32]
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
            raise OSError(f"{self.place}: {_why(error)}") from None


@dataclass(frozen=True)
class StoredObject:
    """An object, or a folder: the common part of several objects' paths.

    `fault` says why a folder cannot be listed. `is_away` means that its store does not answer now.
    """

    path: str
    etag: str = ""
    size: int = 0
    modified_ns: int = 0
    beside: Mapping[str, StoredObject] = field(default_factory=dict, compare=False, repr=False)
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


@dataclass(frozen=True)
class _StoreTree:
    """One look at the objects below a folder. Faults are found when it is made."""

    top: StoredObject

    @property
    def fault(self) -> str:
        return self.top.fault

    def entries(self, folder: Entry) -> Sequence[Entry] | None:
        assert isinstance(folder, StoredObject)
        if folder.fault:
            return None
        return [entry for name, entry in (folder.within or {}).items() if not is_hidden(name)]


def _folder_in(folders: dict[str, StoredObject], path: str) -> dict[str, StoredObject]:
    """Return the content of a folder. A missing folder is added to its parents."""
    if path not in folders:
        above, _, name = path.rpartition("/")
        beside = _folder_in(folders, above)
        folders[path] = beside[name] = StoredObject(path, beside=beside, within={})
    within = folders[path].within
    assert within is not None
    return within


def _add_unlistable(folders: dict[str, StoredObject], path: str, fault: str) -> None:
    """Add a folder that cannot be listed to its parent."""
    above, _, name = path.rpartition("/")
    beside = _folder_in(folders, above)
    folders[path] = beside[name] = StoredObject(path, beside=beside, within={}, fault=fault)


def _add_object(folders: dict[str, StoredObject], listed: Mapping[str, Any]) -> None:
    """Add an object from the store's listing to its folder."""
    folder, _, name = listed["path"].rpartition("/")
    beside = _folder_in(folders, folder)
    if name not in beside:  # some stores list a folder as an object
        modified_ns = round(listed["last_modified"].timestamp() * 1e9)
        beside[name] = StoredObject(
            listed["path"], listed["e_tag"] or "", listed["size"], modified_ns, beside
        )


def _why(error: Exception) -> str:
    """Turn the library's report into a short reason."""
    text = str(error).partition("\n\nDebug source")[0]
    if _METADATA_SERVICE in text:
        return _NO_CREDENTIALS
    answer = re.search(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", text, re.DOTALL)
    if answer:
        return f"{answer[1]}, {answer[2].rstrip('.')}"
    if "error sending request" in text:
        endpoint = re.search(r"https?://[^/\s]+", text)
        return f"{endpoint[0] if endpoint else 'the store'} does not answer"
    return text.partition("\n")[0][:200]
