"""Archives: large files that cover many days and are loaded once.

The day of a row is in a column or in its file's name. A doubtful archive is refused until someone
accepts it by name, even if it can be read to its end.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property

from backfill_assets.digest import digest
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.day_of_row import DayReader, day_reader
from backfill_assets.sources.files.fields import Field, header_of, missing_columns
from backfill_assets.sources.files.formats import JSON_LINES, AnyFormat
from backfill_assets.sources.files.listing import Pattern, glob_entries
from backfill_assets.sources.files.split import FORM_VERSION, Split
from backfill_assets.sources.filesystem import Entry
from backfill_assets.sources.protocol import Several, Texts, validate

_ANY = "**/*"


@dataclass(frozen=True)
class Archive:
    """The archives in the folder `name` of the landing area.

    name             the folder below the landing area, and the name in `backfill archive` and the
                     asset `archives/<name>`
    day              the column with the day of a row: a date or a time, ISO 8601 unless
                     `day_formats` are given. A time with an offset belongs to its day in the
                     zone of the project. Without a column, the file names contain the day
    day_formats      patterns of Python's strptime for that column, tried in order: "%m/%d/%Y %H:%M"
    files            which files below the folder are archives, one pattern or several:
                     "history/*.jsonl.gz". Without a column of the day, patterns as of a landing:
                     "{year}/{month}-{day}.csv.gz"
    format           `JsonLines()`, `Csv()` or `Parquet()`. The first two may be packed with gzip or
                     zstd
    first_day        rows of earlier days are left out and counted
    modified_before  files modified at or after this time are left out and listed
    fields           the columns whose required ones an archive must have. `TwoFlows` sets those of
                     the landing

    Columns are read by name in every format.

    Raises ValueError if nothing says the day, if the name is not valid for an asset, and for values
    of other types.
    """

    name: str
    day: str = ""
    day_formats: Several[str] = ()
    files: Texts = _ANY
    format: AnyFormat = JSON_LINES
    first_day: date | None = None
    modified_before: datetime | None = None
    fields: Sequence[Field] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        validate(self)
        if not re.fullmatch(r"[A-Za-z]\w*", self.name, re.ASCII):
            raise ValueError(
                f"Archive({self.name!r}): a name has only letters, digits and _, and starts with a"
                " letter"
            )
        try:
            self._patterns  # noqa: B018
        except ValueError as error:
            raise ValueError(
                f"Archive({self.name!r}) does not say the day: name its column,"
                " day='captured_at', or write the day into the names of files,"
                f" files='{{year}}-{{month}}-{{day}}.csv.gz' ({error})"
            ) from None
        if self.modified_before and self.modified_before.tzinfo is None:
            object.__setattr__(self, "modified_before", self.modified_before.replace(tzinfo=UTC))

    @cached_property
    def _patterns(self) -> list[Pattern]:
        """The patterns with the day, if file names contain it."""
        return [] if self.day.strip() else [Pattern(text) for text in self.files]

    @property
    def declared(self) -> str:
        """A hash of how archives are split into days. If it changes, they are loaded again."""
        how = (self.day, self.day_formats, self._patterns, self.format, self.first_day)
        return digest(repr((FORM_VERSION, *how)), length=16)

    def day_in(self, name: str) -> date | None:
        """Return the day in an archive's name."""
        days = (pattern.day_of(name.removeprefix(f"{self.name}/")) for pattern in self._patterns)
        return next((day for day in days if day), None)

    def day_of_rows(self, name: str, zone: str) -> DayReader:
        """Return a function that reads the day of a value of the day's column, or None."""
        if self.day:
            return day_reader(self.day_formats, zone)
        day = self.day_in(name)
        return lambda _: day

    def listed(self, area: LandingArea) -> dict[str, Entry]:
        """List the archives by their `source_file`, except those modified too late."""
        return {
            name: file
            for name, file in self._matched(area).items()
            if not self._is_late(area, file)
        }

    def late(self, area: LandingArea) -> list[str]:
        """List the archives that were modified too late to be loaded."""
        return [name for name, file in self._matched(area).items() if self._is_late(area, file)]

    def unmatched(self, area: LandingArea) -> list[str]:
        """List the files in the folder that are not archives."""
        archives = self._matched(area)
        return [name for name in self._files(area, [_ANY]) if name not in archives]

    def _matched(self, area: LandingArea) -> dict[str, Entry]:
        files = self._files(area, [_ANY] if self._patterns else self.files).items()
        return {
            name: file
            for name, file in files
            if name.endswith(self.format.endings) and (not self._patterns or self.day_in(name))
        }

    def _files(self, area: LandingArea, patterns: Sequence[str]) -> dict[str, Entry]:
        tree = area.tree(self.name)
        files = {
            os.fspath(file): file
            for pattern in patterns
            for file in glob_entries(tree, tree.top, pattern.split("/"))
        }
        return {
            area.name_of(file): file for _, file in sorted(files.items()) if file_stamp(area, file)
        }

    def _is_late(self, area: LandingArea, file: Entry) -> bool:
        with suppress(OSError):  # reading the file says why
            return (
                self.modified_before is not None
                and area.files.state(file).modified >= self.modified_before.timestamp()
            )
        return False


def file_stamp(area: LandingArea, file: Entry) -> str:
    """Return the text of a listed file's state and of the zone, or "" if it is not a file."""
    with suppress(OSError):
        return area.files.state(file).text + area.zone_mark
    return ""


def missing_in_archive(archive: Archive, split: Split) -> str:
    """Return which required columns of its days an archive lacks; "" if none or unknown."""
    if not split.header:
        return ""
    header = header_of(archive.format.names(split.header), archive.fields)
    whys = (missing_columns(header, archive.fields, day) for day in split.days)
    return next(filter(None, whys), "")
