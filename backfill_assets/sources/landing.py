"""The landing area: where deliveries lie, a folder or file a day.

`<landing>/<name>/year=YYYY/month=MM/day=DD/*`, `<landing>/<name>/YYYY-MM-DD/*` and archive files `<landing>/<name>/YYYY-MM-DD*`
all belong to that arrival day, together. Files end in .jsonl, .json or .ndjson, with .gz or without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.sources.manifest import Manifest, fault, files_by_day, manifest_at

IN_JAVAS_PATHS = "/=:@!$&'()*+,;~-._"
LINES = "arrival_day DATE, source_file STRING, line STRING"


@dataclass(frozen=True)
class Landing:
    """The deliveries called `name` under `root()`; what is known of their files is kept in the folder `keeps()`."""

    name: str
    root: Callable[[], Path]
    keeps: Callable[[], Path | None] = lambda: None

    def delivered(self, days: Sequence[date]) -> dict[date, list[Path] | SourceError]:
        """Every file delivered for each of `days`, in order; SourceError where there is none, only empty ones or a cut one."""
        seen = self._manifest()
        found = {day: self._usable(day, files, seen) for day, files in files_by_day(self.root() / self.name, days).items()}
        seen.keep()
        return found

    def _usable(self, day: date, files: list[Path], seen: Manifest) -> list[Path] | SourceError:
        if not files:
            return NotDelivered(f"no source for {day} in {self.root()}")
        facts = {path: seen.facts(path) for path in files}
        if all(each.empty for each in facts.values()):
            return SourceError(f"the source for {day} holds no rows: {', '.join(self.called(f) for f in files)}")
        cut = [path for path in files if facts[path].cut_off]
        if cut:
            return SourceError(f"the source for {day} is damaged: {', '.join(self.called(f) for f in cut)} is cut off")
        return files

    def _manifest(self) -> Manifest:
        folder = self.keeps()
        return manifest_at(folder and folder / f"{self.name}.json")

    def _files(self, days: Sequence[date]) -> list[tuple[date, Path]]:
        """The same as pairs; raises the SourceError of the first day that has one."""
        pairs: list[tuple[date, Path]] = []
        for day, files in self.delivered(days).items():
            if isinstance(files, SourceError):
                raise files
            pairs += [(day, path) for path in files]
        return pairs

    def called(self, path: Path) -> str:
        """A file's name as messages and `source_file` give it: relative to the landing area."""
        return path.relative_to(self.root()).as_posix()

    def described(self, day: date) -> list[str]:
        """The day's files, each with its size in bytes and a hash of its contents."""
        seen = self._manifest()
        return [f"{self.called(f)}, {f.stat().st_size} bytes, {seen.facts(f).content[:12]}" for _, f in self._files([day])]

    def fingerprints(self, days: Sequence[date]) -> dict[date, str | SourceError]:
        """Of each of `days`, a hash of the names, sizes and contents of its files, or what is wrong with them."""
        seen = self._manifest()

        def mark(files: list[Path]) -> str:
            told = [f"{self.called(path)} {path.stat().st_size} {seen.facts(path).content}" for path in files]
            return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]

        return {day: f if isinstance(f, SourceError) else mark(f) for day, f in self.delivered(days).items()}

    def read(self, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The lines of `days` as received, blank ones left out: (arrival_day, source_file, line)."""
        files = self._files(days)
        delivered = [(_in_uris(path), self.called(path), day) for day, path in files]
        names = spark.createDataFrame(delivered, "path STRING, source_file STRING, arrival_day DATE")
        paths = [f"file://{_literally(path)}" for _, path in files]
        lines = spark.read.option("recursiveFileLookup", "true").text(paths)
        path = F.regexp_replace("_metadata.file_path", "^file:/+", "/").alias("path")
        known = lines.select(F.col("value").alias("line"), path).join(F.broadcast(names), "path", "left")
        # A file that Spark spells otherwise than we do must stop the step: its rows would be lost without a word.
        day = F.coalesce("arrival_day", F.raise_error(F.concat(F.lit("no day known for "), "path")).cast("date"))
        return known.where("trim(line) <> ''").select(day.alias("arrival_day"), "source_file", "line")

    def damaged(self, days: Sequence[date]) -> dict[date, str]:
        """Of each day with a file that cannot be read to its end: which file, and why."""
        found: dict[date, list[str]] = {}
        for day, path in self._files(days):
            why = fault(path)
            if why:
                found.setdefault(day, []).append(f"{self.called(path)} {why}")
        return {day: f"the source for {day} is damaged: {'; '.join(faults)}" for day, faults in found.items()}


def _literally(path: Path) -> str:
    """A path as Spark reads it, which takes some letters for a pattern."""
    return "".join(f"\\{letter}" if letter in "{}[]*?\\" else letter for letter in str(path))


def _in_uris(path: Path) -> str:
    """A path as Spark spells it within a file's address: as Java does, which leaves letters beyond ASCII alone."""
    return "".join(quote(letter, safe=IN_JAVAS_PATHS) if letter.isascii() else letter for letter in str(path))
