"""The manifest of a landing area: the files of each day, and what reading them showed.

A file is read once; while its size and times stay the same, its contents count as unchanged. The manifest is saved in a file,
so that the next process need not read the landing area again. Losing that file costs time and nothing else.
"""

import gzip
import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

ENDINGS = tuple(f".{kind}{packed}" for kind in ("jsonl", "json", "ndjson") for packed in ("", ".gz"))
MAX_LINE = 1 << 20
YEAR = re.compile(r"year=(\d{4})")
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
# A file that changed this recently may change again without another time stamp: file systems have coarse clocks.
SETTLED_S = 2.0


def files_by_day(top: Path, days: Collection[date]) -> dict[date, list[Path]]:
    """The files delivered for each of `days`, in order. Only the folders that may hold them are listed, each once."""
    files: dict[date, list[Path]] = {day: [] for day in days}
    years, months = {f"{day:%Y}" for day in days}, {f"{day:%Y-%m}" for day in days}
    for entry in _visible(top):
        of_year = YEAR.fullmatch(entry.name)
        if of_year and of_year[1] in years:
            for month in _partitions(entry, "month"):
                if f"{of_year[1]}-{month.name[6:]}" in months:
                    for day in _partitions(month, "day"):
                        _add(files, f"{of_year[1]}-{month.name[6:]}-{day.name[4:]}", _files_below(day))
        elif entry.is_dir():
            _add(files, entry.name, _files_below(entry))
        else:
            _add(files, entry.name[:10], iter([Path(entry)]))
    return {day: sorted(paths) for day, paths in files.items()}


def _add(files: dict[date, list[Path]], name: str, paths: Iterator[Path]) -> None:
    try:
        day = date.fromisoformat(name) if DAY.fullmatch(name) else None
    except ValueError:
        return
    if day in files:
        files[day] += [path for path in paths if path.name.endswith(ENDINGS)]


def _visible(folder: Path | os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder, if it exists. Names that begin with _ or . are unfinished uploads; Spark skips them too."""
    if Path(folder).is_dir():
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if not entry.name.startswith(("_", ".")))


def _partitions(folder: os.DirEntry[str], column: str) -> Iterator[os.DirEntry[str]]:
    return (entry for entry in _visible(folder) if re.fullmatch(rf"{column}=\d\d", entry.name))


def _files_below(folder: os.DirEntry[str]) -> Iterator[Path]:
    for entry in _visible(folder):
        if entry.is_dir(follow_symlinks=False):  # a link to a folder could lead back to this one
            yield from _files_below(entry)
        elif entry.is_file():
            yield Path(entry)


@dataclass(frozen=True)
class FileContents:
    """What reading a file showed: a hash of its bytes, whether it has no lines, whether its last line is cut off."""

    content: str
    empty: bool
    cut_off: bool


@dataclass
class Manifest:
    """The contents of files by name, size and times. Those of files that have settled are saved at `path`, if it is given."""

    path: Path | None = None
    clock: Callable[[], float] = time.time
    settled: dict[str, list[Any]] = field(default_factory=dict)
    unsettled: dict[str, list[Any]] = field(default_factory=dict)
    changed: bool = False

    def __post_init__(self) -> None:
        try:
            self.settled = json.loads(self.path.read_text()) if self.path else {}
        except (OSError, ValueError):
            self.settled = {}

    def contents(self, file: Path) -> FileContents:
        """The contents of `file`, which is read only if the manifest does not have it as it is now."""
        state = file.stat()
        stamp = [state.st_size, state.st_mtime_ns, state.st_ctime_ns]
        for entry in (self.settled.get(str(file)), self.unsettled.get(str(file))):
            if entry and entry[0] == stamp:
                return FileContents(**entry[1])
        contents = FileContents(_hash(file), not _has_lines(file), _cut_off(file))
        has_settled = self.clock() - max(state.st_mtime, state.st_ctime) > SETTLED_S
        (self.settled if has_settled else self.unsettled)[str(file)] = [stamp, asdict(contents)]
        self.changed = self.changed or has_settled
        return contents

    def save(self) -> None:
        """Write the manifest, if it has changed, whole or not at all."""
        if self.path and self.changed:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft = self.path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(self.settled))
            draft.replace(self.path)
            self.changed = False


@cache
def manifest_at(path: Path | None) -> Manifest:
    """The one manifest of this process that is saved at `path`."""
    return Manifest(path)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def _has_lines(path: Path) -> bool:
    opened = gzip.open if path.name.endswith(".gz") else open
    try:
        with opened(path, "rb") as file:
            return any(line.strip() for line in file)
    except (OSError, EOFError, zlib.error):
        return True  # damaged, not empty: `fault` says so


def _cut_off(path: Path) -> bool:
    """Whether a plain file ends within a line. A compressed one that is cut off cannot be read to its end: see `fault`."""
    if path.name.endswith(".gz"):
        return False
    with path.open("rb") as file:
        file.seek(-min(path.stat().st_size, MAX_LINE), os.SEEK_END)
        last = file.read().rpartition(b"\n")[2].strip()
    try:
        json.loads(last or b"{}")
    except ValueError:
        return True
    return False


def fault(path: Path) -> str:
    """Why a compressed file cannot be read to its end; an empty text if it can."""
    if not path.name.endswith(".gz"):
        return ""
    try:
        with gzip.open(path) as file:
            while file.read(1 << 20):
                pass
    except (OSError, EOFError, zlib.error) as error:
        return f"cannot be read to its end ({error})"
    return ""
