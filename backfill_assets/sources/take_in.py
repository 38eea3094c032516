"""Taking archives in: each is read once, split into its days, and committed; one that is in and has not changed is not read.

Lines are committed in slices, and no day has any of them before the last slice is in. What was killed goes on behind the last
slice that was committed, as long as the archive is the same file. Rows of an archive that changed are replaced in the commit
that makes the new ones visible.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from backfill_assets.errors import SourceError
from backfill_assets.lake.archived import Archived, archived, commit
from backfill_assets.lake.locks import writing
from backfill_assets.lake.paths import ARCHIVED, Paths
from backfill_assets.sources.archive import Archive, stamp_of
from backfill_assets.sources.archive_lines import Reading
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.load import Load, Reader, TakenIn, without


def take_in(
    archive: Archive,
    area: LandingArea,
    *,
    full_refresh: bool = False,
    only: Sequence[str] = (),
    reader: Reader = Reading,
) -> Iterator[TakenIn]:
    """Take in the archives that are new or have changed; with `full_refresh` all, and what is in of those that are gone goes.

    `only`: those whose names match one of these patterns. One archive that cannot be read does not hold up the others.
    """
    folder = Paths(area.lake).archived(archive.name)
    with writing(area.lake, f"{ARCHIVED}/{archive.name}"):
        listed, late = archive.listed(area), archive.late(area)
        if full_refresh and not only:
            _drop(folder, {*archived(folder).whole} - {*listed, *late})
        asked = {name: file for name, file in listed.items() if _chosen(name, only)}
        stamps = {name: stamp_of(area, file) for name, file in asked.items()}
        tried = [name for name in asked if full_refresh or not is_in(archived(folder), archive, name, stamps[name])]
        failed = set[str]()
        # Twice: the rows of one may have stood for another of the same content, and have changed since.
        for names in (tried, asked):
            for name in names:
                if names is tried or (name not in failed and name not in archived(folder).whole):
                    taken = _taken_in(Load(archive, area, folder, name, listed, reader), anew=full_refresh)
                    failed |= {name} if taken.problem else set()
                    yield taken
    yield from (TakenIn(name, left_out=True) for name in late if _chosen(name, only))


def is_in(state: Archived, archive: Archive, name: str, stamp: str) -> bool:
    """Whether an archive is in as it lies there, and as it is declared."""
    taken = state.whole.get(name)
    return bool(taken and taken.stamp == stamp and taken.declared == archive.declared and name not in state.begun)


def _chosen(name: str, only: Sequence[str]) -> bool:
    return not only or any(fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}") for pattern in only)


def _drop(folder: str, gone: set[str]) -> None:
    if gone:
        state = archived(folder)
        commit(state, replace(state, whole=without(state.whole, gone)), [])


def _taken_in(load: Load, *, anew: bool) -> TakenIn:
    try:
        return load.run(anew=anew)
    except SourceError as error:
        return TakenIn(load.name, load.bytes_read, problem=str(error))
    except OSError as error:
        return TakenIn(load.name, load.bytes_read, problem=f"{load.name} cannot be read ({error.strerror or error})")
