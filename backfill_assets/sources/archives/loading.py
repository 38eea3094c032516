"""Load archives: read each once, split it into days, and commit the lines.

An unchanged archive is not read again. Lines are committed in batches: a part of a large archive,
or many small ones. No day gets lines of an archive before all of it is loaded. A load that was
killed continues after its last committed batch if the archive is the same file. Rows of a changed
archive are replaced in the commit that makes the new ones visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

from backfill_assets.errors import SourceError
from backfill_assets.lake.locks import writing
from backfill_assets.lake.slices import DataFile
from backfill_assets.lake.storage import ARCHIVED, Paths
from backfill_assets.sources.archives.archive import Archive, file_stamp, missing_in_archive
from backfill_assets.sources.archives.loads import (
    LoadedArchives,
    LoadRecord,
    commit,
    loaded_archives,
    new_load_name,
    write_lines,
)
from backfill_assets.sources.archives.reading import ArchiveReader
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.filesystem import Entry

# Small archives are committed together, because each commit records the state of all archives.
_MAX_BATCH_FILES = 1000
_MAX_EXAMPLES = 3
ReaderOf = Callable[[Archive, Path, str, int], ArchiveReader]


@dataclass(frozen=True)
class LoadResult:
    """The result of one archive in a run.

    bytes_read  how many bytes of it were read
    record      its record now, with its `rows` and `days`
    problem     why it is not loaded, or not in its current form. What was loaded before stays
    acceptable  whether the problem is a doubt that someone may accept
    left_out    whether it was modified too late to be loaded
    dropped     whether it was deleted, and its rows were removed
    """

    name: str
    bytes_read: int = 0
    record: LoadRecord | None = None
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
    reader: ReaderOf = ArchiveReader,
) -> Iterator[LoadResult]:
    """Load the archives that are new or have changed.

    full_refresh  load all of them, and remove rows of archives that no longer exist
    only          load archives whose names match one of these patterns
    accept        names of archives to load although a guard refuses them, for this `reason`
    reader        how an archive is read

    An archive that cannot be read does not stop the others. Raises Conflict if another process
    loads archives of this source at the same time.
    """
    folder = Paths(area.lake).archived(archive.name)
    with writing(area.lake, f"{ARCHIVED}/{archive.name}"):
        listed = archive.listed(area)
        late = archive.late(area)
        state = loaded_archives(folder)
        batch = ArchiveBatch(folder, state, state)
        failed = set[str]()
        if full_refresh and not only:
            _drop(batch, {*listed, *late})
        stamps = {
            name: file_stamp(area, file) for name, file in listed.items() if is_selected(name, only)
        }
        # Twice: an archive that changes may have held the rows of another with the same content.
        for is_first_pass in (True, False):
            for name, stamp in stamps.items():
                is_wanted = is_first_pass and (full_refresh or name in accept)
                if name not in failed and (
                    is_wanted or not is_loaded(batch.state, archive, name, stamp)
                ):
                    load = ArchiveLoad(archive, area, batch, name, listed, reader)
                    result = load.run(full_refresh, reason if name in accept else "")
                    if result.problem:
                        failed.add(name)
                    batch.results.append(result)
                if batch.size >= archive.slice_bytes or len(batch.files) >= _MAX_BATCH_FILES:
                    yield from batch.commit()
        yield from batch.commit()
    yield from (LoadResult(name, left_out=True) for name in late if is_selected(name, only))


def is_loaded(state: LoadedArchives, archive: Archive, name: str, stamp: str) -> bool:
    """Tell whether an archive is loaded in its current form and declaration.

    Its rows may be under the name of another archive with the same content.
    """
    record = state.whole.get(name)
    if (
        record is None
        or name in state.begun
        or (record.stamp, record.declared) != (stamp, archive.declared)
    ):
        return False
    holder = state.whole.get(record.same_as or name)
    return bool(holder and holder.load == record.load)


def is_selected(name: str, only: Sequence[str]) -> bool:
    return not only or any(
        fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}") for pattern in only
    )


def _drop(batch: ArchiveBatch, existing: Collection[str]) -> None:
    """Remove the rows of archives that no longer exist."""
    deleted = {*batch.state.whole} - {*existing}
    days = batch.state.days()
    for name in sorted(deleted):
        files_by_day = {day: files[name] for day, files in days.items() if name in files}
        batch.results.append(
            LoadResult(
                name,
                record=batch.state.whole[name],
                rows=sum(file.rows or 0 for files in files_by_day.values() for file in files),
                days=sorted(files_by_day),
                dropped=True,
            )
        )
    whole = {name: record for name, record in batch.state.whole.items() if name not in deleted}
    batch.state = replace(batch.state, whole=whole)


@dataclass
class ArchiveBatch:
    """What the next commit to the table in `folder` contains.

    It is the new `state`, the `files` with lines of `size` bytes, and the results to report
    afterwards.
    """

    folder: str
    state: LoadedArchives
    committed: LoadedArchives
    files: list[DataFile] = field(default_factory=list)
    size: int = 0
    results: list[LoadResult] = field(default_factory=list)

    def begin(self, name: str, record: LoadRecord) -> None:
        """Commit a part of one archive. No day shows its rows yet."""
        self.state = replace(self.state, begun={**self.state.begun, name: record})
        self._commit()

    def commit(self) -> Iterator[LoadResult]:
        """Commit the batch, then yield the results of its archives."""
        self._commit()
        results = self.results
        self.results = []
        yield from results

    def _commit(self) -> None:
        if self.state != self.committed:
            self.state = self.committed = commit(self.committed, self.state, self.files)
        self.files = []
        self.size = 0


@dataclass
class ArchiveLoad:
    """The load of one archive. Lines are gathered by day and written to the batch.

    Archives share the batch.
    """

    archive: Archive
    area: LandingArea
    batch: ArchiveBatch
    name: str
    listed: Mapping[str, Entry]
    reader: ReaderOf
    bytes_read: int = 0
    lines: int = 0
    before: int = 0
    undated: int = 0
    examples: list[int] = field(default_factory=list)
    rows: Counter[date] = field(default_factory=Counter)
    gathered: dict[date, list[str]] = field(default_factory=dict)
    not_utf8: dict[date, list[int]] = field(default_factory=dict)

    def run(self, is_full_refresh: bool, reason: str) -> LoadResult:
        """Add the archive to the batch. `reason` says why a guard's refusal is accepted."""
        try:
            return self._load(is_full_refresh, reason)
        except SourceError as error:
            problem = str(error)
        except OSError as error:
            problem = f"{self.name} cannot be read ({error.strerror or error})"
        return LoadResult(self.name, self.bytes_read, problem=problem)

    def _load(self, is_full_refresh: bool, reason: str) -> LoadResult:
        file = self.listed[self.name]
        files = self.area.files
        load = LoadRecord(new_load_name(), file_stamp(self.area, file), self.archive.declared)
        begun = self.batch.state.begun.get(self.name, load)
        if (begun.stamp, begun.declared) != (load.stamp, load.declared):
            begun = load
        with files.open_local(file) as path:
            reading = self.reader(self.archive, path, self.name, self.area.max_line_bytes)
            try:
                self._read(reading, begun)
            finally:
                self.bytes_read = reading.bytes_read
        if files.has_changed(file):
            raise SourceError(f"{self.name} was written to while it was read")
        record = replace(self._so_far(begun), content=reading.content, names=reading.names)
        if not self.lines:
            doubt = "has no rows"
        elif reading.is_cut:
            doubt = "is cut off"
        else:
            doubt = missing_in_archive(reading.names, self.archive.fields, self.rows)
        before = self.batch.state.whole.get(self.name, load)
        reason = reason or (before.accepted if before.content == record.content else "")
        if self.lines and self.undated == self.lines:
            raise SourceError(
                f"{self.name} {doubt or f'has no row with a day in {self.archive.day}'}"
            )
        if doubt and not reason:
            return LoadResult(
                self.name, self.bytes_read, problem=f"{self.name} {doubt}", acceptable=True
            )
        record = replace(record, accepted=reason if doubt else "")
        record = self._finish(record, is_full_refresh)
        return LoadResult(self.name, self.bytes_read, record, self.rows.total(), sorted(self.rows))

    def _read(self, reading: ArchiveReader, begun: LoadRecord) -> None:
        """Read the archive to its end. Lines that the `begun` load has are not gathered again."""
        waiting = 0
        first = self.archive.first_day or date.min
        gathered = self.gathered
        for text, day, is_utf8 in reading.lines():
            self.lines += 1
            if day is None:
                self.undated += 1
                self.examples += [self.lines] if len(self.examples) < _MAX_EXAMPLES else []
            elif day < first:
                self.before += 1
            elif self.lines <= begun.lines:
                self.rows[day] += 1
            else:
                lines = gathered.get(day) or gathered.setdefault(day, [])
                if not is_utf8:
                    self.not_utf8.setdefault(day, []).append(len(lines))
                lines.append(text)
                waiting += len(text)
                if waiting >= self.archive.slice_bytes:
                    waiting = 0
                    self.rows.update({day: len(lines) for day, lines in gathered.items()})
                    self._write(begun)
                    self.batch.begin(self.name, self._so_far(begun))
        self.rows.update({day: len(lines) for day, lines in gathered.items()})

    def _so_far(self, load: LoadRecord) -> LoadRecord:
        return replace(
            load,
            lines=self.lines,
            before=self.before,
            undated=self.undated,
            examples=[*self.examples],
        )

    def _write(self, load: LoadRecord) -> None:
        for day, lines in self.gathered.items():
            not_utf8 = self.not_utf8.get(day, ())
            self.batch.files.append(
                write_lines(
                    self.batch.folder, load.load, self.name, day, lines, not_utf8, self.lines
                )
            )
            self.batch.size += sum(map(len, lines))
        self.gathered.clear()
        self.not_utf8.clear()

    def _finish(self, record: LoadRecord, is_full_refresh: bool) -> LoadRecord:
        """Record the archive as completely loaded.

        Archives with the same content share one load, so their rows exist once.
        """
        state = self.batch.state
        whole = dict(state.whole)
        same = {name: other for name, other in whole.items() if other.content == record.content}
        holders = (
            name
            for name, other in same.items()
            if other.declared == record.declared and not other.same_as
        )
        holder = next(holders, "")
        if holder and not (is_full_refresh and holder == self.name):
            same_as = "" if holder == self.name else holder
            record = replace(record, load=same[holder].load, same_as=same_as)
        else:
            self._write(record)
            whole |= {
                name: replace(record, stamp=other.stamp, same_as=self.name)
                for name, other in same.items()
            }
            for name in self._earlier_names():
                del whole[name]
        begun = {name: other for name, other in state.begun.items() if name != self.name}
        self.batch.state = replace(state, whole={**whole, self.name: record}, begun=begun)
        return record

    def _earlier_names(self) -> set[str]:
        """Return the earlier names of this archive: deleted archives that had the same load."""
        whole = self.batch.state.whole
        before = whole.get(self.name)
        same_load = {name for name, other in whole.items() if before and other.load == before.load}
        return same_load - {self.name, *self.listed}
