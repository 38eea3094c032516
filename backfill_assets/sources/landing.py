"""The landing area: where deliveries lie, a folder or file a day.

`<landing>/<name>/year=YYYY/month=MM/day=DD/*`, `<landing>/<name>/YYYY-MM-DD/*` and archive files `<landing>/<name>/YYYY-MM-DD*`
all belong to that arrival day, together. Files end in .jsonl, .json or .ndjson, with .gz or without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.sources.manifest import Manifest, fault, files_by_day, manifest_at
from backfill_assets.sources.protocol import LandingArea

IN_JAVAS_PATHS = "/=:@!$&'()*+,;~-._"
LINES = "arrival_day DATE, source_file STRING, line STRING"


@dataclass(frozen=True)
class Landing:
    """The deliveries in the folder `name` of the landing area."""

    name: str

    def delivered(self, area: LandingArea, days: Sequence[date]) -> dict[date, list[Path] | SourceError]:
        """Every file delivered for each of `days`, in order; SourceError where there is none, only empty ones or a cut one."""
        manifest = self._manifest(area)
        files = files_by_day(area.root / self.name, days)
        usable = {day: _usable(area, day, of_day, manifest) for day, of_day in files.items()}
        manifest.keep()
        return usable

    def described(self, area: LandingArea, day: date) -> list[str]:
        """The day's files, each with its size in bytes and a hash of its contents."""
        manifest = self._manifest(area)
        return [
            f"{_name(area, file)}, {file.stat().st_size} bytes, {manifest.facts(file).content[:12]}"
            for _, file in self._files(area, [day])
        ]

    def fingerprints(self, area: LandingArea, days: Sequence[date]) -> dict[date, str | SourceError]:
        """Of each of `days`, a hash of the names, sizes and contents of its files, or what is wrong with them."""
        manifest = self._manifest(area)

        def fingerprint(files: list[Path]) -> str:
            lines = [f"{_name(area, file)} {file.stat().st_size} {manifest.facts(file).content}" for file in files]
            return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]

        delivered = self.delivered(area, days)
        return {day: f if isinstance(f, SourceError) else fingerprint(f) for day, f in delivered.items()}

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """The bytes of the files of `days`, packed as they are."""
        return sum(file.stat().st_size for _, file in self._files(area, days))

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The lines of `days` as received, blank ones left out: (arrival_day, source_file, line)."""
        files = self._files(area, days)
        delivered = [(_in_uris(path), _name(area, path), day) for day, path in files]
        names = spark.createDataFrame(delivered, "path STRING, source_file STRING, arrival_day DATE")
        paths = [f"file://{_literally(path)}" for _, path in files]
        lines = spark.read.option("recursiveFileLookup", "true").text(paths)
        path = F.regexp_replace("_metadata.file_path", "^file:/+", "/").alias("path")
        known = lines.select(F.col("value").alias("line"), path).join(F.broadcast(names), "path", "left")
        # A file that Spark spells otherwise than we do must stop the step: its rows would be lost without a word.
        day = F.coalesce("arrival_day", F.raise_error(F.concat(F.lit("no day known for "), "path")).cast("date"))
        return known.where("trim(line) <> ''").select(day.alias("arrival_day"), "source_file", "line")

    def damaged(self, area: LandingArea, days: Sequence[date]) -> dict[date, str]:
        """Of each day with a file that cannot be read to its end: which file, and why."""
        faults: dict[date, list[str]] = {}
        for day, path in self._files(area, days):
            why = fault(path)
            if why:
                faults.setdefault(day, []).append(f"{_name(area, path)} {why}")
        return {day: f"the source for {day} is damaged: {'; '.join(of_day)}" for day, of_day in faults.items()}

    def _manifest(self, area: LandingArea) -> Manifest:
        return manifest_at(area.cache and area.cache / f"{self.name}.json")

    def _files(self, area: LandingArea, days: Sequence[date]) -> list[tuple[date, Path]]:
        """Every delivered file with its day; raises the SourceError of the first day that has one."""
        pairs: list[tuple[date, Path]] = []
        for day, files in self.delivered(area, days).items():
            if isinstance(files, SourceError):
                raise files
            pairs += [(day, path) for path in files]
        return pairs


def _usable(area: LandingArea, day: date, files: list[Path], manifest: Manifest) -> list[Path] | SourceError:
    if not files:
        return NotDelivered(f"no source for {day} in {area.root}")
    facts = {path: manifest.facts(path) for path in files}
    if all(each.empty for each in facts.values()):
        return SourceError(f"the source for {day} holds no rows: {', '.join(_name(area, f) for f in files)}")
    cut = [path for path in files if facts[path].cut_off]
    if cut:
        return SourceError(f"the source for {day} is damaged: {', '.join(_name(area, f) for f in cut)} is cut off")
    return files


def _name(area: LandingArea, path: Path) -> str:
    """A file's name as messages and `source_file` give it: relative to the landing area."""
    return path.relative_to(area.root).as_posix()


def _literally(path: Path) -> str:
    """A path as Spark reads it, which takes some letters for a pattern."""
    return "".join(f"\\{letter}" if letter in "{}[]*?\\" else letter for letter in str(path))


def _in_uris(path: Path) -> str:
    """A path as Spark spells it within a file's address: as Java does, which leaves letters beyond ASCII alone."""
    return "".join(quote(letter, safe=IN_JAVAS_PATHS) if letter.isascii() else letter for letter in str(path))
