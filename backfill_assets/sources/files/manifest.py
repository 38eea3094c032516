"""The manifest: the contents of files that were read before.

A file is read once. While its size and times stay the same, its contents count as unchanged. The
manifest is saved in a file for the next process. If that file is lost, files are read again.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from backfill_assets.lake.storage import make_cache, write_whole
from backfill_assets.sources.files.formats import JSON_LINES, AnyFormat, FileContents
from backfill_assets.sources.filesystem import DISK, Entry, FileSystem

# A file that changed this recently may change again within the same time stamp, because the clocks
# of file systems are coarse.
_SETTLED_S = 2.0
# The version of a saved manifest. Increase it with each change of `FileContents`.
_FORM_VERSION = 9
AnEntry = TypeVar("AnEntry", bound=Entry)


@dataclass
class Manifest:
    """The contents of files of one format, by name, size and times.

    Contents of files that have settled are saved at `path`, if it is given.
    """

    path: Path | None = None
    format: AnyFormat = JSON_LINES
    files: FileSystem = DISK
    clock: Callable[[], float] = time.time
    settled: dict[str, list[Any]] = field(default_factory=dict)
    unsettled: dict[str, list[Any]] = field(default_factory=dict)
    read_at: dict[str, float] = field(default_factory=dict)
    changed: bool = False

    def __post_init__(self) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            saved = json.loads(self.path.read_text()) if self.path else {}
            if saved["form"] == self._form:
                self.settled = dict(saved["files"])

    def contents(self, files: Iterable[AnEntry]) -> dict[AnEntry, FileContents]:
        """Return the contents of `files`. Only files that are new or changed are read."""
        contents = {file: self._saved(file) for file in files}
        unread = [file for file, saved in contents.items() if saved is None]
        with ThreadPoolExecutor(self.files.readers) as readers:
            read = dict(zip(unread, readers.map(self.read, unread), strict=True))
        return {file: saved or read[file] for file, saved in contents.items()}

    def _saved(self, file: Entry) -> FileContents | None:
        path = os.fspath(file)
        # A file system with whole seconds gives two writes the same time stamp. So contents that
        # were read between them are valid only for a moment.
        is_recent = self.clock() - self.read_at.get(path, 0.0) <= _SETTLED_S
        entries = [self.settled.get(path), self.unsettled.get(path) if is_recent else None]
        if any(entries):
            with suppress(OSError):
                state = self.files.state(file)
                for entry in filter(None, entries):
                    if entry[0] == list(state.stamp):
                        return FileContents(**entry[1] | {"stamp": state.text})
        return None

    def read(self, file: Entry) -> FileContents:
        """Read a file, even if its contents are in the manifest."""
        try:
            state = self.files.state(file)
            if state.fault:
                return FileContents(fault=state.fault)
            with self.files.open_local(file) as path:
                contents = self.format.contents(path)
        except OSError as error:
            return FileContents(fault=f"cannot be read ({error.strerror or error})")
        now = self.read_at[os.fspath(file)] = self.clock()
        has_settled = now - state.changed > _SETTLED_S
        (self.settled if has_settled else self.unsettled)[os.fspath(file)] = [
            list(state.stamp),
            asdict(contents),
        ]
        self.changed = self.changed or has_settled
        return replace(contents, stamp=state.text)

    def paths_of(self, unpacked: Collection[str]) -> set[str]:
        """Return the paths of files that had these `unpacked` hashes when they were read."""
        read = {**self.settled, **self.unsettled}
        return {path for path, (_, contents) in read.items() if contents["unpacked"] in unpacked}

    @property
    def _form(self) -> str:
        return f"{_FORM_VERSION} {self.format}"

    def save(self) -> None:
        """Write the manifest atomically if it has changed.

        If that fails, the next process reads the files again.
        """
        if not self.path or not self.changed:
            return
        with suppress(OSError):
            make_cache(self.path.parent)
            write_whole(self.path, json.dumps({"form": self._form, "files": self.settled}))
            self.changed = False


@cache
def manifest_at(path: Path | None, form: AnyFormat, files: FileSystem = DISK) -> Manifest:
    """Return this process's only manifest that is saved at `path`."""
    return Manifest(path, form, files)
