"""Taking archives in: each is read once, split into its days, and committed; one that is in and has not changed is not read.

Lines are committed in slices, of a part of a large archive or of many small ones, and no day has any line of an archive before
all are in. What was killed goes on behind the last slice that was committed, as long as the archive is the same file. Rows of
an archive that changed are replaced in the commit that makes the new ones visible.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from backfill_assets.errors import SourceError
from backfill_assets.lake.archived import Archived
from backfill_assets.lake.locks import writing
from backfill_assets.lake.paths import ARCHIVED, Paths
from backfill_assets.sources.archive import Archive, stamp_of
from backfill_assets.sources.archive_lines import Reading
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.load import Load, Reader
from backfill_assets.sources.load_slice import LoadResult, Slice


def take_in(
    archive: Archive,
    area: LandingArea,
    *,
    full_refresh: bool = False,
    only: Sequence[str] = (),
    accept: Collection[str] = (),
    reason: str = "",
    reader: Reader = Reading,
) -> Iterator[LoadResult]:
    """Take in the archives that are new or have changed; with `full_refresh` all, and what is in of those that are gone goes.

    `only`: those whose names match one of these patterns. `accept` names those that are taken in although a guard refuses them,
    for this `reason`. One archive that cannot be read does not hold up the others.
    """
    folder = Paths(area.lake).archived(archive.name)
    with writing(area.lake, f"{ARCHIVED}/{archive.name}"):
        listed, late = archive.listed(area), archive.late(area)
        slice_, failed = Slice.of(folder), set[str]()
        if full_refresh and not only:
            _drop(slice_, {*listed, *late})
        asked = {name: stamp_of(area, file) for name, file in listed.items() if chosen(name, only)}
        # Twice: the rows of one may have stood for another of the same content, and have changed since.
        for first in (True, False):
            for name, stamp in asked.items():
                wanted = first and (full_refresh or name in accept)
                if name not in failed and (wanted or not is_in(slice_.state, archive, name, stamp)):
                    load = Load(archive, area, slice_, name, listed, reader)
                    result = _result(load, anew=full_refresh, reason=reason if name in accept else "")
                    failed |= {name} if result.problem else set()
                    slice_.results.append(result)
                if slice_.is_full(archive.slice_bytes):
                    yield from slice_.told()
        yield from slice_.told()
    yield from (LoadResult(name, left_out=True) for name in late if chosen(name, only))


def is_in(state: Archived, archive: Archive, name: str, stamp: str) -> bool:
    """Whether an archive is in as it lies there and is declared, with rows of its name or of one that has the same content."""
    record = state.whole.get(name)
    if record is None or name in state.begun or (record.stamp, record.declared) != (stamp, archive.declared):
        return False
    holder = state.whole.get(record.same_as or name)
    return bool(holder and holder.load == record.load)


def chosen(name: str, only: Sequence[str]) -> bool:
    return not only or any(fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}") for pattern in only)


def _drop(slice_: Slice, there: Collection[str]) -> None:
    """Drop what is in of archives that are gone."""
    gone, days = {*slice_.state.whole} - {*there}, slice_.state.days()
    for name in sorted(gone):
        of_day = {day: files[name] for day, files in days.items() if name in files}
        rows = sum(file.rows or 0 for files in of_day.values() for file in files)
        slice_.results.append(LoadResult(name, record=slice_.state.whole[name], rows=rows, days=sorted(of_day), dropped=True))
    whole = {name: record for name, record in slice_.state.whole.items() if name not in gone}
    slice_.state = replace(slice_.state, whole=whole)


def _result(load: Load, *, anew: bool, reason: str) -> LoadResult:
    try:
        return load.run(anew=anew, reason=reason)
    except SourceError as error:
        return LoadResult(load.name, load.bytes_read, problem=str(error))
    except OSError as error:
        return LoadResult(load.name, load.bytes_read, problem=f"{load.name} cannot be read ({error.strerror or error})")
