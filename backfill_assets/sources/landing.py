"""A source of files: the deliveries in a folder of the landing area, a folder or file per day.

`<landing>/<name>/year=YYYY/month=MM/day=DD/*`, `<landing>/<name>/YYYY-MM-DD/*` and archive files `<landing>/<name>/YYYY-MM-DD*`
all belong to that arrival day, together. Files end in .jsonl, .json or .ndjson, with .gz or without.
"""

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

UNQUOTED_BY_JAVA = "/=:@!$&'()*+,;~-._"


@dataclass(frozen=True)
class Landing:
    """The deliveries in the folder `name` of the landing area, as `(arrival_day DATE, source_file STRING, line STRING)`.

    One row per line that is not blank. A day without a file, with empty files only or with a damaged one is not built: it
    fails with a SourceError that names the file.
    """

    name: str

    def delivered(self, area: LandingArea, days: Sequence[date]) -> dict[date, list[Path] | SourceError]:
        """The files delivered for each of `days`, in order, or the SourceError that says why they cannot be used."""
        manifest = self._manifest(area)
        files = files_by_day(area.root / self.name, days)
        usable = {day: _usable(area, day, of_day, manifest) for day, of_day in files.items()}
        manifest.save()
        return usable

    def described(self, area: LandingArea, day: date) -> list[str]:
        """The day's files, each as a sentence: its name, its size in bytes and the first digits of its hash."""
        manifest = self._manifest(area)
        return [
            f"{_name(area, file)}, {file.stat().st_size} bytes, {manifest.contents(file).content[:12]}"
            for _, file in self._files(area, [day])
        ]

    def fingerprints(self, area: LandingArea, days: Sequence[date]) -> dict[date, str | SourceError]:
        """A hash of the names, sizes and contents of each day's files, or the SourceError that says why they cannot be used."""
        manifest = self._manifest(area)

        def fingerprint(files: list[Path]) -> str:
            lines = [f"{_name(area, file)} {file.stat().st_size} {manifest.contents(file).content}" for file in files]
            return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]

        delivered = self.delivered(area, days)
        return {day: f if isinstance(f, SourceError) else fingerprint(f) for day, f in delivered.items()}

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """The bytes of the files of `days`, packed as they are."""
        return sum(file.stat().st_size for _, file in self._files(area, days))

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The lines of `days` as received, without blank ones: (arrival_day, source_file, line)."""
        files = self._files(area, days)
        delivered = [(_as_uri_path(path), _name(area, path), day) for day, path in files]
        names = spark.createDataFrame(delivered, "path STRING, source_file STRING, arrival_day DATE")
        paths = [f"file://{_escaped(path)}" for _, path in files]
        lines = spark.read.option("recursiveFileLookup", "true").text(paths)
        path = F.regexp_replace("_metadata.file_path", "^file:/+", "/").alias("path")
        known = lines.select(F.col("value").alias("line"), path).join(F.broadcast(names), "path", "left")
        # A path that Spark spells differently must stop the step; otherwise the rows of that file would be lost unnoticed.
        day = F.coalesce("arrival_day", F.raise_error(F.concat(F.lit("no day known for "), "path")).cast("date"))
        return known.where("trim(line) <> ''").select(day.alias("arrival_day"), "source_file", "line")

    def damaged(self, area: LandingArea, days: Sequence[date]) -> dict[date, str]:
        """The days with a file that cannot be read to its end, each with a sentence that names the file and the reason."""
        faults: dict[date, list[str]] = {}
        for day, path in self._files(area, days):
            why = fault(path)
            if why:
                faults.setdefault(day, []).append(f"{_name(area, path)} {why}")
        return {day: f"the source for {day} is damaged: {'; '.join(of_day)}" for day, of_day in faults.items()}

    def _manifest(self, area: LandingArea) -> Manifest:
        return manifest_at(area.cache and area.cache / f"{self.name}.json")

    def _files(self, area: LandingArea, days: Sequence[date]) -> list[tuple[date, Path]]:
        """Every delivered file with its day. Raises the SourceError of the first day that has one."""
        pairs: list[tuple[date, Path]] = []
        for day, files in self.delivered(area, days).items():
            if isinstance(files, SourceError):
                raise files
            pairs += [(day, path) for path in files]
        return pairs


def _usable(area: LandingArea, day: date, files: list[Path], manifest: Manifest) -> list[Path] | SourceError:
    if not files:
        return NotDelivered(f"no source for {day} in {area.root}")
    contents = {path: manifest.contents(path) for path in files}
    if all(file.empty for file in contents.values()):
        return SourceError(f"the source for {day} holds no rows: {', '.join(_name(area, f) for f in files)}")
    cut = [path for path in files if contents[path].cut_off]
    if cut:
        return SourceError(f"the source for {day} is damaged: {', '.join(_name(area, f) for f in cut)} is cut off")
    return files


def _name(area: LandingArea, path: Path) -> str:
    """A file's name in messages and in `source_file`: relative to the landing area."""
    return path.relative_to(area.root).as_posix()


def _escaped(path: Path) -> str:
    """A path for `spark.read`, which would take some characters for a pattern."""
    return "".join(f"\\{letter}" if letter in "{}[]*?\\" else letter for letter in str(path))


def _as_uri_path(path: Path) -> str:
    """A path as Spark spells it in `_metadata.file_path`: quoted as Java does, which leaves characters beyond ASCII alone."""
    return "".join(quote(letter, safe=UNQUOTED_BY_JAVA) if letter.isascii() else letter for letter in str(path))
