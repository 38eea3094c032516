"""A source of files: the deliveries in a folder of the landing area.

Read here how a day's delivery is found and judged. `listing.py` finds the day's files,
`manifest.py` reads each file once, `delivery.py` judges them, and `rows.py` reads them with Spark.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Annotated

from annotated_types import Ge, Le
from pyspark.sql import DataFrame, SparkSession

from backfill_assets.errors import SourceError
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.delivery import (
    ContentsByFile,
    DeliverySpec,
    delivery_of,
    name_of_file,
    unread_text,
)
from backfill_assets.sources.files.fields import Field, eras, refuse_unusable_fields
from backfill_assets.sources.files.formats import (
    JSON_LINES,
    AnyFormat,
    JsonLines,
)
from backfill_assets.sources.files.listing import (
    FilesByDay,
    Pattern,
    files_by_day,
    folders_to_list,
    is_unlistable,
    unmatched_files,
)
from backfill_assets.sources.files.manifest import manifest_at
from backfill_assets.sources.files.rows import local_files, read_json, read_lines, read_rows
from backfill_assets.sources.filesystem import Entry
from backfill_assets.sources.protocol import (
    HORIZON,
    Delivery,
    Source,
    refuse_mistyped,
    refuse_no_folder,
)

_DAILY = (
    "year={year}/month={month}/day={day}/**",
    "{year}-{month}-{day}/**",
    "{year}-{month}-{day}*",
)


@dataclass(frozen=True)
class Landing(Source):
    """The deliveries in the folder `name` of the landing area.

    By default, the files of a day are `<name>/year=YYYY/month=MM/day=DD/**`, `<name>/YYYY-MM-DD/**`
    and `<name>/YYYY-MM-DD*`, all together. Names that begin with _ or . are uploads in progress or
    markers and are ignored.

    name     the folder below the landing area
    files    where a day's files are, one pattern or several: "{year}/{month}/{day}/*.jsonl.gz",
             "%m-%d-%Y.csv". `*` matches any characters of a name, `**` at the end all files below a
             folder
    format   `JsonLines()`, `Csv()` or `Parquet()`. The first two may be packed with gzip or zstd
    fields   the columns to read, each a `field`. Without any, JSON lines are read as lines
    settled  seconds for which a day's files must be unchanged. Until then the day is not read
    marker   the name of a file beside a day's files that is written when they are complete:
             "_SUCCESS". If a folder holds several days, the name contains the day: "%Y-%m-%d.done"
    fewest   the smallest share (0 to 1) of the lines of the last accepted delivery of a day. A
             delivery with fewer lines is refused
    horizon  for how many days after a day a change of its files starts a rebuild (sensor
             `source_changes`)

    Rows have `arrival_day DATE, source_file STRING`. Lines add `line STRING, is_utf8 BOOLEAN`:
    U+FFFD replaces bytes that are not UTF-8, and `is_utf8` is false. CSV, Parquet and `fields` add
    the columns of `read_rows`.

    A day fails with a SourceError that names the file if a file is missing, cannot be read to its
    end, or lacks a required column.

    Raises ValueError for values of other types, patterns without a day and fields of the same name.
    """

    name: str
    files: str | Sequence[str] = _DAILY
    format: AnyFormat = JSON_LINES
    fields: Sequence[Field] = ()
    # How a delivery is waited for and judged decides on no row: it is no part of the code version.
    settled: Annotated[float, Ge(0)] = field(default=0.0, compare=False)
    marker: str = field(default="", compare=False)
    fewest: Annotated[float, Ge(0), Le(1)] = field(default=0.5, compare=False)
    horizon: Annotated[int, Ge(0)] = field(default=HORIZON, compare=False)

    def __post_init__(self) -> None:
        refuse_mistyped(self)
        refuse_no_folder("Landing", self.name)
        object.__setattr__(
            self, "files", (self.files,) if isinstance(self.files, str) else tuple(self.files)
        )
        object.__setattr__(self, "fields", tuple(self.fields))
        refuse_unusable_fields(self.fields)
        if not self._patterns:
            raise ValueError(f"Landing({self.name!r}): files needs at least one pattern")
        if self.marker and (
            "/" in self.marker
            or not any(each.is_of_one_day(self.marker) for each in self._patterns)
        ):
            raise ValueError(
                f"Landing({self.name!r}): marker={self.marker!r} is not valid: it must be the name"
                " of a file, and contain the day if a folder holds several days: '%Y-%m-%d.done'"
            )

    @property
    def columns(self) -> str:
        """The declared columns with their types as SQL, for the table that reads them."""
        return ", ".join(f"{each.name} {each.type}" for each in self.fields)

    @cached_property
    def _patterns(self) -> list[Pattern]:
        return [Pattern(text) for text in self.files]

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return each day's fingerprint and files, or the SourceError that explains its refusal."""
        files, others = self._listed(area, days)
        contents = self._contents(area, files)
        return {
            day: delivery_of(area, day, of_day, others[day], self._spec)
            for day, of_day in contents.items()
        }

    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe each file of the day: name, bytes, lines and the first digits of its hash.

        Files that are not read, undeclared columns and doubts follow. Raises SourceError if the
        delivery cannot be used.
        """
        files, others = self._listed(area, [day])
        contents = self._contents(area, files)[day]
        delivery = delivery_of(area, day, contents, others[day], self._spec)
        if isinstance(delivery, SourceError):
            raise delivery
        return [
            *(
                f"{name_of_file(area, file)}, {each.size} bytes, {each.lines} lines,"
                f" {each.content[:12]}"
                for file, each in contents.items()
            ),
            *([unread_text(delivery.unread, self.format)] if delivery.unread else []),
            *([f"not declared: {', '.join(delivery.undeclared)}"] if delivery.undeclared else []),
            *(f"{name} {why}" for name, why in delivery.doubts.items()),
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """Sum the bytes of the files of `days`, as they are stored."""
        return sum(
            each.size for files in self._usable(area, days).values() for each in files.values()
        )

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """Read the delivered rows of `days`. Raises SourceError if a delivery cannot be used."""
        usable = self._usable(area, days)
        files = local_files(
            area,
            [
                (day, *file)
                for day, of_day in usable.items()
                for file in of_day.items()
                if file[1].lines
            ],
        )
        if isinstance(self.format, JsonLines):
            lines = read_lines(spark, files)
            return read_json(lines, self.fields) if self.fields else lines
        return read_rows(spark, files, self.format, self.fields)

    def unmatched(self, area: LandingArea) -> list[str]:
        """List the files in the source's folder that match no day."""
        marker = [
            each.beside(self.marker)
            for each in self._patterns
            if self.marker and each.is_of_one_day(self.marker)
        ]
        return [
            f"{self.name}/{path}"
            for path in unmatched_files(area.tree(self.name), [*self._patterns, *marker])
        ]

    def eras(self, days: Collection[date]) -> dict[tuple[str, ...], list[date]]:
        """Group the days by the declared columns that their files lack."""
        return eras(self.fields, days) if self.fields else {}

    def _listed(self, area: LandingArea, days: Sequence[date]) -> tuple[FilesByDay, FilesByDay]:
        """List the files of each of `days` in order: the delivered ones, and the others.

        Others have an ending that the format does not have, or are links to folders. A folder that
        cannot be listed counts as delivered.
        """
        tree = area.tree(self.name, lambda: folders_to_list(self._patterns, days))
        top = os.fspath(tree.top)
        exact = [
            pattern for pattern in self._patterns if not pattern.any_ending
        ]  # the ending that they name is meant

        def is_delivery(file: Entry) -> bool:
            if file.name.endswith(self.format.endings):
                return True
            within = os.fspath(file).removeprefix(f"{top}{os.sep}")
            return any(pattern.day_of(within) for pattern in exact) or is_unlistable(tree, file)

        listed = files_by_day(tree, days, self._patterns)
        files = {day: [f for f in of_day if is_delivery(f)] for day, of_day in listed.items()}
        return files, {
            day: [f for f in of_day if not is_delivery(f)] for day, of_day in listed.items()
        }

    def _contents(self, area: LandingArea, files: FilesByDay) -> dict[date, ContentsByFile]:
        """Return the contents of the `files` of each day."""
        manifest = manifest_at(area.manifest(self.name, self.format), self.format, area.files)
        contents = manifest.contents(file for of_day in files.values() for file in of_day)
        manifest.save()
        return {day: {file: contents[file] for file in of_day} for day, of_day in files.items()}

    def _usable(self, area: LandingArea, days: Sequence[date]) -> dict[date, ContentsByFile]:
        """Return the files of each of `days` with their contents.

        Raises the SourceError of the first day whose delivery cannot be used.
        """
        contents = self._contents(area, self._listed(area, days)[0])
        for day, files in contents.items():
            delivery = delivery_of(area, day, files, (), self._spec)
            if isinstance(delivery, SourceError):
                raise delivery
        return contents

    @cached_property
    def _spec(self) -> DeliverySpec:
        return DeliverySpec(
            self.name,
            self._patterns,
            self.format,
            self.fields,
            self.settled,
            self.marker,
            self.fewest,
        )
