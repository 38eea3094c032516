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
    Csv,
    Parquet,
)
from backfill_assets.sources.files.packing import PIECE, PiecesReader, unpacked

# More names than this in JSON lines are values rather than columns.
_MAX_NAMES = 1000


class ArchiveRow(NamedTuple):
    """A row of an archive: its JSON line, or the text that could not be read as one.

    `day` is None if the row has no valid day.
    """

    text: str
    day: date | None
    is_utf8: bool = True


@dataclass
class ArchiveReader:
    """One reading of the archive `name` at `path`, row by row, and the facts found so far.

    names   the columns of its header; of JSON lines those of any line, or None if there are too
            many to be columns
    is_cut  whether it ends within a line
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
        """The hash of the unpacked contents, so an archive and its packed copy have the same one.

        It is complete after the last row.
        """
        return str(self.digest.hexdigest()[:32])

    def lines(self) -> Iterator[ArchiveRow]:
        """Yield every row that is not blank.

        Raises SourceError for any error, so that other archives are still loaded.
        """
        try:
            day_of = day_reader(self.archive, self.name)
            match self.archive.format:
                case Csv() as form:
                    yield from self._csv_rows(day_of, form)
                case Parquet():
                    yield from self._parquet_rows(day_of)
                case _:
                    yield from self._json_rows(day_of)
        except SourceError:
            raise
        except OSError as error:
            raise SourceError(f"{self.name} cannot be read ({error.strerror or error})") from error
        except Exception as error:
            raise SourceError(
                f"{self.name} cannot be read to its end ({str(error).partition('.')[0]})"
            ) from error

    def _json_rows(self, day_of: DayReader) -> Iterator[ArchiveRow]:
        names = set[str]()
        for text, is_utf8 in self._texts():
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):
                row = None
            is_object = type(row) is dict
            if is_object and not names.issuperset(row) and len(names) < _MAX_NAMES:
                names |= row.keys()
            day = day_of(row.get(self.archive.day) if is_object else None)
            yield ArchiveRow(text, day, is_utf8)
        self.names = sorted(names) if len(names) < _MAX_NAMES else None

    def _csv_rows(self, day_of: DayReader, form: Csv) -> Iterator[ArchiveRow]:
        if form.multiline:
            rows = self._multiline_rows(form)
        else:
            rows = (
                (text, _cells_of(text, form.delimiter), is_utf8) for text, is_utf8 in self._texts()
            )
        header = next(rows, None)
        if header is None:
            return
        names = form.names(header[0])
        day_column = self._day_column(names)
        for text, cells, is_utf8 in rows:
            if len(cells) == len(names):
                # As in Spark, an empty value is null, and its column is present.
                values = {name: cell or None for name, cell in zip(names, cells, strict=True)}
                text = json.dumps(values, ensure_ascii=False)
            day = day_of(cells[day_column] if day_column < len(cells) else None)
            yield ArchiveRow(text, day, is_utf8)

    def _multiline_rows(self, form: Csv) -> Iterator[tuple[str, list[str], bool]]:
        """Yield rows whose values may contain line feeds.

        After a quote that is never closed, the rest of the file would be one value.
        """
        # "surrogateescape" keeps bytes that are not UTF-8 apart from a U+FFFD in the file.
        binary = BufferedReader(PiecesReader(self._unpacked()))
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

    def _parquet_rows(self, day_of: DayReader) -> Iterator[ArchiveRow]:
        file = pq.ParquetFile(self.path)
        self.bytes_read = self.path.stat().st_size
        self._day_column(file.schema_arrow.names)
        for batch in file.iter_batches():
            for row in batch.to_pylist():
                text = json.dumps(_plain(row), ensure_ascii=False, default=str)
                # A hash of the rows: one of the bytes would need a second reading.
                self.digest.update(text.encode())
                yield ArchiveRow(text, day_of(row.get(self.archive.day)))

    def _day_column(self, names: Sequence[str]) -> int:
        """Return the position of the day's column in a header. Raises SourceError without one."""
        self.names = names
        column = self.archive.day
        if repeated := header_of(names, ()).repeated:
            raise SourceError(f"{self.name} has more than one column {repeated[0]}")
        if column and column not in names:
            raise SourceError(f"{self.name} has no column {column}")
        return names.index(column) if column else 0

    def _texts(self) -> Iterator[tuple[str, bool]]:
        """Yield the lines, and whether they are UTF-8. U+FFFD replaces bytes that are not."""
        for lines in self._line_batches():
            for line in lines:
                try:
                    yield line.decode(), True
                except UnicodeDecodeError:
                    yield line.decode(errors="replace"), False

    def _line_batches(self) -> Iterator[list[bytes]]:
        """Yield the lines that are not blank, many at once.

        As in Spark, a line ends with a line feed, a carriage return, or both.
        """
        rest = b""
        is_first = True
        header = b""
        for piece in self._unpacked():
            data = rest + (piece.removeprefix(BYTE_ORDER_MARK) if is_first else piece)
            is_first = is_first and not piece
            # A carriage return at the end may have its line feed in the next piece.
            end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
            rest = data[end:]
            self._not_blank([rest])
            lines = self._not_blank(data[:end].splitlines())
            header = header or next(iter(lines), b"")
            yield lines
        if rest.strip(BLANK) and not rest.endswith(b"\r"):
            self.is_cut = not self.archive.format.is_whole(
                rest, (header or rest).decode(errors="replace")
            )
        yield self._not_blank(rest.splitlines())

    def _not_blank(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the lines that are not blank. Raises SourceError for one that is too long."""
        longest = max(map(len, lines), default=0)
        if longest > self.max_line_bytes:
            raise SourceError(
                f"{self.name} has a line of {longest} bytes, more than"
                f" BACKFILL_MAX_LINE_BYTES={self.max_line_bytes}"
            )
        return [line for line in lines if line.strip(BLANK)]

    def _unpacked(self) -> Iterator[bytes]:
        for piece in unpacked(self.path.suffix, self._pieces()):
            self.digest.update(piece)
            yield piece

    def _pieces(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while piece := file.read(PIECE):
                self.bytes_read += len(piece)
                yield piece


def _cells_of(line: str, delimiter: str) -> list[str]:
    """Return the values of a line as text."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader((line,), delimiter=delimiter, strict=True))
    except csv.Error:
        return _cells_of_irregular_line(line, delimiter)


def _cells_of_irregular_line(line: str, delimiter: str) -> list[str]:
    cells = list[str]()
    at = 0
    while True:
        match = _cell(delimiter).match(line, at)
        assert match, "any text is a cell"
        inner = match["inner"]
        behind = match["behind"]
        if inner or behind or match["closed"] is not None:
            text = inner.replace('""', '"')
            # Spark's parser adds a quote at the end of the line if the second character after
            # blanks is one.
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


def _plain(value: Any) -> Any:
    """Return a value that JSON has. Numbers that it lacks become text."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
