"""The manifest of a landing area: what reading its files showed.

A file is read once; while its size and times stay the same, its contents count as unchanged. The manifest is saved in a file,
so that the next process need not read the landing area again. Losing that file costs time and nothing else.
"""

import json
import os
import stat
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from backfill_assets.sources.contents import FileContents
from backfill_assets.sources.formats import JSON_LINES, Format

# A file that changed this recently may change again without another time stamp: file systems have coarse clocks.
SETTLED_S = 2.0
# Unpacking, most of the work, runs in several threads at once.
READERS = 2
# Of what is saved. Increase it with any change of what FileContents says of a file.
FORM = 3


@dataclass
class Manifest:
    """The contents of files of one format by name, size and times. Those of files that have settled are saved at `path`, if it
    is given."""

    path: Path | None = None
    format: Format = JSON_LINES
    clock: Callable[[], float] = time.time
    settled: dict[str, list[Any]] = field(default_factory=dict)
    unsettled: dict[str, list[Any]] = field(default_factory=dict)
    changed: bool = False

    def __post_init__(self) -> None:
        try:
            saved = json.loads(self.path.read_text()) if self.path else {}
        except (OSError, ValueError):
            saved = {}
        if isinstance(saved, dict) and saved.get("form") == self._form and isinstance(saved.get("files"), dict):
            self.settled = saved["files"]

    def contents(self, files: Iterable[Path]) -> dict[Path, FileContents]:
        """The contents of `files`. A file is read only if the manifest does not have it as it is now."""
        known = {file: self._known(file) for file in files}
        unknown = [file for file, contents in known.items() if contents is None]
        with ThreadPoolExecutor(READERS) as readers:
            read = dict(zip(unknown, readers.map(self.read, unknown), strict=True))
        return {file: contents or read[file] for file, contents in known.items()}

    def _known(self, file: Path) -> FileContents | None:
        entries = [entry for entry in (self.settled.get(str(file)), self.unsettled.get(str(file))) if entry]
        try:
            stamp = _stamp(file.stat()) if entries else []
        except OSError:
            return None
        return next((_stamped(FileContents(**contents), stamp) for known, contents in entries if known == stamp), None)

    def read(self, file: Path) -> FileContents:
        """Read a file, whether it is known or not."""
        try:
            state = file.stat()
            if not stat.S_ISREG(state.st_mode):
                return FileContents(fault="cannot be listed" if stat.S_ISDIR(state.st_mode) else "is not a file")
            contents = self.format.contents(file)
        except OSError as error:
            return FileContents(fault=f"cannot be read ({error.strerror})")
        has_settled = self.clock() - max(state.st_mtime, state.st_ctime) > SETTLED_S
        (self.settled if has_settled else self.unsettled)[str(file)] = [_stamp(state), asdict(contents)]
        self.changed = self.changed or has_settled
        return _stamped(contents, _stamp(state))

    @property
    def _form(self) -> str:
        return f"{FORM} {self.format}"

    def save(self) -> None:
        """Write the manifest, if it has changed, whole or not at all; if not at all, the next process reads files again."""
        if not self.path or not self.changed:
            return
        with suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)  # not the home, where there is none yet: `status` makes nothing
            draft = self.path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({"form": self._form, "files": self.settled}))
            draft.replace(self.path)
            self.changed = False


@cache
def manifest_at(path: Path | None, form: Format) -> Manifest:
    """The one manifest of this process that is saved at `path`."""
    return Manifest(path, form)


def _stamp(state: os.stat_result) -> list[int]:
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns]


def _stamped(contents: FileContents, stamp: list[int]) -> FileContents:
    return replace(contents, stamp=" ".join(map(str, stamp)))
