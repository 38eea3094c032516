"""One source made of two flows: daily deliveries in a folder, and archives of the same days."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.digest import digest
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.quality.rule import Rule
from backfill_assets.sources.archives.archive import Archive, file_stamp
from backfill_assets.sources.archives.loaded import LoadedArchives, loaded_archives
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import Convention, columns_of_rules
from backfill_assets.sources.files.formats import JsonLines
from backfill_assets.sources.files.landing import FileOfDay, Landing
from backfill_assets.sources.files.look import ContentsByFile
from backfill_assets.sources.protocol import (
    Delivery,
    Expected,
    Source,
    require_usable,
    validate,
)

# Whose rows a day gets if both flows have the day.
Precedence = Literal["landing", "archive", "both"]
# The files of a day from the landing and from archives, and its delivery.
JudgedDay = tuple[list[FileOfDay], list[FileOfDay], Delivery | SourceError]


@dataclass(frozen=True)
class TwoFlows(Source):
    """A landing with daily deliveries and archives that are loaded once, as one source.

    landing     the source of the days that arrive
    archive     the archives. Their rows are read like the landing's, by column names
    precedence  whose rows a day gets if both have it: "landing", "archive" or "both"

    The code version of a table includes only the landing. Rows from archives change the deliveries
    of their days, which makes these days outdated.

    Raises ValueError for any other precedence, for archives that the landing may read as days, for
    a landing without fields and archives of another format than JSON lines, and for values of other
    types.
    """

    landing: Landing
    archive: Archive
    precedence: Precedence = "landing"

    def __post_init__(self) -> None:
        validate(self)
        same_folder = self.archive.name == self.landing.name
        if same_folder and self.landing.day:
            raise ValueError(
                f"TwoFlows: archives need a folder of their own: with day={self.landing.day!r},"
                f" {self.landing.name} reads all files in its folder"
            )
        if same_folder and any(
            "/" not in pattern or {*"*?[{%"} & {*pattern.partition("/")[0]}
            for pattern in self.archive.files
        ):
            raise ValueError(
                f"TwoFlows: archives in the folder of {self.landing.name} must be in a folder below"
                " it: files='history/*'"
            )
        if not self.landing.fields and not isinstance(self.archive.format, JsonLines):
            raise ValueError(
                "TwoFlows: only archives of JSON lines are read without fields: write"
                " Landing(..., fields=[...])"
            )

    @property
    def name(self) -> str:
        """The landing's name, so builds made before the archives were declared stay valid."""
        return self.landing.name

    @property
    def horizon(self) -> int:
        return self.landing.horizon

    @property
    def expected(self) -> Expected | None:
        return self.landing.expected

    @property
    def may_be_empty(self) -> bool:
        return self.landing.may_be_empty

    @property
    def archives(self) -> tuple[Archive]:
        return (replace(self.archive, fields=self.landing.fields),)

    def versioned(self) -> Landing:
        """Return the landing. Loaded archives are part of the deliveries of their days."""
        return self.landing

    @property
    def columns(self) -> str:
        return self.landing.columns

    @property
    def row_columns(self) -> str:
        return self.landing.row_columns

    def rules(self) -> list[Rule]:
        """Return the landing's rules, for malformed rows of either format."""
        faults = (flow.format.row_fault for flow in (self.landing, self.archive))
        return self.landing.rules_for(next(filter(None, faults), ""))

    def kept_columns(self) -> dict[str, str]:
        return columns_of_rules(self.rules())

    @cached_property
    def _past(self) -> Landing:
        """The rows of archives, as a landing with days in their format."""
        landing = self.landing
        archive = self.archive
        return Landing(
            landing.name,
            format=archive.format,
            fields=landing.fields,
            day=archive.day,
            fewest=landing.fewest,
            undeclared=landing.undeclared,
        )

    @cached_property
    def _convention(self) -> list[str]:
        """The declared options for values in archives."""
        form = self.archive.format
        given = form.given.items() if isinstance(form, Convention) else ()
        return [f"{name}={value}" for name, value in given if value]

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return each day's delivery from both flows, as `precedence` decides."""
        return {day: delivery for day, (*_, delivery) in self._judged(area, days).items()}

    def _judged(self, area: LandingArea, days: Sequence[date]) -> dict[date, JudgedDay]:
        landed = self.landing.judged(area, days)
        loaded = loaded_archives(area, self.archive.name)
        return {day: self._judged_day(area, day, landed[day], loaded) for day in days}

    def _judged_day(
        self,
        area: LandingArea,
        day: date,
        landed: tuple[ContentsByFile, Delivery | SourceError],
        loaded: LoadedArchives,
    ) -> JudgedDay:
        """Return the files of a day from the landing and from archives, and its delivery.

        An unusable delivery of the landing is not skipped, unless archives come first.
        """
        contents, delivery = landed
        files = [(day, file, found) for file, found in contents.items()]
        by_archive = loaded.of_day(day)
        if not by_archive:
            return files, [], delivery
        archived = self._past.delivery_of(day, by_archive)
        doubts = archived.doubts.items()
        archived = replace(
            archived,
            # The text form of values is part neither of the files of days nor of the code version.
            fingerprint=digest(archived.fingerprint, *self._convention),
            doubts={name: why for name, why in doubts if not loaded.by_name[name].accepted},
        )
        rows: list[FileOfDay] = [(day, area.root / name, part) for name, part in by_archive.items()]
        names = ", ".join(by_archive)
        said = f"{names} and the landing both have the day; precedence: {self.precedence}"
        if self.precedence == "archive" or type(delivery) is NotDelivered:
            if isinstance(delivery, Delivery):
                notes = [said, *archived.notes]
                archived = replace(archived, set_aside=[*delivery.files], notes=notes)
            return [], rows, archived
        if isinstance(delivery, SourceError):
            return files, [], delivery
        notes = [said, *delivery.notes]
        if self.precedence == "landing":
            return files, [], replace(delivery, set_aside=[*by_archive], notes=notes)
        both = replace(
            delivery,
            fingerprint=digest(delivery.fingerprint, archived.fingerprint),
            files={**delivery.files, **archived.files},
            hashes={**delivery.hashes, **archived.hashes},
            doubts={**delivery.doubts, **archived.doubts},
            notes=[*notes, *archived.notes],
        )
        return files, rows, both

    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe the files of the day, and whose rows the day gets if both flows have it."""
        landed, archived = self._taken(area, [day])
        delivery = require_usable(self.delivered(area, [day]))[day]
        names = [area.name_of(file) for _, file, _ in archived]
        described = [
            *(self.landing.described(area, day) if landed else []),
            *(f"{name}, lines of the day: {delivery.files[name]}" for name in names),
            *(f"{name} {delivery.doubts[name]}" for name in names if name in delivery.doubts),
        ]
        return [*described, *(note for note in delivery.notes if note not in described)]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """Sum the bytes of the landing's files and of the archives' rows of `days`."""
        landed, archived = self._taken(area, days)
        return sum(contents.size for *_, contents in landed + archived)

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """Read the rows of `days` in the columns of the landing."""
        landed, archived = self._taken(area, days)
        rows = self.landing.read_files(area, spark, landed)
        return rows.unionByName(self._past.read_files(area, spark, archived)) if archived else rows

    def _taken(
        self, area: LandingArea, days: Sequence[date]
    ) -> tuple[list[FileOfDay], list[FileOfDay]]:
        """Return the files to read from the landing, and from archives.

        Raises the SourceError of the first day whose delivery cannot be used.
        """
        judged = self._judged(area, days)
        require_usable({day: delivery for day, (*_, delivery) in judged.items()})
        landed = [file for files, *_ in judged.values() for file in files]
        return landed, [file for _, files, _ in judged.values() for file in files]

    def unmatched(self, area: LandingArea) -> list[str]:
        """List the files in both folders that match no day and are not archives."""
        archives = {*self.archive.listed(area), *self.archive.late(area)}
        others = {*self.landing.unmatched(area)} - archives
        if self.archive.name != self.landing.name:
            others |= {*self.archive.unmatched(area)}
        return sorted(others)

    def outside(self, area: LandingArea, calendar: Calendar) -> list[str]:
        """List the files of the landing whose days are outside the calendar."""
        return self.landing.outside(area, calendar)

    def unloaded_archives(self, area: LandingArea) -> list[str]:
        """List the archives that are not loaded in their current form."""
        loaded = loaded_archives(area, self.archive.name)
        return [
            name
            for name, file in self.archive.listed(area).items()
            if not loaded.is_loaded(self.archive, name, file_stamp(area, file))
        ]

    def skipped_archives(self, area: LandingArea) -> list[str]:
        """List the archives that were modified too late to be loaded. Their earlier rows stay."""
        return self.archive.late(area)

    def eras(self, days: Collection[date]) -> dict[tuple[str, ...], list[date]]:
        """Group the days by the declared columns that their files lack."""
        return self.landing.eras(days)
