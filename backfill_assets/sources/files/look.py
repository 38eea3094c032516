"""One look at a source's folder: the files for a day, and their contents."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property

from backfill_assets.errors import counted
from backfill_assets.sources.files.fields import Field, folder_values
from backfill_assets.sources.files.formats import FileContents
from backfill_assets.sources.files.listing import (
    Pattern,
    Span,
    days_of_files,
    files_by_day,
    folders_to_list,
    glob_entries,
    is_unlistable,
)
from backfill_assets.sources.files.packs import PACKS
from backfill_assets.sources.files.several_days import SeveralDays
from backfill_assets.sources.filesystem import Entry, Tree

ContentsByFile = Mapping[Entry, FileContents]


@dataclass
class Look(SeveralDays):
    """A look at the files of `days`, or at all files.

    fields    the declared columns
    patterns  where files are, by text. None if names do not say the day
    contents  what was read so far
    """

    fields: Sequence[Field]
    patterns: Mapping[str, Pattern | None]
    days: Collection[date] | None = None
    contents: dict[Entry, FileContents] = field(default_factory=dict)

    @cached_property
    def of_one_day(self) -> list[Pattern]:
        """The patterns of files of one day."""
        return [] if self.column else [*filter(None, self.patterns.values())]

    @cached_property
    def tree(self) -> Tree:
        """The parts of the folder with files of the days, or all of it if patterns need that."""
        if any(f"{pack}/" in text for text in self.patterns for pack in PACKS):
            return self.with_packs(self.area.tree(self.name))
        days = self.days
        if days is None or not self.of_one_day:
            return self.area.tree(self.name)
        return self.area.tree(self.name, lambda: folders_to_list(self.of_one_day, days))

    @cached_property
    def of_several_days(self) -> dict[Entry, Span | None]:
        """The files whose rows say their day, with the first and the last day in their names."""
        found: dict[str, tuple[Entry, Span | None]] = {}
        for text, pattern in self.patterns.items() if self.column else ():
            names = ["**", "*"] if pattern else text.split("/")
            for file in glob_entries(self.tree, self.tree.top, names):
                span = pattern.days_of(self.path_of(file)) if pattern else None
                has_ending = file.name.endswith(self.form.endings)
                if (has_ending or not text.endswith("*")) and (span or not pattern):
                    found[os.fspath(file)] = file, span
        return dict(found[path] for path in sorted(found))

    def days_of_files(self, markers: Sequence[Pattern] = ()) -> dict[str, Span | None]:
        """Return the days of all files by name, None for files that no pattern matches."""
        patterns = [*filter(None, self.patterns.values()), *markers]
        found = days_of_files(self.tree, patterns).items()
        return {f"{self.name}/{path}": days for path, days in found}

    def rows_outside(self, first: date, last: date) -> dict[str, str]:
        """Name the files with rows outside these days, with their number and an example."""
        found = dict[str, str]()
        contents = self.contents_of(self.of_several_days)
        for file, span in self.of_several_days.items():
            split, _ = self.split(file, contents[file], span)
            days = [day for day in split.days if not first <= day <= last]
            if days:
                name = self.area.name_of(file)
                rows = counted(split.lines_of(days), "row")
                found[name] = f"{name} ({rows}, such as of {days[0]})"
        return found

    def listed(self, days: Collection[date]) -> dict[date, list[Entry]]:
        """Return the files that may have rows of each of `days`, in order."""
        files = files_by_day(self.tree, days, self.of_one_day)
        return {day: [*of_day, *self.of_several_days] for day, of_day in files.items()}

    def read(self, listed: Mapping[date, Sequence[Entry]]) -> dict[date, ContentsByFile]:
        """Return the contents of listed files for their days.

        Files with an ending of another format, and links to folders, are not read.
        """
        files = {
            day: [file for file in of_day if self._is_delivery(file)]
            for day, of_day in listed.items()
        }
        contents = self.contents_of(file for of_day in files.values() for file in of_day)
        self.manifest.save()
        for file, whole in contents.items():
            if values := folder_values(self.area.name_of(file), self.fields):
                contents[file] = replace(whole, in_folders=values)
        self.contents |= contents
        spans = self.of_several_days
        return {
            day: {
                file: part
                for file in of_day
                if (part := self.of_day(file, contents[file], day, spans.get(file)))
            }
            for day, of_day in files.items()
        }

    def size(self, file: Entry) -> int:
        """Return the bytes of a file, also within a pack; -1 if it cannot be read."""
        packed = self.packed.get(file)
        return packed.size if packed else self.area.files.size(file)

    def _is_delivery(self, file: Entry) -> bool:
        if self.column or file.name.endswith(self.form.endings):
            return True
        # A pattern with an ending applies to any format.
        return is_unlistable(self.tree, file) or any(
            pattern.day_of(self.path_of(file))
            for pattern in self.of_one_day
            if not pattern.text.endswith("*")
        )

    def path_of(self, file: Entry | str) -> str:
        """Return the path of a file below the folder."""
        return os.fspath(file).removeprefix(f"{os.fspath(self.tree.top)}{os.sep}")
