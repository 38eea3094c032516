"""The formats of files, and how a file is read once: lines, hash, columns and faults.

Formats are JSON lines, CSV and Parquet. The first two may be packed with gzip or zstd. Files are
read in pieces and judged before Spark reads them (`rows.py`). They are unpacked as Spark does it:
Spark fails on zeros after the packed data, which Python's gzip ignores.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import RawIOBase
from pathlib import Path
from typing import ClassVar, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.errors import named

PACKED = ("", ".gz", ".zst")


def _endings(*kinds: str) -> tuple[str, ...]:
    return tuple(f".{kind}{packed}" for kind in kinds for packed in PACKED)


@dataclass(frozen=True)
class FileContents:
    """What reading a file once found.

    `size` and `content` are the bytes and the hash of the stored file. The rest is about the
    unpacked file: its hash `unpacked`, `lines` that are not blank (without a header; rows, for
    Parquet), the bytes of the `longest_line`, and whether all of it is `utf8`. `in_folders` has the
    values of declared columns in the names of its folders.

    `fault` says why it cannot be read, `cut` why not to its end; both are "" for a good file.
    `stamp` is its size and times. `header` has the names of its columns; for JSON lines those in
    the first lines. `open_quotes` is the number of lines of CSV that end within a quoted value.
    """

    size: int = 0
    content: str = ""
    lines: int = 0
    longest_line: int = 0
    utf8: bool = True
    fault: str = ""
    stamp: str = ""
    header: str = ""
    cut: str = ""
    open_quotes: int = 0
    unpacked: str = ""
    in_folders: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class JsonLines:
    """One JSON object per line. Files end in .jsonl, .json or .ndjson, also with .gz or .zst."""

    endings: ClassVar[tuple[str, ...]] = _endings("jsonl", "json", "ndjson")
    # For messages: where a file names its columns, if it has no header, and what a row is.
    named_in: ClassVar[str] = " in its first lines"
    row_fault: ClassVar[str] = "are not one JSON object with the required columns"

    def contents(self, path: Path) -> FileContents:
        """Read a file once. Raises OSError."""
        return read_contents(path, self)

    def names(self, header: str) -> list[str]:
        """Return the names in the first lines."""
        names: list[str] = json.loads(header or "[]")
        return names

    def is_whole(self, line: bytes, header: str) -> bool:
        """Tell whether the last line of a file, without a line feed, is complete."""
        return _is_json(line)


JSON_LINES = JsonLines()


@dataclass(frozen=True)
class Csv:
    """Rows of text whose first line names the columns. Files end in .csv, also with .gz or .zst.

    A value that contains the `delimiter` is in double quotes, with each quote in it doubled (RFC
    4180). With `multiline`, quoted values may contain line feeds; one task then reads a whole file.

    Most programs end every file with a line feed. With `ends_with_newline`, a file without it
    counts as cut off, even if only its last value could be incomplete.
    """

    delimiter: str = ","
    multiline: bool = False
    ends_with_newline: bool = False
    endings: ClassVar[tuple[str, ...]] = _endings("csv")
    named_in: ClassVar[str] = ""
    row_fault: ClassVar[str] = "have too few or too many values, or are not UTF-8"

    def contents(self, path: Path) -> FileContents:
        """Read the hash, the number of rows, and the columns with their types. Raises OSError."""
        return read_contents(path, self)

    def names(self, header: str) -> list[str]:
        return [name.strip() for name in next(csv.reader([header], delimiter=self.delimiter), [])]

    def likely_delimiter(self, header: str, names: Collection[str]) -> str:
        """Return another delimiter by which the header has more of these names, or ""."""
        found = {
            delimiter: len({*replace(self, delimiter=delimiter).names(header)} & {*names})
            for delimiter in _DELIMITERS
        }
        best = max(found, key=lambda delimiter: found[delimiter])
        has_more = found[best] > len({*self.names(header)} & {*names})
        return best if has_more else ""

    def ends_in_quotes(self, line: bytes | bytearray) -> bool:
        """Tell whether a line ends within a quoted value, which contains a line break."""
        lines = [line.decode(errors="replace") + "\n", "\n"]
        reader = csv.reader(lines, delimiter=self.delimiter)
        try:
            next(reader)
        except csv.Error:  # a value that is too long for this reader
            return False
        return reader.line_num > 1

    def is_whole(self, line: bytes, header: str) -> bool:
        text = line.decode(errors="replace")
        if self.ends_with_newline:
            return False
        return self.multiline or (
            text.count('"') % 2 == 0 and len(self.names(text)) >= len(self.names(header))
        )


@dataclass(frozen=True)
class Parquet:
    """Parquet files, which end in .parquet."""

    endings: ClassVar[tuple[str, ...]] = (".parquet",)
    named_in: ClassVar[str] = ""
    row_fault: ClassVar[str] = ""

    def contents(self, path: Path) -> FileContents:
        """Read the rows and the columns with types, as JSON. Raises OSError."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, hashlib.blake2b)
        content = digest.hexdigest()[:32]
        contents = FileContents(path.stat().st_size, content, unpacked=content)
        try:
            metadata = pq.read_metadata(path)
            schema = metadata.schema.to_arrow_schema()
        except pa.ArrowException as error:
            return replace(contents, fault=f"cannot be read ({str(error).partition('.')[0]})")
        names = Counter(field.name.lower() for field in schema)
        if alike := [field.name for field in schema if names[field.name.lower()] > 1]:
            fault = f"has the columns {named(alike)}, which Spark takes for one"
            return replace(contents, fault=fault)
        header = json.dumps([[field.name, str(field.type)] for field in schema])
        return replace(contents, lines=metadata.num_rows, header=header)

    def names(self, header: str) -> list[str]:
        return [name for name, _ in json.loads(header or "[]")]

    def is_whole(self, line: bytes, header: str) -> bool:
        return True


