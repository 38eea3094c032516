"""Split a file of several days once into files of one day, below the lake.

A day's file has the header of the original and the day's rows as they were written, so it is read
like any other file. Its name is a hash of its contents. So a new version of the original changes
only the files of those days whose rows changed.
"""

import csv
import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from backfill_assets.digest import digest
from backfill_assets.errors import SourceError
from backfill_assets.lake.storage import ARCHIVED, Documents, at_once
from backfill_assets.sources.files.dialect import (
    BLANK_TEXT,
    LINE_ENDS,
    Found,
    decoded,
    lines_of,
)
from backfill_assets.sources.files.fields import header_of, repeated_columns
from backfill_assets.sources.files.formats import (
    JSON_LINES,
    AnyFormat,
    Csv,
    FileContents,
    Parquet,
    canonical_pieces,
)
from backfill_assets.sources.files.packing import PIECE

# The version of the splitting. Increase it with each change of the days' files.
FORM_VERSION = 4
_MEMORY_BYTES = 128 * 2**20
_MAX_EXAMPLES = 3
# More names than this in JSON lines are values rather than columns.
_MAX_NAMES = 1000
_NO_CONTENTS = asdict(FileContents())
_CONTENTS = TypeAdapter(FileContents)


@dataclass(frozen=True)
class Split:
    """The days of a file.

    source    the hash of the file
    declared  a hash of how it was split
    content   a hash of its rows by day. Files with the same one have the same rows
    header    the names of its columns, as in `FileContents`; of JSON lines those of any line, or ""
              if there are too many to be columns
    parts     by day in ISO 8601, or by path in a pack, the contents of a file below the lake
    lines     how many rows it has
    before    how many rows are of days before the first one
    undated   how many rows have no day; `examples` are the numbers of the first of them
    """

    source: str = ""
    declared: str = ""
    content: str = ""
    header: str = ""
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lines: int = 0
    before: int = 0
    undated: int = 0
    examples: Sequence[int] = ()

    @property
    def days(self) -> list[date]:
        return sorted(map(date.fromisoformat, self.parts))

    @property
    def rows(self) -> int:
        """The number of rows with a day that is not before the first one."""
        return self.lines - self.before - self.undated

    def lines_of(self, days: Iterable[date]) -> int:
        return sum(self.parts[str(day)]["lines"] for day in days)

    def part(self, key: object, folder: str) -> FileContents | None:
        """Return the contents of the file for a day, or for a path in a pack; None without one.

        `folder` is the folder of all these files, for `Paths.archived`.
        """
        part = self.parts.get(str(key))
        if part is None:
            return None
        contents = _CONTENTS.validate_python({"header": self.header, **part})
        return replace(contents, part=f"{ARCHIVED}/{folder}/{contents.part}")


STORED = TypeAdapter(Split)


