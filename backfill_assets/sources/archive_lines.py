"""Reading an archive to its end once, whatever its format: each row as a line of JSON, with what its column of the day says."""

import csv
import json
import math
from collections.abc import Iterator
from datetime import date
from io import BufferedReader, TextIOWrapper
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from backfill_assets.errors import SourceError
from backfill_assets.sources.archive_days import DayOf, day_reader
from backfill_assets.sources.archive_file import ArchiveFile
from backfill_assets.sources.csv_line import cells_of
from backfill_assets.sources.formats import Csv, Parquet
from backfill_assets.sources.packed import Pieces

# Names of JSON lines that are so many are values rather than columns.
MANY = 1000


class Line(NamedTuple):
    """A row of an archive; `text` is its line of JSON, or what cannot be read as one; `day` is of no day if None."""

    text: str
    day: date | None
    is_utf8: bool = True


class Reading(ArchiveFile):
    """One reading of an archive, row by row."""

    def lines(self) -> Iterator[Line]:
        """Every row that is not blank. Raises SourceError for an archive that cannot be read to its end, whatever the reason:
        others are taken in."""
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
            raise SourceError(f"{self.name} cannot be read to its end ({str(error).partition('.')[0]})") from error

    def _of_json(self, day_of: DayOf) -> Iterator[Line]:
        column, names = self.archive.day, set[str]()
        for text, is_utf8 in self.texts():
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):
                row = None
            is_row = type(row) is dict
            if is_row and not names.issuperset(row) and len(names) < MANY:
                names |= row.keys()
            yield Line(text, day_of(row.get(column) if is_row else None), is_utf8)
        self.names = sorted(names) if len(names) < MANY else None

    def _of_csv(self, day_of: DayOf, form: Csv) -> Iterator[Line]:
        if form.multiline:
            rows = self._rows_of_many_lines(form)
        else:
            rows = ((text, cells_of(text, form.delimiter), is_utf8) for text, is_utf8 in self.texts())
        header = next(rows, None)
        if header is None:
            return
        names = form.names(header[0])
        at, width = self.place_in(names), len(names)
        for text, cells, is_utf8 in rows:
            if len(cells) == width:  # as Spark reads it, an empty value is null; its column is there
                values = {name: cell or None for name, cell in zip(names, cells, strict=True)}
                text = json.dumps(values, ensure_ascii=False)
            yield Line(text, day_of(cells[at] if at < len(cells) else None), is_utf8)

    def _rows_of_many_lines(self, form: Csv) -> Iterator[tuple[str, list[str], bool]]:
        """Rows of which values may hold line feeds. One quote that nothing closes would be a value of all that follows it."""
        # Bytes that are not UTF-8 stay different from a U+FFFD that was delivered.
        binary = BufferedReader(Pieces(self.unpacked()))
        text = TextIOWrapper(binary, "utf-8-sig", errors="surrogateescape", newline="")
        csv.field_size_limit(self.max_line_bytes)
        rows = csv.reader(text, delimiter=form.delimiter, strict=True)
        try:
            for cells in filter(None, rows):
                row = form.delimiter.join(cells)
                is_utf8 = row.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in row)
                if not is_utf8:
                    cells = [cell.encode(errors="surrogateescape").decode(errors="replace") for cell in cells]
                yield form.delimiter.join(cells), cells, is_utf8
        except csv.Error as error:
            raise SourceError(f"{self.name} cannot be read beyond line {rows.line_num} ({error})") from error

    def _of_parquet(self, day_of: DayOf) -> Iterator[Line]:
        opened, self.bytes_read = pq.ParquetFile(self.path), self.path.stat().st_size
        self.place_in(opened.schema_arrow.names)
        for batch in opened.iter_batches():
            for row in batch.to_pylist():
                text = json.dumps(_plain(row), ensure_ascii=False, default=str)
                self.digest.update(text.encode())  # of its rows: for one of its bytes it would be read twice
                yield Line(text, day_of(row.get(self.archive.day)))


def _plain(value: Any) -> Any:
    """A value that JSON has; numbers that it has not are text."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
