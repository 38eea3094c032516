"""One source made of two flows: daily deliveries in a folder, and archives of the same days."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.slices import DataFile
from backfill_assets.lake.spark.reading import read_files
from backfill_assets.lake.storage import Paths
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
from backfill_assets.sources.files.fields import Field
from backfill_assets.sources.files.formats import JsonLines
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.files.rows import read_json
from backfill_assets.sources.protocol import HASH_DIGITS, Delivery, Source, refuse_mistyped

# Where both flows have a day, whose rows it gets.
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
    def archives(self) -> tuple[Archive]:
        return (replace(self.archive, fields=self.landing.fields),)

    def versioned(self) -> Landing:
        """Return the landing. Loaded archives show in the deliveries of their days."""
        return self.landing

    @property
    def columns(self) -> str:
        return self.landing.columns

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return what both flows have of each day, as `precedence` decides."""
        landed = self.landing.delivered(area, days)
        of_archives = self._of_archives(area, days)
        return {
            day: self._delivery(landed[day], of_archives.get(day, _NO_ARCHIVES)) for day in days
        }

    def _delivery(
        self, landed: Delivery | SourceError, archives: ArchivedDay
    ) -> Delivery | SourceError:
        takes_landing, takes_archives = self._takes(landed, archives)
        if isinstance(landed, SourceError) and takes_landing:
            return landed
        rows = archives.rows
        hashes = archives.hashes
        overlap = (
            f"{', '.join(rows)} and the landing both have the day; precedence: {self.precedence}"
            if rows
            else ""
        )
        if isinstance(landed, Delivery) and not takes_archives:
            return replace(landed, set_aside=[*rows], overlap=overlap)
        stamp = "\n".join(file.path for file in archives.files)
        if not takes_landing or isinstance(landed, SourceError):
            fingerprint = _hash_of(archives.contents)
            fewest = self.landing.fewest
            delivery = Delivery(
                fingerprint, rows, stamp, hashes, fewest=fewest, doubts=archives.doubts
            )
            if isinstance(landed, SourceError):
                return delivery
            return replace(delivery, set_aside=[*landed.files], overlap=overlap)
        fingerprint = _hash_of([landed.fingerprint, *archives.contents])
        files = {**landed.files, **rows}
        hashes = {**landed.hashes, **hashes}
        stamp = f"{landed.stamp}\n{stamp}"
        doubts = {**landed.doubts, **archives.doubts}
        return replace(
            landed,
            fingerprint=fingerprint,
            files=files,
            stamp=stamp,
            hashes=hashes,
            doubts=doubts,
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
        delivery = self.delivered(area, [day])[day]
        if isinstance(delivery, SourceError):
            raise delivery
        archives = self._of_archives(area, [day]).get(day, _NO_ARCHIVES).by_archive
        of_archives = [
            f"{name}, lines of the day: {delivery.files[name]}"
            for name in archives
            if name in delivery.files
        ]
        of_archives += [
            f"{name} {why}" for name, why in delivery.doubts.items() if name in archives
        ]
        landed = (
            self.landing.described(area, day) if delivery.files.keys() - archives.keys() else []
        )
        return [*landed, *of_archives, *([delivery.overlap] if delivery.overlap else [])]

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
        of_archives = self._of_archives(area, days)
        of_landing = list[date]()
        files = list[DataFile]()
        for day in days:
            delivery = landed[day]
            archives = of_archives.get(day, _NO_ARCHIVES)
            takes_landing, takes_archives = self._takes(delivery, archives)
            if takes_landing and isinstance(delivery, SourceError):
                raise delivery
            of_landing += [day] if takes_landing else []
            files += archives.files if takes_archives else []
        return of_landing, files

    def unmatched(self, area: LandingArea) -> list[str]:
        """List the files in both folders that match no day and are not archives."""
        others = {*self.landing.unmatched(area)} - {
            *self.archive.listed(area),
            *self.archive.late(area),
        }
        return sorted(
            others
            | ({*self.archive.unmatched(area)} if self.archive.name != self.landing.name else set())
        )

    def not_taken_in(self, area: LandingArea) -> list[str]:
        """List the archives that are not loaded in their current form."""
        state = loaded_archives(self._folder(area)) if area.lake else LoadedArchives("")
        stamps = {name: file_stamp(area, file) for name, file in self.archive.listed(area).items()}
        return [
            name
            for name, stamp in stamps.items()
            if not is_loaded(state, self.archive, name, stamp)
        ]

    def left_out(self, area: LandingArea) -> list[str]:
        """List the archives that were modified too late to be loaded. Their earlier rows stay."""
        return self.archive.late(area)

    def eras(self, days: Collection[date]) -> dict[tuple[str, ...], list[date]]:
        """Group the days by the declared columns that their files lack."""
        return self.landing.eras(days)

    def _folder(self, area: LandingArea) -> str:
        return Paths(area.lake).archived(self.archive.name)

    def _of_archives(self, area: LandingArea, days: Sequence[date]) -> Mapping[date, ArchivedDay]:
        return archived_days(self._folder(area), days, self.landing.fields) if area.lake else {}


@dataclass(frozen=True)
class ArchivedDay:
    """The files of a day by archive. `doubts` says, by archive, why its rows should not be read."""

    by_archive: Mapping[str, Sequence[DataFile]]
    doubts: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> list[DataFile]:
        return [file for files in self.by_archive.values() for file in files]

    @property
    def rows(self) -> dict[str, int]:
        return {
            name: sum(file.rows or 0 for file in files) for name, files in self.by_archive.items()
        }

    @property
    def hashes(self) -> dict[str, str]:
        return {
            name: _hash_of(map(lines_hash, files))[:HASH_DIGITS]
            for name, files in self.by_archive.items()
        }

    @property
    def contents(self) -> Iterator[str]:
        """What identifies its rows, whichever loads wrote them."""
        return (
            f"{name} {lines_hash(file)}"
            for name in sorted(self.by_archive)
            for file in self.by_archive[name]
        )


_NO_ARCHIVES = ArchivedDay({})


def archived_days(
    folder: str, days: Collection[date], fields: Sequence[Field]
) -> dict[date, ArchivedDay]:
    """Return those of `days` for which archives of the table in `folder` have rows.

    An archive without a required column is doubtful unless it was accepted.
    """
    state = loaded_archives(folder)
    records = {each.load: each for each in state.whole.values()}
    by_day = state.days()
    found: dict[date, ArchivedDay] = {}
    for day in days:
        if archives := by_day.get(day, {}):
            loads = [
                (name, records[load_of(file)]) for name, files in archives.items() for file in files
            ]
            doubts = {
                name: missing_in_archive(load.names, fields, [day])
                for name, load in loads
                if not load.accepted
            }
            found[day] = ArchivedDay(archives, {name: why for name, why in doubts.items() if why})
    return found


def _hash_of(parts: Iterator[str] | Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
