"""Archives: large files that cover many days, taken in once (`take_in`), beside the deliveries that arrive day by day."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.delivery import name_in
from backfill_assets.sources.files import Entry
from backfill_assets.sources.folders import globbed
from backfill_assets.sources.formats import JSON_LINES, Format

ANY = "**/*"
# Of the lines that archives are split into. Increase it with any change of which lines come of an archive, or of their days.
FORM = 1


@dataclass(frozen=True)
class Archive:
    """The archives in the folder `name` of the landing area.

    name             the folder below the landing area; also what `backfill archive` and the asset `archives/<name>` call it
    day              the column that says which day a row is of: a date or a time, ISO 8601 unless there are `day_formats`;
                     a time with an offset is of the day that it is in UTC
    day_formats      the patterns of its values, tried in order, as Python's strptime has them: "%m/%d/%Y %H:%M"
    files            which files are archives, one pattern or several, below the folder: "history/*.jsonl.gz"
    format           `JsonLines()`, `Csv()` or `Parquet()`; the first two also packed with gzip or zstd
    first_day        rows of earlier days are left out, and counted
    modified_before  files modified at this time or later are left out, and named

    Every row becomes a line of JSON, so that columns are read by their names, whatever the format of an archive. Raises
    ValueError without a column of the day, and for a name that is no name of an asset.
    """

    name: str
    day: str
    day_formats: Sequence[str] = ()
    files: str | Sequence[str] = ANY
    format: Format = JSON_LINES
    first_day: date | None = None
    modified_before: datetime | None = None
    # Lines are committed once they come to so many bytes: what a run that is killed has not to do again.
    slice_bytes: int = field(default=128 * 2**20, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", (self.files,) if isinstance(self.files, str) else tuple(self.files))
        object.__setattr__(self, "day_formats", tuple(self.day_formats))
        if not re.fullmatch(r"[A-Za-z]\w*", self.name, re.ASCII):
            raise ValueError(f"Archive({self.name!r}): a name is made of letters, digits and _, and begins with a letter")
        if not self.day.strip():
            raise ValueError(f"Archive({self.name!r}) names no column of the day: write day='captured_at'")
        if self.modified_before and self.modified_before.tzinfo is None:
            object.__setattr__(self, "modified_before", self.modified_before.replace(tzinfo=UTC))

    @property
    def declared(self) -> str:
        """How archives are split: taken in otherwise, they are taken in again."""
        return repr((FORM, self.day, self.day_formats, self.format, self.first_day))

    def listed(self, area: LandingArea) -> dict[str, Entry]:
        """The archives that lie there, by their names in `source_file`; not those that may not be touched any more."""
        return {name: file for name, file in self._matched(area).items() if not self._is_late(area, file)}

    def late(self, area: LandingArea) -> list[str]:
        """The archives that were modified too late to be taken in."""
        return [name for name, file in self._matched(area).items() if self._is_late(area, file)]

    def unmatched(self, area: LandingArea) -> list[str]:
        """The files in the folder that are no archives."""
        archives = self._matched(area)
        return [name for name in self._files(area, [ANY]) if name not in archives]

    def _matched(self, area: LandingArea) -> dict[str, Entry]:
        return {name: file for name, file in self._files(area, self.files).items() if name.endswith(self.format.endings)}

    def _files(self, area: LandingArea, patterns: Sequence[str]) -> dict[str, Entry]:
        tree = area.tree(self.name)
        files = {os.fspath(file): file for pattern in patterns for file in globbed(tree, tree.top, pattern.split("/"))}
        return {name_in(area, files[path]): files[path] for path in sorted(files) if stamp_of(area, files[path])}

    def _is_late(self, area: LandingArea, file: Entry) -> bool:
        with suppress(OSError):  # reading it says why
            return self.modified_before is not None and area.files.state(file).modified >= self.modified_before.timestamp()
        return False


def stamp_of(area: LandingArea, file: Entry) -> str:
    """The text of a file's state as it was listed; "" for what is no file, or a link to none."""
    with suppress(OSError):
        return area.files.state(file).text
    return ""
