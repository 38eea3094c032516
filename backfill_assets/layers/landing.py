"""The landing area: where deliveries lie, a folder or file a day.

`<landing>/<name>/year=YYYY/month=MM/day=DD/*`, `<landing>/<name>/YYYY-MM-DD/*` and archive files `<landing>/<name>/YYYY-MM-DD*`
all belong to that arrival day, together. Files end in .jsonl, .json or .ndjson, with .gz or without.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.errors import SourceError

ENDINGS = tuple(f".{kind}{packed}" for kind in ("jsonl", "json", "ndjson") for packed in ("", ".gz"))
IN_JAVAS_PATHS = "/=:@!$&'()*+,;~-._"
LONGEST_LINE = 1 << 20
LINES = "arrival_day DATE, source_file STRING, line STRING"


@dataclass(frozen=True)
class Landing:
    """The deliveries called `name` under `root()`."""

    name: str
    root: Callable[[], Path]

    def files(self, day: date) -> list[Path]:
        """Every file delivered for `day`, in order; SourceError where there is none, or only empty ones."""
        top = self.root() / self.name
        folders = [top / f"year={day:%Y}" / f"month={day:%m}" / f"day={day:%d}", top / f"{day}"]
        found = [path for folder in folders for path in folder.rglob("*")] + list(top.glob(f"{day}*"))
        # Names that begin with _ or . are uploads under way; Spark does not read them either.
        shown = [path for path in found if not any(part.startswith(("_", ".")) for part in path.relative_to(top).parts)]
        files = sorted({path for path in shown if path.is_file() and path.name.endswith(ENDINGS)})
        if not files:
            raise SourceError(f"no source for {day} in {self.root()}")
        if not any(_holds_something(path) for path in files):
            raise SourceError(f"the source for {day} holds no rows: {', '.join(self.called(f) for f in files)}")
        cut = [path for path in files if _cut_off(path)]
        if cut:
            raise SourceError(f"the source for {day} is damaged: {', '.join(self.called(f) for f in cut)} is cut off")
        return files

    def called(self, path: Path) -> str:
        """A file's name as messages and `source_file` give it: relative to the landing area."""
        return path.relative_to(self.root()).as_posix()

    def fingerprint(self, day: date) -> str:
        """A hash of the names, sizes and contents of the day's files."""
        told = [f"{self.called(path)} {path.stat().st_size} {_content(path)}" for path in self.files(day)]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]

    def read(self, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The lines of `days` as received, blank ones left out: (arrival_day, source_file, line)."""
        delivered = [(_in_uris(path), self.called(path), day) for day in days for path in self.files(day)]
        names = spark.createDataFrame(delivered, "path STRING, source_file STRING, arrival_day DATE")
        paths = [f"file://{_literally(path)}" for day in days for path in self.files(day)]
        lines = spark.read.option("recursiveFileLookup", "true").text(paths)
        path = F.regexp_replace("_metadata.file_path", "^file:/+", "/").alias("path")
        known = lines.select(F.col("value").alias("line"), path).join(F.broadcast(names), "path", "left")
        # A file that Spark spells otherwise than we do must stop the step: its rows would be lost without a word.
        day = F.coalesce("arrival_day", F.raise_error(F.concat(F.lit("no day known for "), "path")).cast("date"))
        return known.where("trim(line) <> ''").select(day.alias("arrival_day"), "source_file", "line")

    def damaged(self, days: Sequence[date]) -> dict[date, str]:
        """Of each day with a file that cannot be read to its end: which file, and why."""
        found = {}
        for day in days:
            faults = [f"{self.called(path)} {fault}" for path in self.files(day) if (fault := _fault(path))]
            if faults:
                found[day] = f"the source for {day} is damaged: {'; '.join(faults)}"
        return found


def _literally(path: Path) -> str:
    """A path as Spark reads it, which takes some letters for a pattern."""
    return "".join(f"\\{letter}" if letter in "{}[]*?\\" else letter for letter in str(path))


def _in_uris(path: Path) -> str:
    """A path as Spark spells it within a file's address: as Java does, which leaves letters beyond ASCII alone."""
    return "".join(quote(letter, safe=IN_JAVAS_PATHS) if letter.isascii() else letter for letter in str(path))


def _holds_something(path: Path) -> bool:
    opened = gzip.open if path.name.endswith(".gz") else open
    try:
        with opened(path, "rb") as file:
            return any(line.strip() for line in file)
    except (OSError, EOFError, zlib.error):
        return True  # damaged, not empty: `damaged` says so


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


def _fault(path: Path) -> str:
    if not path.name.endswith(".gz"):
        return ""
    try:
        with gzip.open(path) as file:
            while file.read(1 << 20):
                pass
    except (OSError, EOFError, zlib.error) as error:
        return f"cannot be read to its end ({error})"
    return ""


def _content(path: Path) -> str:
    state = path.stat()
    return _hashed(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4096)
def _hashed(path: Path, size: int, changed_ns: int) -> str:
    """A hash of the contents, read once a process as long as size and time stay."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
