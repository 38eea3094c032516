"""The manifest: the contents of files that were read before.

A file is read once. While its size and times stay the same, its contents count as unchanged. The
manifest is saved in a file for the next process. If that file is lost, files are read again.
"""

import json
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from backfill_assets.lake.storage import make_cache, write_whole
from backfill_assets.sources.files.formats import JSON_LINES, AnyFormat, FileContents
from backfill_assets.sources.filesystem import DISK, Entry, FileSystem

# A file that changed this recently may change again without another time stamp: file systems have
# coarse clocks.
_SETTLED_S = 2.0
# Of what is saved. Increase it with any change of what FileContents says of a file.
_FORM_VERSION = 5
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
        try:
            saved = json.loads(self.path.read_text()) if self.path else {}
        except (OSError, ValueError):
            saved = {}
        if (
            isinstance(saved, dict)
            and saved.get("form") == self._form
            and isinstance(saved.get("files"), dict)
        ):
            self.settled = saved["files"]

    def contents(self, files: Iterable[AnEntry]) -> dict[AnEntry, FileContents]:
        """Return the contents of `files`. Only files that are new or changed are read."""
        known = {file: self._known(file) for file in files}
        unknown = [file for file, contents in known.items() if contents is None]
        with ThreadPoolExecutor(self.files.readers) as readers:
            read = dict(zip(unknown, readers.map(self.read, unknown), strict=True))
        return {file: contents or read[file] for file, contents in known.items()}

    def _known(self, file: Entry) -> FileContents | None:
        path = os.fspath(file)
        # A file system of whole seconds gives two writings one time stamp: what was read between
        # them counts for a moment only.
        recent = self.clock() - self.read_at.get(path, 0.0) <= _SETTLED_S
        entries = [
            entry
            for entry in (self.settled.get(path), self.unsettled.get(path) if recent else None)
            if entry
        ]
        if not entries:
            return None
        try:
            state = self.files.state(file)
        except OSError:
            return None
        stamp = list(state.stamp)
        return next(
            (
                FileContents(**contents | {"stamp": state.text})
                for known, contents in entries
                if known == stamp
            ),
            None,
        )

    def read(self, file: Entry) -> FileContents:
        """Read a file, even if its contents are known."""
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
