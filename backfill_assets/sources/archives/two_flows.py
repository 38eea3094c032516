"""One source made of two flows: daily deliveries in a folder, and archives of the same days."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.digest import digest
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.slices import DataFile
from backfill_assets.lake.spark.reading import read_files
from backfill_assets.lake.storage import Paths
from backfill_assets.quality.rule import Rule
from backfill_assets.sources.archives.archive import Archive, file_stamp, missing_in_archive
from backfill_assets.sources.archives.loading import is_loaded
from backfill_assets.sources.archives.loads import (
    DAY,
    LoadedArchives,
    lines_hash,
    load_of,
    loaded_archives,
)
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import columns_of_rules
from backfill_assets.sources.files.formats import JSON_LINES, JsonLines
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.files.rows import read_json
from backfill_assets.sources.protocol import (
    HASH_DIGITS,
    Delivery,
    Expected,
    Source,
    refuse_mistyped,
    require_usable,
)

# Whose rows a day gets if both flows have it.
Precedence = Literal["landing", "archive", "both"]
_LINE_SCHEMA = "day DATE, source_file STRING, line STRING, is_utf8 BOOLEAN"


@dataclass(frozen=True)
class TwoFlows(Source):
    """A landing with daily deliveries and archives that are loaded once, as one source.

    landing     the source of the days that arrive
    archive     the archives. Their rows are read like the landing's, by column names
    precedence  whose rows a day gets if both have it: "landing", "archive" or "both"

    The code version of a table includes only the landing. Rows from archives change the deliveries
    of their days, which makes these days outdated.

    Raises ValueError for any other precedence, for archives that the landing may read as days, and
    for values of other types.
    """

    landing: Landing
    archive: Archive
    precedence: Precedence = "landing"

    def __post_init__(self) -> None:
        refuse_mistyped(self)
        same_folder = self.archive.name == self.landing.name
        if same_folder and any(
            "/" not in pattern or {*"*?[{%"} & {*pattern.partition("/")[0]}
            for pattern in self.archive.files
        ):
            raise ValueError(
                f"TwoFlows: archives in the folder of {self.landing.name} must be in a folder below"
                " it: files='history/*'"
            )

    @property
    def name(self) -> str:
        """The landing's name, so builds from before the archives were declared stay valid."""
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
        """Return the landing. Loaded archives show in the deliveries of their days."""
        return self.landing

    @property
    def columns(self) -> str:
        return self.landing.columns

    @property
    def row_columns(self) -> str:
        return self.landing.row_columns

    def rules(self) -> list[Rule]:
        """Return the landing's rules. Rows of archives can always be malformed: they are lines."""
        faults = (each.format.row_fault for each in (self.landing, self.archive))
        return self.landing.rules_for(next(filter(None, faults), JSON_LINES.row_fault))

    def kept_columns(self) -> dict[str, str]:
        return columns_of_rules(self.rules())

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return each day's delivery from both flows, as `precedence` decides."""
        landed = self.landing.delivered(area, days)
        archived = self._archived(area, days)
        return {day: self._delivery(landed[day], archived[day]) for day in days}

    def _delivery(
        self, landed: Delivery | SourceError, archives: ArchivedDay
    ) -> Delivery | SourceError:
        takes_landing, takes_archives = self._takes(landed, archives)
        archived = archives.delivery(self.landing.fewest)
        if isinstance(landed, SourceError):
            return landed if takes_landing else archived
        names = ", ".join(archived.files)
        overlap = f"{names} and the landing both have the day; precedence: {self.precedence}"
        if not takes_archives:
            overlap = overlap if names else landed.overlap
            return replace(landed, set_aside=[*archived.files], overlap=overlap)
        if not takes_landing:
            return replace(archived, set_aside=[*landed.files], overlap=overlap)
        return replace(
            landed,
            fingerprint=digest(landed.fingerprint, *archives.contents),
            files={**landed.files, **archived.files},
            stamp=f"{landed.stamp}\n{archived.stamp}",
            hashes={**landed.hashes, **archived.hashes},
            doubts={**landed.doubts, **archived.doubts},
            overlap=overlap,
        )

    def _takes(self, landed: Delivery | SourceError, archives: ArchivedDay) -> tuple[bool, bool]:
        """Tell whether a day gets rows of the landing, and of archives.

        A delivery that cannot be used is not skipped, unless archives come first.
        """
        if not archives.by_archive:
            return True, False
        if self.precedence == "archive" or type(landed) is NotDelivered:
            return False, True
        return True, self.precedence == "both"

    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe the files of the day, and whose rows it gets if both flows have it."""
        delivery = require_usable(self.delivered(area, [day]))[day]
        archives = self._archived(area, [day])[day].by_archive
        is_landed = bool(delivery.files.keys() - archives.keys())
        return [
            *(self.landing.described(area, day) if is_landed else []),
            *(
                f"{name}, lines of the day: {delivery.files[name]}"
                for name in archives
                if name in delivery.files
            ),
            *(f"{name} {why}" for name, why in delivery.doubts.items() if name in archives),
            *([delivery.overlap] if delivery.overlap else []),
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """Sum the bytes of the landing's files and of the archives' rows of `days`."""
        landed, files = self._taken(area, days)
        return self.landing.size(area, landed) + sum(file.size for file in files)

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """Read the rows of `days` in the columns of the landing."""
        landed, files = self._taken(area, days)
        rows = self.landing.read(area, spark, landed)
        if not files:
            return rows
        schema = spark.createDataFrame([], _LINE_SCHEMA).schema
        lines = read_files(spark, self._folder(area), files, DAY, schema).withColumnRenamed(
            DAY, "arrival_day"
        )
        is_lines = isinstance(self.landing.format, JsonLines) and not self.landing.fields
        return rows.unionByName(lines if is_lines else read_json(lines, self.landing.fields))

    def _taken(self, area: LandingArea, days: Sequence[date]) -> tuple[list[date], list[DataFile]]:
        """Return the days to read from the landing, and the files to read from archives.

        Raises the SourceError of the first day whose delivery cannot be used.
        """
        landed = self.landing.delivered(area, days)
        archived = self._archived(area, days)
        landing_days = list[date]()
        files = list[DataFile]()
        for day in days:
            takes_landing, takes_archives = self._takes(landed[day], archived[day])
            if takes_landing:
                require_usable({day: landed[day]})
                landing_days.append(day)
            if takes_archives:
                files += archived[day].files
        return landing_days, files

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
        state = loaded_archives(self._folder(area)) if area.lake else LoadedArchives("")
        return [
            name
            for name, file in self.archive.listed(area).items()
            if not is_loaded(state, self.archive, name, file_stamp(area, file))
        ]

    def skipped_archives(self, area: LandingArea) -> list[str]:
        """List the archives that were modified too late to be loaded. Their earlier rows stay."""
        return self.archive.late(area)

    def eras(self, days: Collection[date]) -> dict[tuple[str, ...], list[date]]:
        """Group the days by the declared columns that their files lack."""
        return self.landing.eras(days)

    def _folder(self, area: LandingArea) -> str:
        return Paths(area.lake).archived(self.archive.name)

    def _archived(self, area: LandingArea, days: Sequence[date]) -> dict[date, ArchivedDay]:
        """Return the files that archives have of each of `days`.

        An archive without a required column is doubtful unless it was accepted.
        """
        state = loaded_archives(self._folder(area)) if area.lake else LoadedArchives("")
        records = {record.load: record for record in state.whole.values()}
        by_day = state.days()
        archived = {}
        for day in days:
            archives = by_day.get(day, {})
            doubts = {
                name: why
                for name, files in archives.items()
                for record in (records[load_of(file)] for file in files)
                if not record.accepted
                and (why := missing_in_archive(record.names, self.landing.fields, [day]))
            }
            archived[day] = ArchivedDay(archives, doubts)
        return archived


@dataclass(frozen=True)
class ArchivedDay:
    """The files of a day by archive. `doubts` says, by archive, why its rows should not be read."""

    by_archive: Mapping[str, Sequence[DataFile]]
    doubts: Mapping[str, str]

    @property
    def files(self) -> list[DataFile]:
        return [file for files in self.by_archive.values() for file in files]

    @property
    def contents(self) -> Iterator[str]:
        """The hashes of the rows, whichever loads wrote them."""
        return (
            f"{name} {lines_hash(file)}"
            for name in sorted(self.by_archive)
            for file in self.by_archive[name]
        )

    def delivery(self, fewest: float) -> Delivery:
        """Return the day's rows from archives as a delivery."""
        return Delivery(
            digest(*self.contents),
            {
                name: sum(file.rows or 0 for file in files)
                for name, files in self.by_archive.items()
            },
            "\n".join(file.path for file in self.files),
            {
                name: digest(*map(lines_hash, files), length=HASH_DIGITS)
                for name, files in self.by_archive.items()
            },
            fewest=fewest,
            doubts=self.doubts,
        )