AnyFormat = JsonLines | Csv | Parquet
FORMATS = get_args(AnyFormat)
PIECE = 1 << 18


def read_contents(path: Path, form: JsonLines | Csv = JSON_LINES) -> FileContents:
    """Read a text file to its end.

    Memory use stays small however long the lines are. Raises OSError.
    """
    has_header = isinstance(form, Csv)
    digest = hashlib.blake2b()
    unpacked_digest = hashlib.blake2b()
    lines = LineCounter(form if isinstance(form, Csv) and not form.multiline else None)
    sizes = list[int]()

    def pieces() -> Iterator[bytes]:
        while piece := file.read(PIECE):
            digest.update(piece)
            sizes.append(len(piece))
            yield piece

    with path.open("rb") as file:
        packed = pieces()
        fault = ""
        cut = ""
        try:
            for piece in unpacked(path.suffix, packed):
                lines.add(piece)
                unpacked_digest.update(piece)
        except EOFError as error:
            cut = f"cannot be read to its end ({error})"
        except zlib.error as error:
            fault = f"cannot be read to its end ({error})"
        for _ in packed:  # the rest, for the hash
            pass
    header = lines.first.decode(errors="replace") if has_header else ""
    fault = next((what for mark, what in _NOT_TEXT.items() if lines.head.startswith(mark)), fault)
    is_cut = lines.is_cut_off(form, header)
    cut = "" if fault else cut or ("is cut off" if is_cut else "")
    lines.end()
    lines.add(b"")
    header = lines.first.decode(errors="replace") if has_header else _names_of_objects(lines.head)
    count = lines.count - (has_header and lines.count > 0)
    content = digest.hexdigest()[:32]
    return FileContents(
        sum(sizes),
        content,
        count,
        lines.longest,
        lines.utf8,
        fault,
        "",
        header,
        cut,
        lines.open_quotes,
        unpacked_digest.hexdigest()[:32],
    )


# The part of an unfinished line that is kept to see whether it is whole.
_KEPT_OF_LINE = 16 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b" \t"
_DELIMITERS = ",;\t|"
# What files begin with that are no text in UTF-8, whatever they are called.
_NOT_TEXT = {
    b"\xff\xfe": "is text in UTF-16; write it in UTF-8",
    b"\xfe\xff": "is text in UTF-16; write it in UTF-8",
    b"\x1f\x8b": "is packed with gzip, and its name does not end in .gz",
    b"\x28\xb5\x2f\xfd": "is packed with zstd, and its name does not end in .zst",
    b"PK\x03\x04": "is a ZIP archive or a workbook",
}
# Of a file, so much of its beginning is looked at by itself; and so many lines of JSON, for their
# names.
_HEAD_BYTES = 64 * 2**10
_LINES_WITH_NAMES = 20


