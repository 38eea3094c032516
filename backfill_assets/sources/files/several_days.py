"""Packed files of a landing, and files of several days: the part for each day.

A pack is read like a folder. Packs are unpacked, and files are split by the days of their rows, on
demand, and again after a change. The resulting files are in the lake (`split.py`).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from backfill_assets.digest import digest
from backfill_assets.errors import SourceError, counted, named
from backfill_assets.lake.locks import writing
from backfill_assets.lake.storage import ARCHIVED, Documents, Paths
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.day_of_row import day_reader
from backfill_assets.sources.files.formats import AnyFormat, FileContents
from backfill_assets.sources.files.listing import Span
from backfill_assets.sources.files.manifest import Manifest
from backfill_assets.sources.files.packs import PACKS, extracted
from backfill_assets.sources.files.split import (
    FORM_VERSION,
    STORED,
    Split,
    Splitter,
    fault_of,
    store,
    without_defaults,
)
from backfill_assets.sources.filesystem import Entry, Packed, Tree, delivered_file


@dataclass
class SeveralDays:
    """The files in the folder `name` at one look.

    column   the column with the day of a row; "" if the names of files say it
    formats  how days are written there (`day_reader`)
    """

    area: LandingArea
    manifest: Manifest
    name: str
    form: AnyFormat
    column: str
    formats: Sequence[str]
    packed: dict[Entry, FileContents] = field(default_factory=dict, kw_only=True)
    splits: dict[Entry, tuple[Split, str]] = field(default_factory=dict, kw_only=True)

    @property
    def folder(self) -> str:
        """The folder of the resulting files, for `Paths.archived`."""
        return self.name.replace("/", "+")

    def with_packs(self, tree: Tree) -> Tree:
        """Return a tree of the same folder in which packs are folders."""

        def entries(folder: Entry) -> Sequence[Entry] | None:
            if isinstance(folder, Packed):
                if not folder.path and folder not in self.packed:
                    self._unpack(folder)
                return None if folder in self.packed else self._packed_in(folder)
            listed = tree.entries(folder)
            return listed and [
                Packed(entry) if entry.name.endswith(PACKS) else entry for entry in listed
            ]

        return replace(tree, entries=entries)

    def contents_of(self, files: Iterable[Entry]) -> dict[Entry, FileContents]:
        """Return the contents of files, also of those in packs, and of packs with a fault."""
        found = dict.fromkeys(files, FileContents()) | self.packed
        return found | self.manifest.contents(file for file in found if file not in self.packed)

    def of_day(
        self, file: Entry, whole: FileContents, day: date, span: Span | None
    ) -> FileContents | None:
        """Return the contents of a file with the rows of a day, or None if it has no such row.

        `span`: the days in the file's name. Each of them gets contents. If the file cannot be
        split, every day gets its fault.
        """
        if span and not span[0] <= day <= span[1]:
            return None
        if not self.column or whole.fault:
            return whole
        split, doubt = self.split(file, whole, span)
        if not split.parts:
            return replace(whole, fault=doubt)
        part = split.part(day, self.folder)
        if not part and not span:
            return None
        part = part or FileContents(header=split.header)
        kept = ("stamp", "open_quotes", "repeated", "notes", "in_folders")
        return replace(part, doubt=doubt, **{name: getattr(whole, name) for name in kept})

    def split(self, file: Entry, whole: FileContents, span: Span | None) -> tuple[Split, str]:
        """Return the days of a file, and why someone must accept the file, or "".

        Without days, the text says why the file cannot be split.
        """
        if file not in self.splits:
            try:
                split = self._split(file, whole)
                doubt = " and ".join(
                    filter(None, (whole.cut, whole.doubt, *self._doubts(split, span)))
                )
                self.splits[file] = split, doubt
            except (SourceError, OSError) as error:
                self.splits[file] = Split(), str(error)
        return self.splits[file]

    def _doubts(self, split: Split, span: Span | None) -> Iterator[str]:
        """Yield the doubts about rows without a day, or with a day outside the file's name."""
        first, last = span or (date.min, date.max)
        outside = [day for day in split.days if not first <= day <= last]
        if outside:
            rows = counted(split.lines_of(outside), "row")
            yield f"has {rows} of other days than {first} to {last}: {outside[0]}"
        if split.undated:
            yield (
                f"has {counted(split.undated, 'row')} without a day that can be read in"
                f" {self.column}, the first in row {split.examples[0]}"
            )

    def _packed_in(self, folder: Packed) -> list[Entry]:
        """List the files and folders in a folder of a pack."""
        above = f"{folder.path}/".lstrip("/")
        rests = (
            file.path.removeprefix(above)
            for file in self.packed
            if isinstance(file, Packed) and file.file == folder.file and file.path.startswith(above)
        )
        names = {rest.partition("/")[:2] for rest in rests}
        return [Packed(folder.file, above + name, bool(slash)) for name, slash in sorted(names)]

    def _unpack(self, pack: Packed) -> None:
        """Find the files in a pack that have an ending of the format, or the pack's fault."""
        (contents,) = self.manifest.contents([pack.file]).values()
        try:
            if not contents.content:
                raise SourceError(contents.fault)
            split = self._once(pack, contents, partial(self._extract, pack, contents))
        except (SourceError, OSError) as error:
            if self.column:
                raise SourceError(f"{self.area.name_of(pack)} {error}") from error
            self.packed[pack] = replace(contents, fault=str(error))
            return
        for path in split.parts:
            part = split.part(path, self.folder)
            assert part is not None
            self.packed[Packed(pack.file, path, False)] = replace(part, stamp=contents.stamp)

    def _extract(self, pack: Packed, contents: FileContents, folder: Path) -> Split:
        endings = self.form.endings
        with self.area.files.open_local(pack.file) as path:
            files = extracted(path, folder, lambda name: name.endswith(endings))
        if not files:
            raise SourceError(f"has no file like {named(endings)}")
        parts = {}
        for name, path in files.items():
            part = self.form.contents(path)
            stored = path.rename(folder / f"{part.content}{''.join(path.suffixes)}")
            parts[name] = without_defaults(replace(part, part=stored.name))
        return Split(contents.content, parts=parts)

    def _split(self, file: Entry, whole: FileContents) -> Split:
        limit = self.area.max_line_bytes
        if fault := fault_of(whole, self.form, limit, self.column):
            raise SourceError(fault)
        split = self._once(file, whole, partial(self._by_day, file, whole))
        if not split.parts:
            raise SourceError(f"has no row with a day in {self.column}")
        return split

    def _by_day(self, file: Entry, whole: FileContents, folder: Path) -> Split:
        day_of = day_reader(self.formats, self.area.zone)
        store, stored = self.area.located(file, whole.part, whole.size)
        with store.open_local(stored) as path:
            splitter = Splitter(path, self.form, self.column, day_of, folder)
            return splitter.split(whole, "")

    def _once(self, file: Entry, contents: FileContents, split: Callable[[Path], Split]) -> Split:
        """Return the stored result for a file with these contents, or split the file now.

        `split` splits the file into an empty folder. The result is stored in the lake. It replaces
        the result for an earlier file of this name.
        """
        lake = self.area.lake
        assert lake, "files of several days are split below a lake"
        place = Paths(lake).archived(self.folder)
        documents = Documents(place)
        declared = repr((FORM_VERSION, self.form, self.column, self.formats))
        how = digest(declared + self.area.zone_mark)
        path = f"{digest(self.area.name_of(file), how)}.json"

        def stored() -> Split | None:
            with suppress(FileNotFoundError):
                found = STORED.validate_json(documents.read(path))
                return found if found.source == contents.content else None
            return None

        if found := stored():
            return found
        with (
            writing(lake, f"{ARCHIVED}/{self.folder}"),
            TemporaryDirectory(prefix="backfill-") as drafts,
        ):
            # Another process may have split the file meanwhile.
            if found := stored():
                return found
            found = split(Path(drafts))
            if self.area.files.has_changed(delivered_file(file)):
                raise SourceError("was written to while it was read")
            store(found, Path(drafts), place)
            documents.write(path, json.dumps(asdict(found)))
            return found