@dataclass
class Splitter:
    """Reads the file at `path` once, and gathers its rows by day in the empty `folder`.

    column     the column with the day of a row; "" if the name of the file says it
    day_of     reads the day from a value of that column
    first_day  rows of earlier days are left out and counted
    memory     rows are written to the folder after this many bytes
    """

    path: Path
    form: AnyFormat
    column: str
    day_of: Callable[[Any], date | None]
    folder: Path
    first_day: date = date.min
    memory: int = _MEMORY_BYTES
    is_rewritten: bool = False
    header: bytes = b""
    names: set[str] = field(default_factory=set)
    gathered: dict[date, list[bytes]] = field(default_factory=dict)
    waiting: int = 0

    def split(self, contents: FileContents, declared: str) -> Split:
        """Write a file for each day into the folder.

        `contents` describe the whole file. Raises SourceError, which does not name the file, if it
        cannot be read to its end.
        """
        if isinstance(self.form, Csv) and self.form.multiline and contents.open_quotes:
            raise SourceError("has a quote that is not closed")
        try:
            self.is_rewritten = contents.is_rewritten
            return self._split(contents, declared)
        except (csv.Error, pa.ArrowException) as error:
            raise SourceError(f"cannot be read to its end ({error})") from error

    def _split(self, contents: FileContents, declared: str) -> Split:
        found = {"lines": 0, "before": 0, "undated": 0}
        examples = list[int]()
        for day, numbers, row in self._rows():
            found["lines"] += len(numbers)
            if day is None:
                found["undated"] += len(numbers)
                examples += numbers[: _MAX_EXAMPLES - len(examples)]
            elif day < self.first_day:
                found["before"] += len(numbers)
            else:
                self._gather(day, row)
        header = contents.header
        if not isinstance(self.form, Csv | Parquet):
            header = json.dumps(sorted(self.names)) if len(self.names) < _MAX_NAMES else ""
        parts = {day.isoformat(): self._part(day) for day in sorted(self.gathered)}
        by_day = [f"{day} {part['part']}" for day, part in parts.items()]
        counts = [str(count) for count in found.values()]
        content = digest(declared, *counts, *by_day)
        return Split(contents.content, declared, content, header, parts, **found, examples=examples)

    def _gather(self, day: date, row: bytes) -> None:
        self.gathered.setdefault(day, []).append(row)
        self.waiting += len(row)
        if self.waiting >= self.memory:
            self.waiting = 0
            for on, rows in self.gathered.items():
                with (self.folder / str(on)).open("ab") as file:
                    file.writelines(rows)
                rows.clear()

    def _gathered(self, day: date) -> Iterator[bytes]:
        path = self.folder / str(day)
        if path.exists():
            with path.open("rb") as file:
                while piece := file.read(PIECE):
                    yield piece
            path.unlink()
        yield from self.gathered.pop(day)

    def _part(self, day: date) -> dict[str, Any]:
        """Write the file of a day. Return its contents without their defaults."""
        is_parquet = isinstance(self.form, Parquet)
        ending = self.form.endings[0] + ("" if is_parquet else ".gz")
        draft = self.folder / f"draft{ending}"
        content = (self._write_parquet if is_parquet else self._write_text)(day, draft)
        path = f"day={day}/{content}{ending}"
        (self.folder / path).parent.mkdir()
        draft.replace(self.folder / path)
        contents = _plain(self.form).contents(self.folder / path)
        contents = replace(contents, header="", part=path)
        return without_defaults(contents)

    def _write_text(self, day: date, path: Path) -> str:
        content = hashlib.blake2b()
        with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            for piece in (self.header, *self._gathered(day)):
                content.update(piece)
                packed.write(piece)
        return content.hexdigest()[:32]

    def _write_parquet(self, day: date, path: Path) -> str:
        rows = pa.BufferReader(b"".join(self._gathered(day)))
        tables = list[pa.Table]()
        while rows.tell() < rows.size():
            tables.append(pa.ipc.open_stream(rows).read_all())
        pq.write_table(pa.concat_tables(tables).combine_chunks(), path)
        return self.form.contents(path).content

    def _rows(self) -> Iterator[tuple[date | None, Sequence[int], bytes]]:
        """Yield rows as they are in the file, with their day and their numbers in the file."""
        if isinstance(self.form, Parquet):
            yield from self._rows_of_parquet()
            return
        read_as = self.form if self.is_rewritten else None
        with self.path.open("rb") as file:
            # The contents have the truncation and the rows that are left out.
            hashed = hashlib.blake2b()
            pieces = canonical_pieces(file, self.path.suffix, read_as, Found(), hashed)
            form = _plain(self.form)
            rows = self._csv(pieces, form) if isinstance(form, Csv) else self._json(pieces)
            for number, (row, value) in enumerate(rows, 1):
                line = row if row.endswith(LINE_ENDS) else f"{row}\n"
                yield self.day_of(value), (number,), line.encode(errors="surrogateescape")

    def _json(self, pieces: Iterator[bytes]) -> Iterator[tuple[str, Any]]:
        for line in filter(str.strip, lines_of(decoded(pieces, JSON_LINES.encoding))):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            value = None
            if isinstance(row, dict):
                value = row.get(self.column)
                if len(self.names) < _MAX_NAMES:
                    self.names |= row.keys()
            yield line, value

    def _csv(self, pieces: Iterator[bytes], form: Csv) -> Iterator[tuple[str, Any]]:
        filled = (record for record in form.records(pieces) if record[0].strip(BLANK_TEXT))
        header, names, _ = next(filled, ("", [], ""))
        self.header = f"{header.rstrip(BLANK_TEXT)}\n".encode(errors="surrogateescape")
        names = [name.strip() for name in names]
        at = names.index(self.column) if self.column in names else 0
        for row, values, _ in filled:
            text = row.rstrip(BLANK_TEXT)
            if values[1:] == names:
                # The canonical form of an unreadable row is its text, and the names.
                text = values[0]
                values = []
            cells = values or text.split(form.delimiter)
            yield row, cells[at] if at < len(cells) else None

    def _rows_of_parquet(self) -> Iterator[tuple[date | None, Sequence[int], bytes]]:
        before = 1
        for batch in pq.ParquetFile(self.path).iter_batches():
            values = batch.column(self.column).to_pylist() if self.column else [None] * len(batch)
            places: dict[date | None, list[int]] = {}
            for place, value in enumerate(values):
                places.setdefault(self.day_of(value), []).append(place)
            for day, of_day in places.items():
                out = pa.BufferOutputStream()
                with pa.ipc.new_stream(out, batch.schema) as stream:
                    stream.write_batch(batch.take(pa.array(of_day)))
                yield day, [before + place for place in of_day], out.getvalue().to_pybytes()
            before += len(batch)


def _plain(form: AnyFormat) -> AnyFormat:
    """Return the format of the days' files, which are in canonical form."""
    match form:
        case Csv():
            return Csv(form.delimiter, form.multiline)
        case Parquet():
            return form
        case _:
            return JSON_LINES


def without_defaults(contents: FileContents) -> dict[str, Any]:
    return {name: value for name, value in asdict(contents).items() if value != _NO_CONTENTS[name]}


def store(split: Split, drafts: Path, folder: str) -> None:
    """Write the files of a split from `drafts` into `folder`.

    No process reads them before they are recorded.
    """
    documents = Documents(folder)
    paths = [part["part"] for part in split.parts.values()]
    at_once(folder, lambda path: documents.write(path, (drafts / path).read_bytes()), paths)


def fault_of(contents: FileContents, form: AnyFormat, max_line_bytes: int, column: str = "") -> str:
    """Return why a file cannot be read, or cannot be split by a column, or ""."""
    if contents.longest_line > max_line_bytes:
        return (
            f"has a line of {contents.longest_line} bytes, more than"
            f" BACKFILL_MAX_LINE_BYTES={max_line_bytes}"
        )
    # Names in objects are not repeated. Reading the header takes most of the time for many files.
    if contents.fault or not contents.header or (form.named_in and not contents.in_folders):
        return contents.fault
    header = header_of([*form.names(contents.header), *contents.in_folders], ())
    if column and column not in header.names:
        return f"has no column {column}"
    return repeated_columns(header)
