"""Reading an archive to its end once, whatever its format: each row as a line of JSON, with what its column of the day says."""

import csv
import hashlib
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.errors import SourceError
from backfill_assets.sources.archive import Archive
from backfill_assets.sources.archive_days import DayOf, day_reader
from backfill_assets.sources.contents import BLANK, BYTE_ORDER_MARK, is_json
from backfill_assets.sources.formats import Csv, Parquet
from backfill_assets.sources.packed import PIECE, Pieces, unpacked


class Line(NamedTuple):
    """A row of an archive; `text` is its line of JSON, or what cannot be read as one; `day` is of no day if None."""

    text: str
    day: date | None
    is_utf8: bool = True


@dataclass
class Reading:
    """One reading of the archive at `path`: what it has read so far. `name`: of the archive, for messages."""

    archive: Archive
    path: Path
    name: str
    max_line_bytes: int
    bytes_read: int = 0
    digest: Any = field(default_factory=hashlib.blake2b)
    end: bytes = b""

    def lines(self) -> Iterator[Line]:
        """Every row that is not blank. Raises SourceError for an archive that cannot be read to its end."""
        if isinstance(self.archive.format, Parquet):
            read = self._of_parquet
        else:
            read = self._of_csv if isinstance(self.archive.format, Csv) else self._of_json
        try:
            yield from read(day_reader(self.archive))
        except (EOFError, zlib.error, csv.Error, pa.ArrowException) as error:
            raise SourceError(f"{self.name} cannot be read to its end ({str(error).partition('.')[0]})") from error
        except OSError as error:
            raise SourceError(f"{self.name} cannot be read ({error.strerror or error})") from error

    @property
    def content(self) -> str:
        """The hash of what was read, once that is all."""
        return str(self.digest.hexdigest()[:32])

    def _pieces(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while piece := file.read(PIECE):
                self.digest.update(piece)
                self.bytes_read += len(piece)
                yield piece

    def _of_json(self, day_of: DayOf) -> Iterator[Line]:
        column = self.archive.day
        for raw in self._raw_lines():
            try:
                text, is_utf8 = raw.decode(), True
            except UnicodeDecodeError:
                text, is_utf8 = raw.decode(errors="replace"), False
            try:
                row = json.loads(text)
                yield Line(text, day_of(row.get(column)) if type(row) is dict else None, is_utf8)
            except (ValueError, RecursionError):
                yield Line(text, None, is_utf8)

    def _raw_lines(self) -> Iterator[bytes]:
        """The lines, as Spark splits them: at a line feed, a carriage return, or both; without blank ones."""
        rest, begun = b"", False
        for piece in unpacked(self.path.suffix, self._pieces()):
            data = rest + (piece if begun else piece.removeprefix(BYTE_ORDER_MARK))
            begun = begun or bool(piece)
            # A carriage return at the end may have its line feed in the next piece.
            end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
            rest = data[end:]
            if len(rest) > self.max_line_bytes:
                raise self._too_long(len(rest))
            yield from self._not_blank(data[:end])
        if rest.strip(BLANK) and not rest.endswith(b"\r") and not is_json(rest):
            raise SourceError(f"{self.name} is cut off")
        yield from self._not_blank(rest)

    def _not_blank(self, data: bytes) -> Iterator[bytes]:
        for line in data.splitlines():
            if len(line) > self.max_line_bytes:
                raise self._too_long(len(line))
            if line.strip(BLANK):
                yield line

    def _too_long(self, length: int) -> SourceError:
        return SourceError(f"{self.name} has a line of {length} bytes, more than BACKFILL_MAX_LINE_BYTES={self.max_line_bytes}")

    def _of_csv(self, day_of: DayOf) -> Iterator[Line]:
        form = self.archive.format
        assert isinstance(form, Csv)
        # Bytes that are not UTF-8 stay different from a U+FFFD that was delivered.
        binary = BufferedReader(Pieces(self._with_end(unpacked(self.path.suffix, self._pieces()))))
        text = TextIOWrapper(binary, "utf-8-sig", errors="surrogateescape", newline="")
        csv.field_size_limit(self.max_line_bytes)
        rows = csv.reader(text, delimiter=form.delimiter)
        names, cells = [name.strip() for name in next(rows, [])], list[str]()
        if names.count(self.archive.day) != 1:
            raise SourceError(f"{self.name} has no column {self.archive.day}, or more than one")
        at, width = names.index(self.archive.day), len(names)
        for cells in filter(None, rows):
            if len(cells) == width:  # as Spark reads it, an empty value is null; its column is there
                row = json.dumps({name: cell or None for name, cell in zip(names, cells, strict=True)}, ensure_ascii=False)
            else:
                row = form.delimiter.join(cells)
            yield _line(row, day_of(cells[at]) if at < len(cells) else None)
        if len(cells) < width and self.end not in b"\r\n":
            raise SourceError(f"{self.name} is cut off")

    def _with_end(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.end = piece[-1:] or self.end
            yield piece

    def _of_parquet(self, day_of: DayOf) -> Iterator[Line]:
        opened, self.bytes_read = pq.ParquetFile(self.path), self.path.stat().st_size
        if self.archive.day not in opened.schema_arrow.names:
            raise SourceError(f"{self.name} has no column {self.archive.day}")
        for batch in opened.iter_batches():
            for row in batch.to_pylist():
                values = {name: _plain(value) for name, value in row.items()}
                text = json.dumps(values, ensure_ascii=False, default=str)
                self.digest.update(text.encode())  # of its rows: for one of its bytes it would be read twice
                yield Line(text, day_of(row[self.archive.day]))


def _line(text: str, day: date | None) -> Line:
    try:
        text.encode()
    except UnicodeEncodeError:
        return Line(text.encode(errors="surrogateescape").decode(errors="replace"), day, is_utf8=False)
    return Line(text, day)


def _plain(value: object) -> object:
    """A value that JSON has; numbers that it has not are text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
