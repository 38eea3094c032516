"""A load: one archive read to its end, its lines gathered by day, and what is recorded of it."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from backfill_assets.errors import SourceError
from backfill_assets.lake.archived import LoadRecord, new_load, write_lines
from backfill_assets.sources.archive import Archive, stamp_of
from backfill_assets.sources.archive_guards import doubt_of
from backfill_assets.sources.archive_lines import Reading
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files import Entry
from backfill_assets.sources.load_slice import LoadResult, Slice

EXAMPLES = 3
Reader = Callable[[Archive, Path, str, int], Reading]


@dataclass
class Load:
    """Taking in one archive: its lines are gathered by day, and written into the open slice, which archives share."""

    archive: Archive
    area: LandingArea
    slice: Slice
    name: str
    listed: Mapping[str, Entry]
    reader: Reader
    bytes_read: int = 0
    lines: int = 0
    before: int = 0
    undated: int = 0
    examples: list[int] = field(default_factory=list)
    rows: Counter[date] = field(default_factory=Counter)
    gathered: dict[date, list[str]] = field(default_factory=dict)
    not_utf8: dict[date, list[int]] = field(default_factory=dict)

    def run(self, *, anew: bool, reason: str) -> LoadResult:
        """Add the archive to the slice, and say what came of it. `reason`: why it is taken in whatever guards say.

        Raises SourceError for one that cannot be read.
        """
        file, files = self.listed[self.name], self.area.files
        load = LoadRecord(new_load(), stamp_of(self.area, file), self.archive.declared)
        begun = self.slice.state.begun.get(self.name, load)
        if (begun.stamp, begun.declared) != (load.stamp, load.declared):
            begun = load
        with files.at_hand(file) as path:
            reading = self.reader(self.archive, path, self.name, self.area.max_line_bytes)
            try:
                self._read(reading, begun)
            finally:
                self.bytes_read = reading.bytes_read
        if files.has_changed(file):
            raise SourceError(f"{self.name} was written to while it was read")
        record = replace(self._so_far(begun), content=reading.content, names=reading.names)
        doubt = doubt_of(reading.names, self.archive.fields, self.rows, lines=self.lines, is_cut=reading.is_cut)
        before = self.slice.state.whole.get(self.name, load)
        reason = reason or (before.accepted if before.content == record.content else "")
        if self.lines and self.undated == self.lines:
            raise SourceError(f"{self.name} {doubt or f'has no row with a day in {self.archive.day}'}")
        if doubt and not reason:
            return LoadResult(self.name, self.bytes_read, problem=f"{self.name} {doubt}", acceptable=True)
        record = replace(record, accepted=reason if doubt else "")
        record = self._finish(record, anew=anew)
        return LoadResult(self.name, self.bytes_read, record, self.rows.total(), sorted(self.rows))

    def _read(self, reading: Reading, begun: LoadRecord) -> None:
        """Read it to its end. Lines that are in the files of the `begun` load are not gathered again."""
        waiting, first, gathered = 0, self.archive.first_day or date.min, self.gathered
        for text, day, is_utf8 in reading.lines():
            self.lines += 1
            if day is None:
                self.undated += 1
                self.examples += [self.lines] if len(self.examples) < EXAMPLES else []
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
                    self.slice.begin(self.name, self._so_far(begun))
        self.rows.update({day: len(lines) for day, lines in gathered.items()})

    def _so_far(self, load: LoadRecord) -> LoadRecord:
        return replace(load, lines=self.lines, before=self.before, undated=self.undated, examples=[*self.examples])

    def _write(self, load: LoadRecord) -> None:
        for day, lines in self.gathered.items():
            not_utf8 = self.not_utf8.get(day, ())
            self.slice.files.append(write_lines(self.slice.folder, load.load, self.name, day, lines, not_utf8, self.lines))
            self.slice.size += sum(map(len, lines))
        self.gathered.clear()
        self.not_utf8.clear()

    def _finish(self, record: LoadRecord, *, anew: bool) -> LoadRecord:
        """The archive is in as a whole. Archives of the same content have one load: their rows are there once."""
        state, whole, renamed = self.slice.state, {**self.slice.state.whole}, self._renamed()
        same = {name: each for name, each in whole.items() if each.content == record.content}
        holder = next((n for n, each in same.items() if each.declared == record.declared and not each.same_as), "")
        if holder and not (anew and holder == self.name):
            record = replace(record, load=same[holder].load, same_as="" if holder == self.name else holder)
        else:
            self._write(record)
            whole |= {name: replace(record, stamp=each.stamp, same_as=self.name) for name, each in same.items()}
            whole = {name: each for name, each in whole.items() if name not in renamed}
        begun = {name: each for name, each in state.begun.items() if name != self.name}
        self.slice.state = replace(state, whole={**whole, self.name: record}, begun=begun)
        return record

    def _renamed(self) -> set[str]:
        """The names that this archive had before: they are gone, and had the rows that were in of it."""
        whole = self.slice.state.whole
        before = whole.get(self.name)
        return {n for n, each in whole.items() if before and each.load == before.load} - {self.name, *self.listed}
