"""The landing area: the folder, or address of an object store, where deliveries arrive."""

import os
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path

from backfill_assets.calendar import UTC
from backfill_assets.digest import digest
from backfill_assets.errors import NOTHING_CHANGED, SourceError
from backfill_assets.settings import is_in_s3, of_known_store, without_password
from backfill_assets.sources.filesystem import DISK, EVERYTHING, Entry, FileSystem, Subfolder, Tree

# The version of the last materialization of each of these days of an asset that has one.
Materialized = Callable[[str, Sequence[date]], Mapping[date, str]]


@dataclass(frozen=True)
class LandingArea:
    """The folder `root` of the file system `files` where deliveries arrive.

    cache           the folder for manifests, if any
    max_line_bytes  a file with a longer line, unpacked, is not read
    lake            where archives are loaded and answers of services are stored
    urls            by source name, the address of a service that replaces its own
    zone            the zone of the project's days: the default of sources
    executors_elsewhere  whether Spark's executors are on other machines
    listings        folders that were listed already, if listings are cached (`with_cached_listing`)
    materialized    asks Dagster for the materializations of an asset
    whole_folders   whether a cached listing covers the whole folder
    """

    root: Path
    cache: Path | None = None
    max_line_bytes: int = 16 * 2**20
    lake: str = ""
    urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    zone: str = UTC
    clock: Callable[[], float] = field(default=time.time, compare=False, repr=False)
    files: FileSystem = DISK
    executors_elsewhere: bool = field(default=False, compare=False, repr=False)
    listings: dict[tuple[str, Sequence[Subfolder]], Tree] | None = field(
        default=None, compare=False, repr=False
    )
    whole_folders: bool = field(default=True, compare=False, repr=False)
    materialized: Materialized = field(default=lambda asset, days: {}, compare=False, repr=False)

    @classmethod
    @lru_cache(None)
    def at(cls, place: str, copies: Path | None, max_line_bytes: int, lake: str) -> "LandingArea":
        """Return the area in a folder of a disk, or below the address of an object store."""
        if "://" not in place:
            return cls(Path(place), copies, max_line_bytes, lake)
        from backfill_assets.sources.copies import local_copies
        from backfill_assets.sources.object_store import ObjectStore

        assert copies, "objects are copied to a folder"
        store = ObjectStore(place.rstrip("/"), local_copies(copies))
        return cls(Path(), copies, max_line_bytes, lake, files=store)

    def elsewhere(self, place: str) -> "LandingArea":
        """Return the area at another place for one source; this area if `place` is "".

        Raises SourceError if the place is in the lake, or is a folder that does not exist.
        """
        if not place:
            return self
        problem = ""
        if self.lake and f"{_without_scheme(place)}/".startswith(f"{_without_scheme(self.lake)}/"):
            problem = f"in the lake {self.lake}"
        elif "://" not in place and not Path(place).is_dir():
            problem = "not a folder"
        if problem:
            raise SourceError(
                f"the landing area {place} is {problem}.",
                unchanged=NOTHING_CHANGED,
                next_step="Make it or mount it, or correct area= of its Landing.",
            )
        there = LandingArea.at(place, self.cache, self.max_line_bytes, self.lake)
        # Spark has the libraries to read S3 if the lake is there.
        reads_store = self.executors_elsewhere and is_in_s3(self.lake)
        return replace(self, root=there.root, files=there.files, executors_elsewhere=reads_store)

    @cached_property
    def _in_lake(self) -> "LandingArea":
        cache = self.cache or Path(tempfile.gettempdir(), "backfill")
        return LandingArea.at(self.lake, cache, self.max_line_bytes, self.lake)

    def located(self, file: Entry, part: str, size: int) -> tuple[FileSystem, Entry]:
        """Return the file to read and its file system: a `part` in the lake, or the file itself."""
        if not part:
            return self.files, file
        lake = self._in_lake
        return lake.files, lake.files.entry(str(lake.root / part), size)

    def with_cached_listing(self, *, whole_folders: bool = True) -> "LandingArea":
        """Return this area with cached listings, for one act that lists the same folders again.

        Pass `whole_folders=False` if the act asks for few days, and always for the same days.
        """
        return (
            self
            if self.listings is not None
            else replace(self, listings={}, whole_folders=whole_folders)
        )

    @property
    def zone_mark(self) -> str:
        """A suffix for the names of what depends on the zone of days: "" in UTC."""
        return "" if self.zone == UTC else f"@{self.zone.replace('/', '-')}"

    def tree(
        self, name: str, parts: Callable[[], Collection[Subfolder]] = lambda: EVERYTHING
    ) -> Tree:
        """Return the tree of the folder `name`, or of these parts of it."""
        folder = str(self.root / name)
        if self.listings is None:
            return self.files.tree(folder, parts)
        asked = EVERYTHING if self.whole_folders else tuple(parts())
        key = (self.place(name), asked)
        if key not in self.listings:
            self.listings[key] = self.files.tree(folder, lambda: asked)
        return self.listings[key]

    def place(self, name: str = "") -> str:
        """Return the area's address, or the address of a path in it, for messages."""
        return self.files.display_path(str(self.root / name))

    def name_of(self, file: Entry) -> str:
        """Return a file's name relative to the area, for messages and `source_file`.

        Bytes that are not UTF-8 are escaped.
        """
        # `relative_to` would take most of the time for many files.
        name = os.fspath(file).removeprefix(f"{self.root}{os.sep}")
        return name if name.isascii() else os.fsencode(name).decode(errors="backslashreplace")

    def manifest(self, name: str, form: object) -> Path | None:
        """Return the manifest's file for files of one format in the folder `name`."""
        of_form = digest(repr(form), length=8)
        return self.cache and self.cache / f"{self.files.prefix}{name}.{of_form}.json"


def place_of_area(place: str) -> str:
    """Return a folder's whole path or an address. Raises ValueError for other texts."""
    if place and "://" not in place and not Path(place).is_absolute():
        raise ValueError("write the whole path, or an address such as s3://bucket/prefix")
    return of_known_store(without_password(place))


def _without_scheme(place: str) -> str:
    return place.rpartition("://")[2].rstrip("/")
