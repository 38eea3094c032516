"""What lies in a landing area: the files of each day, and what their bytes say.

A file is read through once; after that its size and times tell that it is still the same. What was found is kept in a file, so
that the next process does not read it again either: losing that costs time and nothing else.
"""

from __future__ import annotations

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
LONGEST_LINE = 1 << 20
YEAR = re.compile(r"year=(\d{4})")
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
# A file that changed this recently may change again without its times telling: clocks of file systems tick slowly.
SETTLED_S = 2.0


def files_by_day(top: Path, days: Collection[date]) -> dict[date, list[Path]]:
    """The files delivered for each of `days`, in order; every folder on the way is looked at once, and no other."""
    found: dict[date, list[Path]] = {day: [] for day in days}
    years, months = {f"{day:%Y}" for day in days}, {f"{day:%Y-%m}" for day in days}
    for entry in _shown(top):
        of_year = YEAR.fullmatch(entry.name)
        if of_year and of_year[1] in years:
            for month in _parts(entry, "month"):
                if f"{of_year[1]}-{month.name[6:]}" in months:
                    for each in _parts(month, "day"):
                        _add(found, f"{of_year[1]}-{month.name[6:]}-{each.name[4:]}", _below(each))
        elif entry.is_dir():
            _add(found, entry.name, _below(entry))
        else:
            _add(found, entry.name[:10], iter([Path(entry)]))
    return {day: sorted(files) for day, files in found.items()}


def _add(found: dict[date, list[Path]], name: str, files: Iterator[Path]) -> None:
    try:
        day = date.fromisoformat(name) if DAY.fullmatch(name) else None
    except ValueError:
        return
    if day in found:
        found[day] += [path for path in files if path.name.endswith(ENDINGS)]


def _shown(folder: Path | os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    """Names that begin with _ or . are uploads under way; Spark does not read them either."""
    if Path(folder).is_dir():
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if not entry.name.startswith(("_", ".")))


def _parts(folder: os.DirEntry[str], kind: str) -> Iterator[os.DirEntry[str]]:
    return (entry for entry in _shown(folder) if re.fullmatch(rf"{kind}=\d\d", entry.name))


def _below(folder: os.DirEntry[str]) -> Iterator[Path]:
    for entry in _shown(folder):
        if entry.is_dir(follow_symlinks=False):  # a link to a folder could lead back to this one
            yield from _below(entry)
        elif entry.is_file():
            yield Path(entry)


@dataclass(frozen=True)
class Facts:
    """What a file's bytes say: their hash, whether there is a line in it, whether it ends within one."""

    content: str
    empty: bool
    cut_off: bool


@dataclass
class Manifest:
    """The facts of files, by name, size and times; those of files that have settled are kept at `path`, if one is given."""

    path: Path | None = None
    clock: Callable[[], float] = time.time
    known: dict[str, list[Any]] = field(default_factory=dict)
    fresh: dict[str, list[Any]] = field(default_factory=dict)
    news: bool = False

    def __post_init__(self) -> None:
        try:
            self.known = json.loads(self.path.read_text()) if self.path else {}
        except (OSError, ValueError):
            self.known = {}

    def facts(self, file: Path) -> Facts:
        state = file.stat()
        stamp = [state.st_size, state.st_mtime_ns, state.st_ctime_ns]
        for kept in (self.known.get(str(file)), self.fresh.get(str(file))):
            if kept and kept[0] == stamp:
                return Facts(**kept[1])
        found = Facts(_hash(file), not _holds_something(file), _cut_off(file))
        settled = self.clock() - max(state.st_mtime, state.st_ctime) > SETTLED_S
        (self.known if settled else self.fresh)[str(file)] = [stamp, asdict(found)]
        self.news = self.news or settled
        return found

    def keep(self) -> None:
        """Write down what is new, whole or not at all."""
        if self.path and self.news:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_suffix(f".{os.getpid()}")
            beside.write_text(json.dumps(self.known))
            beside.replace(self.path)
            self.news = False


@cache
def manifest_at(path: Path | None) -> Manifest:
    """The one manifest of this process that is kept at `path`."""
    return Manifest(path)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def _holds_something(path: Path) -> bool:
    opened = gzip.open if path.name.endswith(".gz") else open
    try:
        with opened(path, "rb") as file:
            return any(line.strip() for line in file)
    except (OSError, EOFError, zlib.error):
        return True  # damaged, not empty: `fault` says so


def _cut_off(path: Path) -> bool:
    """Whether a plain file ends within a line. Of a packed one, reading it to its end tells."""
    if path.name.endswith(".gz"):
        return False
    with path.open("rb") as file:
        file.seek(-min(path.stat().st_size, LONGEST_LINE), os.SEEK_END)
        last = file.read().rpartition(b"\n")[2].strip()
    try:
        json.loads(last or b"{}")
    except ValueError:
        return True
    return False


def fault(path: Path) -> str:
    """Why a packed file cannot be read to its end; nothing if it can."""
    if not path.name.endswith(".gz"):
        return ""
    try:
        with gzip.open(path) as file:
            while file.read(1 << 20):
                pass
    except (OSError, EOFError, zlib.error) as error:
        return f"cannot be read to its end ({error})"
    return ""
