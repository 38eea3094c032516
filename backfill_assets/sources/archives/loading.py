"""Load archives: split each archive once into its days.

An unchanged archive is not read again. No day gets rows of an archive before the whole archive is
split. Rows of a changed archive are replaced by the write that makes the new ones visible.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from backfill_assets.errors import SourceError
from backfill_assets.lake.locks import writing
from backfill_assets.lake.storage import ARCHIVED, Paths
from backfill_assets.sources.archives.archive import Archive, file_stamp, missing_in_archive
from backfill_assets.sources.archives.loaded import (
    LoadedArchive,
    LoadedArchives,
    loaded_archives,
    save,
)
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.dialect import CUT_OFF
from backfill_assets.sources.files.split import Splitter, fault_of, store
from backfill_assets.sources.filesystem import Entry

# Small archives are recorded together, because each write records all archives.
_SAVE_AFTER_BYTES = 32 * 2**20
_SAVE_AFTER_FILES = 1000


@dataclass(frozen=True)
class LoadResult:
    """The result of one archive in a run.

    bytes_read  the bytes of the archive, if it was read
    record      what is recorded about it now, without its days, with its `rows` and `days`
    problem     why it is not loaded, or not in its current form. What was loaded before stays
    acceptable  whether the problem is a doubt that someone may accept
    left_out    whether it was modified too late to be loaded
    dropped     whether it was deleted, and its rows were removed
    """

    name: str
    bytes_read: int = 0
    record: LoadedArchive | None = None
    rows: int = 0
    days: Sequence[date] = ()
    problem: str = ""
    acceptable: bool = False
    left_out: bool = False
    dropped: bool = False


def load_archives(
    archive: Archive,
    area: LandingArea,
    *,
    full_refresh: bool = False,
    only: Sequence[str] = (),
    accept: Collection[str] = (),
    reason: str = "",
) -> Iterator[LoadResult]:
    """Load the archives that are new or have changed.

    full_refresh  load all of them, and remove rows of archives that no longer exist
    only          load archives whose names match one of these patterns
    accept        names of archives to load although a guard refuses them, for this `reason`

    An archive that cannot be read does not stop the others. Raises Conflict if another process
    loads archives of this source at the same time.
    """
    with writing(area.lake, f"{ARCHIVED}/{archive.name}"):
        listed = archive.listed(area)
        late = archive.late(area)
        state = loaded_archives(area, archive.name)
        load = ArchiveLoad(archive, area, listed, state, full_refresh)
        if full_refresh and not only:
            load.drop({*listed, *late})
        for name, file in listed.items():
            is_wanted = full_refresh or name in accept
            stamp = file_stamp(area, file)
            if is_selected(name, only) and (
                is_wanted or not load.state.is_loaded(archive, name, stamp)
            ):
                load.add(name, stamp, reason if name in accept else "")
                if load.is_large:
                    yield from load.save()
        yield from load.save()
    yield from (LoadResult(name, left_out=True) for name in late if is_selected(name, only))


def is_selected(name: str, only: Sequence[str]) -> bool:
    return not only or any(
        fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}") for pattern in only
    )


@dataclass
class ArchiveLoad:
    """The `listed` archives, the loaded ones, and the results that are not recorded yet."""

    archive: Archive
    area: LandingArea
    listed: dict[str, Entry]
    state: LoadedArchives
    full_refresh: bool
    results: list[LoadResult] = field(default_factory=list)

    @property
    def is_large(self) -> bool:
        """Tell whether the unrecorded results are large enough to be recorded now."""
        size = sum(result.bytes_read for result in self.results)
        return size >= _SAVE_AFTER_BYTES or len(self.results) >= _SAVE_AFTER_FILES

    def save(self) -> Iterator[LoadResult]:
        """Record the loaded archives, then yield the results."""
        if any(result.record for result in self.results):
            save(self.area, self.state)
        results = self.results
        self.results = []
        yield from results

    def drop(self, existing: Collection[str]) -> None:
        """Remove the rows of archives that no longer exist."""
        for name, loaded in self.state.by_name.items():
            if name not in existing:
                self._remove({name})
                is_held = bool(self.state.holder(loaded.content))
                rows = 0 if is_held else loaded.rows
                days = [] if is_held else loaded.days
                record = replace(loaded, parts={})
                self.results.append(
                    LoadResult(name, record=record, rows=rows, days=days, dropped=True)
                )

    def add(self, name: str, stamp: str, reason: str) -> None:
        """Load an archive. `reason` says why a guard's refusal is accepted."""
        try:
            result = self._load(name, stamp, reason)
        except SourceError as error:
            result = LoadResult(name, problem=f"{name} {error}")
        except OSError as error:
            result = LoadResult(name, problem=f"{name} cannot be read ({error.strerror or error})")
        self.results.append(result)

    def _load(self, name: str, stamp: str, reason: str) -> LoadResult:
        archive = self.archive
        file = self.listed[name]
        with (
            self.area.files.open_local(file) as path,
            TemporaryDirectory(prefix="backfill-") as drafts,
        ):
            contents = archive.format.contents(path)
            max_line_bytes = self.area.max_line_bytes
            fault = fault_of(contents, archive.format, max_line_bytes, archive.day)
            if not fault and contents.cut != CUT_OFF:
                fault = contents.cut
            if fault:
                raise SourceError(fault)
            splitter = Splitter(
                path,
                archive.format,
                archive.day,
                archive.day_of_rows(name, self.area.zone),
                Path(drafts),
                archive.first_day or date.min,
            )
            split = splitter.split(contents, archive.declared)
            if self.area.files.has_changed(file):
                raise SourceError("was written to while it was read")
            doubt = contents.cut or missing_in_archive(archive, split)
            if not split.lines:
                doubt = "has no rows"
            elif split.undated == split.lines:
                raise SourceError(doubt or f"has no row with a day in {archive.day}")
            before = self.state.by_name.get(name, LoadedArchive())
            reason = reason or (before.accepted if before.content == split.content else "")
            if doubt and not reason:
                problem = f"{name} {doubt}"
                return LoadResult(name, contents.size, problem=problem, acceptable=True)
            if self.full_refresh or split.content != before.content:
                store(split, Path(drafts), Paths(self.area.lake).archived(archive.name))
        accepted = reason if doubt else ""
        loaded = LoadedArchive(**vars(split), stamp=stamp, accepted=accepted)
        loaded = self._record(name, before, loaded)
        record = replace(loaded, parts={})
        return LoadResult(name, contents.size, record, split.rows, split.days)

    def _record(self, name: str, before: LoadedArchive, loaded: LoadedArchive) -> LoadedArchive:
        """Record a loaded archive.

        An archive with new rows comes after archives that already have these rows.
        """
        if before.content != loaded.content:
            # Earlier names of this archive: deleted archives with the rows that it had.
            earlier = {
                other
                for other, record in self.state.by_name.items()
                if record.content == before.content and other not in self.listed
            }
            self._remove({name, *earlier})
        holder = self.state.holder(loaded.content)
        loaded = replace(loaded, same_as="" if holder == name else holder)
        self.state = replace(self.state, by_name={**self.state.by_name, name: loaded})
        return loaded

    def _remove(self, names: Collection[str]) -> None:
        by_name = {name: loaded for name, loaded in self.state.by_name.items() if name not in names}
        self.state = replace(self.state, by_name=by_name)
