"""A load: one archive read to its end, its lines gathered by day and committed a slice at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import islice
from pathlib import Path

from backfill_assets.errors import SourceError
from backfill_assets.lake.archived import Archived, Taken, archived, commit, new_load, write_lines
from backfill_assets.lake.slice import DataFile
from backfill_assets.sources.archive import Archive, stamp_of
from backfill_assets.sources.archive_lines import Line, Reading
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files import Entry

EXAMPLES = 3
Reader = Callable[[Archive, Path, str, int], Reading]


@dataclass(frozen=True)
class TakenIn:
    """What came of one archive in a run: the bytes that were read of it, and what is in of it now. `problem`: why it is not in,
    or not as it lies there; what was in before stays. `left_out`: it was modified too late to be taken in."""

    name: str
    bytes_read: int = 0
    taken: Taken | None = None
    rows: int = 0
    days: Sequence[date] = ()
    problem: str = ""
    left_out: bool = False


def without(whole: Mapping[str, Taken], gone: set[str]) -> dict[str, Taken]:
    """The archives without those that are `gone`, and without those whose rows these held."""
    return {name: taken for name, taken in whole.items() if name not in gone and taken.same_as not in gone}


@dataclass
class Load:
    """Taking in one archive: lines are gathered by day, and written and committed a slice at a time."""

    archive: Archive
    area: LandingArea
    folder: str
    name: str
    listed: Mapping[str, Entry]
    reader: Reader
    bytes_read: int = 0
    lines: int = 0
    before: int = 0
    undated: int = 0
    examples: list[int] = field(default_factory=list)
    gathered: dict[date, list[str]] = field(default_factory=dict)
    not_utf8: dict[date, list[int]] = field(default_factory=dict)

    def run(self, *, anew: bool) -> TakenIn:
        file, state, files = self.listed[self.name], archived(self.folder), self.area.files
        stamp, begun = stamp_of(self.area, file), state.begun.get(self.name)
        load = Taken(new_load(), stamp, self.archive.declared)
        if begun and (begun.stamp, begun.declared) == (load.stamp, load.declared):
            load, self.lines, self.before = begun, begun.lines, begun.before
            self.undated, self.examples = begun.undated, [*begun.examples]
        with files.at_hand(file) as path:
            reading = self.reader(self.archive, path, self.name, self.area.max_line_bytes)
            try:
                state = self._read(reading, load, state)
            finally:
                self.bytes_read = reading.bytes_read
        if files.has_changed(file):
            raise SourceError(f"{self.name} was written to while it was read")
        if self.lines and self.undated == self.lines:
            raise SourceError(f"{self.name} has no row with a day in {self.archive.day}")
        state = self._finish(state, replace(self._so_far(load), content=reading.content), anew=anew)
        holder = state.whole[self.name].same_as or self.name
        of_day = {day: files[holder] for day, files in state.days().items() if holder in files}
        rows = sum(file.rows or 0 for files in of_day.values() for file in files)
        return TakenIn(self.name, self.bytes_read, state.whole[self.name], rows, sorted(of_day))

    def _read(self, reading: Reading, load: Taken, state: Archived) -> Archived:
        waiting, first = 0, self.archive.first_day or date.min
        for line in islice(reading.lines(), self.lines, None):
            self.lines += 1
            if line.day is None:
                self.undated += 1
                self.examples += [self.lines] if len(self.examples) < EXAMPLES else []
            elif line.day < first:
                self.before += 1
            else:
                self._gather(line, line.day)
                waiting += len(line.text)
                if waiting >= self.archive.slice_bytes:
                    files, waiting = self._write(load), 0
                    state = commit(state, replace(state, begun={**state.begun, self.name: self._so_far(load)}), files)
        return state

    def _gather(self, line: Line, day: date) -> None:
        lines = self.gathered.setdefault(day, [])
        if not line.is_utf8:
            self.not_utf8.setdefault(day, []).append(len(lines))
        lines.append(line.text)

    def _so_far(self, load: Taken) -> Taken:
        return replace(load, lines=self.lines, before=self.before, undated=self.undated, examples=self.examples)

    def _write(self, load: Taken) -> list[DataFile]:
        files = [
            write_lines(self.folder, load.load, self.name, day, lines, self.not_utf8.get(day, ()), self.lines)
            for day, lines in self.gathered.items()
        ]
        self.gathered, self.not_utf8 = {}, {}
        return files

    def _finish(self, state: Archived, load: Taken, *, anew: bool) -> Archived:
        """Commit what is left, and with it that the archive is in as a whole."""
        before = state.whole.get(self.name)
        begun = {name: taken for name, taken in state.begun.items() if name != self.name}
        same = [n for n, t in state.whole.items() if (t.content, t.declared, t.same_as) == (load.content, load.declared, "")]
        if same and not (anew and same == [self.name]):
            # The rows are in: what was taken in of them now is not needed.
            taken = replace(state.whole[same[0]], stamp=load.stamp)
            if self.name not in same:
                taken = replace(load, load="", same_as=same[0])
            return commit(state, replace(state, whole={**state.whole, self.name: taken}, begun=begun), [])
        moved = {before.same_as} - {"", *self.listed} if before else set[str]()
        whole = without(state.whole, {self.name, *moved})
        return commit(state, replace(state, whole={**whole, self.name: load}, begun=begun), self._write(load))
