"""Read an archive once, in any format: each row as a line of JSON with its day.

Bytes, hash, lines and column names are counted on the way. CSV is read as Spark reads it. RFC 4180
does not define a quote in the middle of a value: Spark keeps a value with text after its closing
quote as it is, and a value whose quote is never closed up to the end of the line.
"""

import csv
import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from backfill_assets.errors import SourceError
from backfill_assets.sources.archives.archive import Archive, DayReader, day_reader
from backfill_assets.sources.files.fields import header_of
from backfill_assets.sources.files.formats import (
    BLANK,
    BYTE_ORDER_MARK,
    PIECE,
    Csv,
    Parquet,
    PiecesReader,
    unpacked,
)


@dataclass
class ArchiveFile:
    """An archive at `path` that is read, and what has been read of it so far. `name`: of the
    archive, for messages.

    `names`: the columns of its header; of JSON lines those that any has, None if they are too many
    for columns. `is_cut`: it ends within a line.
    """

    archive: Archive
    path: Path
    name: str
    max_line_bytes: int
    bytes_read: int = 0
    digest: Any = field(default_factory=hashlib.blake2b)
    names: Sequence[str] | None = ()
    is_cut: bool = False

    @property
    def content(self) -> str:
        """The hash of what was read, once that is all, unpacked: an archive and its packed copy
        hold the same rows.
        """
        return str(self.digest.hexdigest()[:32])

    def unpacked(self) -> Iterator[bytes]:
        """What it holds, in pieces."""
        for piece in unpacked(self.path.suffix, self._pieces()):
            self.digest.update(piece)
            yield piece

    def _pieces(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while piece := file.read(PIECE):
                self.bytes_read += len(piece)
                yield piece

    def texts(self) -> Iterator[tuple[str, bool]]:
        """The lines, and whether they are UTF-8; where one is not, U+FFFD stands for what cannot be
        read.
        """
        for lines in self._lines():
            for line in lines:
                try:
                    yield line.decode(), True
                except UnicodeDecodeError:
                    yield line.decode(errors="replace"), False

    def _lines(self) -> Iterator[list[bytes]]:
        """The lines, as Spark splits them: at a line feed, a carriage return, or both; without
        blank ones. Many at once.
        """
        rest = b""
        begun = False
        first = b""
        for piece in self.unpacked():
            data = rest + (piece if begun else piece.removeprefix(BYTE_ORDER_MARK))
            begun = begun or bool(piece)
            # A carriage return at the end may have its line feed in the next piece.
            end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
            rest = data[end:]
            self._refuse_too_long([rest])
            lines = self._not_blank(data[:end])
            first = first or next(iter(lines), b"")
            yield lines
        if rest.strip(BLANK) and not rest.endswith(b"\r"):
            self.is_cut = not self.archive.format.is_whole(
                rest, (first or rest).decode(errors="replace")
            )
        yield self._not_blank(rest)

    def _not_blank(self, data: bytes) -> list[bytes]:
        lines = data.splitlines()
        self._refuse_too_long(lines)
        return [line for line in lines if line.strip(BLANK)]

    def _refuse_too_long(self, lines: Sequence[bytes]) -> None:
        longest = max(map(len, lines), default=0)
        most = self.max_line_bytes
        if longest > most:
            raise SourceError(
                f"{self.name} has a line of {longest} bytes, more than"
                f" BACKFILL_MAX_LINE_BYTES={most}"
            )

    def place_in(self, names: Sequence[str]) -> int:
        """The place of the column of the day in a header of these names."""
        self.names = names
        column = self.archive.day
        if repeated := header_of(names, ()).repeated:
            raise SourceError(f"{self.name} has more than one column {repeated[0]}")
        if column and column not in names:
            raise SourceError(f"{self.name} has no column {column}")
        return names.index(column) if column else 0


def _cells_of(line: str, delimiter: str) -> list[str]:
    """The values of a line, as text."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader((line,), delimiter=delimiter, strict=True))
    except csv.Error:
        return _cells_otherwise(line, delimiter)


def _cells_otherwise(line: str, delimiter: str) -> list[str]:
    cells = list[str]()
    at = 0
    while True:
        match = _cell(delimiter).match(line, at)
        assert match, "any text is a cell"
        inner = match["inner"]
        behind = match["behind"]
        if inner or behind or match["closed"] is not None:
            text = inner.replace('""', '"')
            # Its parser adds a quote at the end of the line where one is the second character
            # behind blanks.
            cells.append(f'"{text}"{behind}{match["again"] or ""}' if behind else text)
        else:
            cells.append(match[0])
        at = match.end() + 1
        if at > len(line):
            return cells


@cache
def _cell(delimiter: str) -> re.Pattern[str]:
    other = f"[^{re.escape(delimiter)}]"
    blank = f"(?:(?!{re.escape(delimiter)})[\\x00-\\x20])"
    added = f'(?:(?={blank}++[^"{re.escape(delimiter)}](?P<again>"){other}*$))?'
    end = f'"(?:(?P<closed>){blank}*(?={re.escape(delimiter)}|$)|{added}(?P<behind>{other}+))|$'
    return re.compile(f'"(?P<inner>(?:[^"]|"")*+)(?:{end})|{other}*', re.DOTALL)


# Names of JSON lines that are so many are values rather than columns.
_MAX_NAMES = 1000


class ArchiveRow(NamedTuple):
    """A row of an archive: its JSON line, or the text that could not be read as one.

    `day` is None if the row has no valid day.
    """

    text: str
    day: date | None
    is_utf8: bool = True


class ArchiveReader(ArchiveFile):
    """One reading of an archive, row by row."""

    def lines(self) -> Iterator[ArchiveRow]:
        """Every row that is not blank. Raises SourceError for an archive that cannot be read to its
        end, whatever the reason: others are taken in.
        """
        try:
            day_of = day_reader(self.archive, self.name)
            match self.archive.format:
                case Csv() as form:
                    yield from self._of_csv(day_of, form)
                case Parquet():
                    yield from self._of_parquet(day_of)
                case _:
                    yield from self._of_json(day_of)
        except SourceError:
            raise
        except OSError as error:
            raise SourceError(f"{self.name} cannot be read ({error.strerror or error})") from error
        except Exception as error:
            raise SourceError(
                f"{self.name} cannot be read to its end ({str(error).partition('.')[0]})"
            ) from error

    def _of_json(self, day_of: DayReader) -> Iterator[ArchiveRow]:
        column = self.archive.day
        names = set[str]()
        for text, is_utf8 in self.texts():
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):
                row = None
            is_row = type(row) is dict
            if is_row and not names.issuperset(row) and len(names) < _MAX_NAMES:
                names |= row.keys()
            yield ArchiveRow(text, day_of(row.get(column) if is_row else None), is_utf8)
        self.names = sorted(names) if len(names) < _MAX_NAMES else None

    def _of_csv(self, day_of: DayReader, form: Csv) -> Iterator[ArchiveRow]:
        if form.multiline:
            rows = self._rows_of_many_lines(form)
        else:
            rows = (
                (text, _cells_of(text, form.delimiter), is_utf8) for text, is_utf8 in self.texts()
            )
        header = next(rows, None)
        if header is None:
            return
        names = form.names(header[0])
        at = self.place_in(names)
        width = len(names)
        for text, cells, is_utf8 in rows:
            if len(cells) == width:
                # As Spark reads it, an empty value is null; its column is there.
                values = {name: cell or None for name, cell in zip(names, cells, strict=True)}
                text = json.dumps(values, ensure_ascii=False)
            yield ArchiveRow(text, day_of(cells[at] if at < len(cells) else None), is_utf8)

    def _rows_of_many_lines(self, form: Csv) -> Iterator[tuple[str, list[str], bool]]:
        """Rows of which values may hold line feeds. One quote that nothing closes would be a value
        of all that follows it.
        """
        # Bytes that are not UTF-8 stay different from a U+FFFD that was delivered.
        binary = BufferedReader(PiecesReader(self.unpacked()))
        text = TextIOWrapper(binary, "utf-8-sig", errors="surrogateescape", newline="")
        csv.field_size_limit(self.max_line_bytes)
        rows = csv.reader(text, delimiter=form.delimiter, strict=True)
        try:
            for cells in filter(None, rows):
                row = form.delimiter.join(cells)
                is_utf8 = row.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in row)
                if not is_utf8:
                    cells = [
                        cell.encode(errors="surrogateescape").decode(errors="replace")
                        for cell in cells
                    ]
                yield form.delimiter.join(cells), cells, is_utf8
        except csv.Error as error:
            raise SourceError(
                f"{self.name} cannot be read beyond line {rows.line_num} ({error})"
            ) from error

    def _of_parquet(self, day_of: DayReader) -> Iterator[ArchiveRow]:
        opened = pq.ParquetFile(self.path)
        self.bytes_read = self.path.stat().st_size
        self.place_in(opened.schema_arrow.names)
        for batch in opened.iter_batches():
            for row in batch.to_pylist():
                text = json.dumps(_plain(row), ensure_ascii=False, default=str)
                # Of its rows: for one of its bytes it would be read twice.
                self.digest.update(text.encode())
                yield ArchiveRow(text, day_of(row.get(self.archive.day)))


def _plain(value: Any) -> Any:
    """A value that JSON has; numbers that it has not are text."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