@dataclass
class LineCounter:
    """Count the lines of a file given in pieces, split as Spark splits them.

    A line ends with a line feed, a carriage return, or both. With `quoted`, lines that end within a
    quoted value are counted.
    """

    quoted: Csv | None = None
    count: int = 0
    longest: int = 0
    begun: bool = False
    # The line that has not ended yet: its beginning, its length so far, and whether it is blank so
    # far.
    beginning: bytearray = field(default_factory=bytearray)
    length: int = 0
    blank: bool = True
    utf8: bool = True
    decoder: codecs.IncrementalDecoder = field(
        default_factory=codecs.getincrementaldecoder("utf-8")
    )
    first: bytes = b""
    head: bytes = b""
    quotes: int = 0
    open_quotes: int = 0

    def add(self, piece: bytes) -> None:
        self._decode(piece)
        self.quotes += piece.count(b'"')
        self.head += piece[: _HEAD_BYTES - len(self.head)]
        if not self.begun:
            piece, self.begun = piece.removeprefix(BYTE_ORDER_MARK), bool(piece)
        *ended, rest = [*piece.splitlines(), *([b""] if piece[-1:] in (b"", b"\n", b"\r") else [])]
        if ended:
            self._extend(ended[0])
            self.end()
            self.count += sum(1 for line in ended[1:] if line.strip(BLANK))
            self.longest = max(self.longest, max(map(len, ended[1:]), default=0))
            if self.quoted:
                self.open_quotes += sum(map(self._ends_in_quotes, ended[1:]))
        self._extend(rest)

    def _extend(self, part: bytes) -> None:
        self.beginning += part[: _KEPT_OF_LINE - len(self.beginning)]
        self.length += len(part)
        self.blank = self.blank and not part.strip(BLANK)

    def _ends_in_quotes(self, line: bytes | bytearray) -> bool:
        # Only such a line has an odd number of quotes.
        return bool(self.quoted and line.count(b'"') % 2 and self.quoted.ends_in_quotes(line))

    def _decode(self, piece: bytes) -> None:
        try:
            if self.utf8:
                self.decoder.decode(piece, final=not piece)
        except UnicodeDecodeError:
            self.utf8 = False

    def end(self) -> None:
        """End the line that has not ended yet."""
        self.first = self.first or (b"" if self.blank else bytes(self.beginning))
        self.count += not self.blank
        self.open_quotes += self._ends_in_quotes(self.beginning)
        self.longest = max(self.longest, self.length)
        self.beginning = bytearray()
        self.length = 0
        self.blank = True

    def is_cut_off(self, form: JsonLines | Csv, header: str) -> bool:
        """Tell whether a file that ends here ends within a line, or within a quoted value.

        A line that is too long to be kept must end with a line feed.
        """
        if isinstance(form, Csv) and form.multiline and self.quotes % 2:
            return True
        if self.blank or self.length > _KEPT_OF_LINE:
            return not self.blank
        return not form.is_whole(bytes(self.beginning), header)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode(errors="replace"), parse_int=str)
    except (ValueError, RecursionError):
        return False
    return True


def _names_of_objects(head: bytes) -> str:
    """Return the names in the first lines of a file of JSON objects, as JSON.

    "" means that the file has no line, or that the first line is longer than `head`.
    """
    text = head.removeprefix(BYTE_ORDER_MARK)
    whole = len(head) < _HEAD_BYTES
    lines = [line for line in text.splitlines()[: None if whole else -1] if line.strip(BLANK)][
        :_LINES_WITH_NAMES
    ]
    objects = [
        json.loads(line.decode(errors="replace"), parse_int=str) for line in lines if _is_json(line)
    ]
    names = dict.fromkeys(name for row in objects if isinstance(row, dict) for name in row)
    return json.dumps(list(names)) if lines else ""


# Of a file that is cut off, the piece in which it ends is lost.
_SMALL_PIECE = 1 << 14
_GZIP = 16 + zlib.MAX_WBITS


def unpacked(ending: str, packed: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack the pieces of a file with this ending.

    Raises EOFError if the file is cut off, zlib.error if it contains other data.
    """
    if ending == ".gz":
        return unpacked_gzip(packed)
    return _unpacked_zstd(packed) if ending == ".zst" else packed


def unpacked_gzip(packed: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack consecutive gzip members in pieces.

    Raises EOFError if they are cut off, zlib.error if other data follows.
    """
    member = None
    for piece in packed:
        while piece:
            if member is None or member.eof:
                member = zlib.decompressobj(wbits=_GZIP)
            yield member.decompress(piece, PIECE)
            piece = member.unused_data if member.eof else member.unconsumed_tail
    if member is not None and not member.eof:
        yield member.flush()
        if not member.eof:
            raise EOFError("Compressed file ended before the end-of-stream marker was reached")


def _unpacked_zstd(packed: Iterator[bytes]) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(PiecesReader(packed), mode="r"), "zstd") as stream:
        while piece := _read(stream):
            yield piece


def _read(stream: pa.CompressedInputStream) -> bytes:
    try:
        return bytes(stream.read(_SMALL_PIECE))
    except OSError as error:
        raise (EOFError if "Truncated" in str(error) else zlib.error)(str(error)) from None


class PiecesReader(RawIOBase):
    """Pieces of bytes as a readable file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._rest or next(self._pieces, b"")
        taken = piece[: len(buffer)]
        self._rest = piece[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)
