"""A source of files: the deliveries in a folder of the landing area, a folder or file per day.

`<landing>/<name>/year=YYYY/month=MM/day=DD/*`, `<landing>/<name>/YYYY-MM-DD/*` and archive files `<landing>/<name>/YYYY-MM-DD*`
all belong to that arrival day, together. Files end in .jsonl, .json or .ndjson, with .gz or without.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from unicodedata import category
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.sources.contents import FileContents
from backfill_assets.sources.folders import ENDINGS, FilesByDay, files_by_day
from backfill_assets.sources.manifest import manifest_at
from backfill_assets.sources.protocol import Delivery, LandingArea

UNQUOTED_BY_JAVA = "/=:@!$&'()*+,;~-._"
# Of files that are not deliveries.
NAMED = 3
Contents = Mapping[Path, FileContents]


@dataclass(frozen=True)
class Landing:
    """The deliveries in the folder `name` of the landing area, one row per line that is not blank.

    The columns are `arrival_day DATE, source_file STRING, line STRING, is_utf8 BOOLEAN`: where a line's bytes are not UTF-8,
    U+FFFD stands for them and `is_utf8` is false. A day without a file, or with one that cannot be read to its end, is not
    built: it fails with a SourceError that names the file.
    """

    name: str

    def delivered(self, area: LandingArea, days: Sequence[date]) -> dict[date, Delivery | SourceError]:
        """The fingerprint and the files of each day's delivery, or the SourceError that says why it cannot be used."""
        files, others = self._listed(area, days)
        contents = self._contents(area, files)
        return {day: _delivery(area, day, of_day, others[day]) for day, of_day in contents.items()}

    def described(self, area: LandingArea, day: date) -> list[str]:
        """The day's files, each as a sentence: its name, its size in bytes, its lines, the first digits of its hash; and those
        that are not read."""
        files, others = self._usable(area, [day])[day], self._listed(area, [day])[1][day]
        return [
            *(
                f"{_name(area, file)}, {each.size} bytes, {each.lines} lines, {each.content[:12]}"
                for file, each in files.items()
            ),
            *([_not_read([_name(area, path) for path in others])] if others else []),
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """The bytes of the files of `days`, packed as they are."""
        return sum(each.size for files in self._usable(area, days).values() for each in files.values())

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """The lines of `days` as received, without blank ones."""
        files = [(day, f, each) for day, of_day in self._usable(area, days).items() for f, each in of_day.items() if each.lines]
        delivered = [(_as_uri_path(path), _name(area, path), day, each.utf8) for day, path, each in files]
        names = spark.createDataFrame(delivered, "path STRING, source_file STRING, arrival_day DATE, utf8 BOOLEAN")
        if not files:
            return names.selectExpr("arrival_day", "source_file", "path AS line", "utf8 AS is_utf8")
        paths = [f"file://{_escaped(path)}" for _, path, _ in files]
        lines = spark.read.option("recursiveFileLookup", "true").text(paths)
        path = F.regexp_replace("_metadata.file_path", "^file:/+", "/").alias("path")
        known = lines.select(F.col("value").alias("line"), path).join(F.broadcast(names), "path", "left")
        # A path that Spark spells differently must stop the step; otherwise the rows of that file would be lost unnoticed.
        day = F.coalesce("arrival_day", F.raise_error(F.concat(F.lit("no day known for "), "path")).cast("date"))
        # Looking at a line takes as long as a tenth of parsing it; files that are known to be all UTF-8 are left out.
        is_utf8 = F.col("utf8") | F.is_valid_utf8("line")
        line = F.when(is_utf8, F.col("line")).otherwise(F.make_valid_utf8("line")).alias("line")
        not_blank = known.where(F.ltrim("line", F.lit(" \t")) != "")
        return not_blank.select(day.alias("arrival_day"), "source_file", line, is_utf8.alias("is_utf8"))

    def _listed(self, area: LandingArea, days: Sequence[date]) -> tuple[FilesByDay, FilesByDay]:
        """The files of each of `days`, in order: those delivered, and others, whose names do not end as those of deliveries do.
        A folder that cannot be listed is among the first."""
        listed = files_by_day(area.root / self.name, days, endings=("",))
        files = {day: [f for f in of_day if _is_delivery(f)] for day, of_day in listed.items()}
        return files, {day: [f for f in of_day if not _is_delivery(f)] for day, of_day in listed.items()}

    def _contents(self, area: LandingArea, files: FilesByDay) -> dict[date, Contents]:
        """What reading the `files` of each day showed."""
        manifest = manifest_at(area.cache and area.cache / f"{self.name}.json")
        contents = manifest.contents(file for of_day in files.values() for file in of_day)
        manifest.save()
        return {day: {file: contents[file] for file in of_day} for day, of_day in files.items()}

    def _usable(self, area: LandingArea, days: Sequence[date]) -> dict[date, Contents]:
        """The files delivered for each of `days`, with what reading them showed. Raises the SourceError of the first day whose
        delivery cannot be used."""
        contents = self._contents(area, self._listed(area, days)[0])
        for day, files in contents.items():
            delivery = _delivery(area, day, files)
            if isinstance(delivery, SourceError):
                raise delivery
        return contents


def _is_delivery(file: Path) -> bool:
    # `Path.is_dir` raises where this user may not look.
    return file.name.endswith(ENDINGS) or os.path.isdir(file)  # noqa: PTH112


def _delivery(area: LandingArea, day: date, files: Contents, others: Sequence[Path] = ()) -> Delivery | SourceError:
    """`others` are the day's files that are not deliveries."""
    unread = [_name(area, path) for path in others]
    if not files:
        return NotDelivered(f"no source for {day} in {area.root}{f': {_not_read(unread)}' if unread else ''}")
    faults = [f"{_name(area, file)} {why}" for file, each in files.items() if (why := _fault(area, file, each))]
    if faults:
        return SourceError(f"the source for {day} cannot be used: {'; '.join(faults)}")
    lines = [f"{_name(area, file)} {each.size} {each.content}" for file, each in files.items()]
    fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
    stamp = "\n".join(each.stamp for each in files.values())
    return Delivery(fingerprint, {_name(area, file): each.lines for file, each in files.items()}, stamp, unread)


def _not_read(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more} {'is' if len(names) == 1 else 'are'} not read, only {', '.join(ENDINGS)}"


def _fault(area: LandingArea, file: Path, contents: FileContents) -> str:
    """Why a file cannot be used; "" if it can."""
    if ":" in file.name:
        return "has a colon in its name, with which Spark cannot read it. Rename it"
    if any("\udc80" <= letter <= "\udcff" for letter in str(file)):  # how Python holds bytes of other encodings
        return "has a name that is not UTF-8. Rename it"
    if contents.longest_line > area.max_line_bytes:
        return f"has a line of {contents.longest_line} bytes, more than BACKFILL_MAX_LINE_BYTES={area.max_line_bytes}"
    return contents.fault


def _name(area: LandingArea, path: Path) -> str:
    """A file's name in messages and in `source_file`: relative to the landing area. Bytes that are not UTF-8 are escaped."""
    return os.fsencode(path.relative_to(area.root).as_posix()).decode(errors="backslashreplace")


def _escaped(path: Path) -> str:
    """A path for `spark.read`, which would take some characters for a pattern."""
    return "".join(f"\\{letter}" if letter in "{}[]*?\\" else letter for letter in str(path))


def _as_uri_path(path: Path) -> str:
    """A path as Spark spells it in `_metadata.file_path`: quoted as Java does it: beyond ASCII, blanks and controls."""
    return "".join(
        quote(letter, safe=UNQUOTED_BY_JAVA) if letter.isascii() or category(letter) in ("Zs", "Zl", "Zp", "Cc") else letter
        for letter in str(path)
    )
