"""The formats of files, and reading a file once: lines, hash, columns and faults.

Formats are JSON lines, CSV and Parquet. The first two may be packed with gzip or zstd. Files are
read in pieces and judged before Spark reads them (`rows.py`).
"""

import codecs
import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, ClassVar, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from annotated_types import Ge, MaxLen

from backfill_assets.errors import named
from backfill_assets.sources.files.dialect import (
    BLANK,
    BLANK_TEXT,
    BYTE_ORDER_MARK,
    CUT_OFF,
    HEAD_BYTES,
    LINE_ENDS,
    LONGEST,
    OPEN_QUOTES,
    REPEATED,
    Encoding,
    Found,
    JsonText,
    Record,
    csv_records,
    decoded,
    is_json,
    is_utf_8,
    likely_encodings,
    lines_of,
    names_of_objects,
    row_writer,
)
from backfill_assets.sources.files.fields import Convention
from backfill_assets.sources.files.packing import PIECE, unpacked
from backfill_assets.sources.protocol import Several, uncompared

PACKED = ("", ".gz", ".zst")
_UTF_8 = "utf-8"
# The version of the canonical form. Increase it with each change of `canonical`.
CANONICAL_VERSION = "1"


def _endings(*kinds: str) -> tuple[str, ...]:
    return tuple(f".{kind}{packed}" for kind in kinds for packed in PACKED)


@dataclass(frozen=True)
class FileContents:
    """The findings from reading a file once.

    `size` and `content` are the bytes and the hash of the stored file. The rest is about the
    unpacked file: its hash `unpacked`, `lines` that are not blank (without a header; rows, for
    Parquet), the bytes of the `longest_line`, and whether all of it is `utf8`. `in_folders` has the
    values of declared columns in the names of its folders.

    `fault` says why the file cannot be read, `cut` why it cannot be read to its end; both are ""
    for a good file. `stamp` is its size and times. `header` has the names of its columns; for JSON
    lines the names in the first lines. `open_quotes` is the number of CSV lines that end within a
    quoted value, and `repeated` the number of lines that repeat the header.

    `notes` are sentences about rows that are left out or malformed. `is_rewritten`: Spark must read
    another form of the file.

    For one day of a file of several days, `part` is the path below the lake of the file with the
    day's rows (`split.py`). `doubt` says why some rows of the original are in no day, or why the
    declared encoding is likely wrong.
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
    repeated: int = 0
    notes: Sequence[str] = field(default_factory=list)
    is_rewritten: bool = False
    doubt: str = ""
    part: str = ""


@dataclass(frozen=True)
class JsonLines(Convention):
    """One JSON object per line. Files end in .jsonl, .json or .ndjson, also with .gz or .zst.

    A file that is one array of objects is read too, of any size: each object is a row.

    rows      the path to the array of rows, if a file is one object
    encoding  the encoding of the text, any of Python's. Default: UTF-8

        JsonLines(rows="data.items")        {"data": {"items": [{"n": 1}, {"n": 2}]}}
        JsonLines(encoding="utf-16")        text in UTF-16

    Raises ValueError for an encoding that Python does not have.
    """

    _: KW_ONLY
    rows: str = ""
    encoding: Encoding = _UTF_8
    endings: ClassVar[tuple[str, ...]] = _endings("jsonl", "json", "ndjson")
    # For messages: the place of column names in a file without a header, and the fault of a row.
    named_in: ClassVar[str] = " in its first lines"
    row_fault: ClassVar[str] = "are not one JSON object with the required columns"

    @property
    def is_plain(self) -> bool:
        """True if files need not be turned into lines in UTF-8."""
        return not self.rows and is_utf_8(self.encoding)

    def contents(self, path: Path) -> FileContents:
        """Read a file once. Raises OSError."""
        return read_contents(path, self)

    def canonical(self, pieces: Iterator[bytes], found: Found) -> Iterator[str]:
        """Turn the pieces of a file into lines of JSON."""
        found.has_changed = True
        text = decoded(pieces, self.encoding)
        begin = text.read(HEAD_BYTES).removeprefix("\ufeff")
        if self.rows or _ARRAY.match(begin.encode(errors="replace")):
            yield from JsonText(text, begin).rows(self.rows.split(".") if self.rows else ())
        else:
            yield begin
            yield from iter(lambda: text.read(PIECE), "")

    def names(self, header: str) -> list[str]:
        """Return the names in the first lines."""
        names: list[str] = json.loads(header or "[]")
        return names

    def is_whole(self, line: bytes, header: str) -> bool:
        """Tell whether the last line of a file, without a line feed, is complete."""
        return is_json(line)


JSON_LINES = JsonLines()
Character = Annotated[str, MaxLen(1)]


@dataclass(frozen=True)
class Csv(Convention):
    """Rows of text whose first line names the columns. Files end in .csv, also with .gz or .zst.

    A value that contains the `delimiter` is in double quotes, with each quote in it doubled (RFC
    4180). With `multiline`, quoted values may contain line feeds; one task then reads a whole file.

    Most programs end every file with a line feed. With `ends_with_newline`, a file without it
    counts as cut off, even if only its last value could be incomplete.

    encoding   the encoding of the text, any of Python's. Default: UTF-8. A row with bytes that are
               not valid in it is malformed
    quote      the quote around values; "" if quotes have no meaning
    escape     a character that takes the meaning from the next one, such as a backslash
    skip_rows  the number of lines before the header
    comment    lines that begin with this text are left out, and counted after the header
    footer     a regular expression. Rows after the header whose text begins with a match, such as
               totals, are left out and counted. A quote before the text does not count
    header     the names of the columns, by position, of files without a header. "" for no name
    repeated_header  a line that equals the header is never a row. The columns may be in another
               order, which then holds for the rows after it. With "refuse", the file is refused
               until someone accepts it: files may have been joined, or rows repeated. With "skip",
               such lines are only counted

    A column without a name, and with values, is called "column 4", by its position. Rows without
    any value at the end of a file are left out and counted. `backfill status` shows all counts.

        Csv(";")                            n;cents
        Csv(encoding="cp1252")              text of Windows in Western Europe
        Csv(escape="\\\\")                  1,"6\\" pipe"
        Csv(quote="'")                      1,'a, b'
        Csv(skip_rows=2)                    two lines of title, then the header
        Csv(comment="#")                    # exported by hand
        Csv(footer="(Sub)?[Tt]otal")        Total,250
        Csv(header=["n", "cents"])          1,250
        Csv(repeated_header="skip")         files that were joined with `cat`
        Csv(multiline=True)                 quoted values of several lines

    Raises ValueError for an option with another value.
    """

    delimiter: str = ","
    multiline: bool = False
    ends_with_newline: bool = False
    _: KW_ONLY
    encoding: Encoding = _UTF_8
    quote: Character = '"'
    escape: Character = ""
    skip_rows: Annotated[int, Ge(0)] = 0
    comment: str = ""
    footer: str = ""
    header: Several[str] = ()
    # Decides on no row, so it is not part of the code version.
    repeated_header: Literal["refuse", "skip"] = uncompared("refuse")
    endings: ClassVar[tuple[str, ...]] = _endings("csv")
    named_in: ClassVar[str] = ""
    row_fault: ClassVar[str] = "have too few or too many values, or are not UTF-8"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.delimiter) != 1 or self.delimiter in {*LINE_ENDS, self.quote, self.escape}:
            raise ValueError(
                f"Csv: delimiter={self.delimiter!r} is not valid: it must be one character, other"
                " than the quote and the escape"
            )
        if self.escape and self.escape == self.quote:
            raise ValueError(
                f"Csv: escape={self.escape!r} is not valid: it is the quote, and doubled quotes are"
                " always read"
            )
        try:
            re.compile(self.footer)
        except re.error as error:
            raise ValueError(
                f"Csv: footer={self.footer!r} is not a regular expression: {error}"
            ) from None

    @property
    def is_plain(self) -> bool:
        """True if files need not be turned into CSV of RFC 4180 in UTF-8."""
        left_out = self.skip_rows or self.comment or self.footer
        is_usual = self.quote == '"' and not self.escape and is_utf_8(self.encoding)
        return is_usual and not left_out and not self.header

    def contents(self, path: Path) -> FileContents:
        """Read the hash, the number of rows, and the columns with their types. Raises OSError."""
        return read_contents(path, self)

    def canonical(self, pieces: Iterator[bytes], found: Found) -> Iterator[str]:
        """Turn the pieces of a file into rows of RFC 4180 with one header."""
        found.has_changed = not self.is_plain
        write = row_writer(self.delimiter).writerow
        names = [*self.header]
        nameless = [n for n, name in enumerate(names) if not name]
        if names:
            yield _ended(write(names), LINE_ENDS[0])
        order = list[int]()
        empty = list[str]()
        for text, values, why in self.records(pieces):
            if not text.strip(BLANK_TEXT):
                found.has_changed |= not names  # Blank lines before the header are left out.
            elif self.comment and text.startswith(self.comment):
                if names:  # comments before a header are not rows
                    found.count("comment lines left out", text)
            elif not names:
                names = [value.strip() for value in values] or [text]
                nameless = [n for n, name in enumerate(names) if not name]
                yield _ended(write(names), text)
            elif self.footer and re.match(self.footer, text.removeprefix(self.quote)):
                found.count("rows left out by footer=", text)
            elif not text.strip(BLANK_TEXT + self.delimiter):
                empty.append(write(values))
            else:
                yield from empty
                empty.clear()
                if why:
                    found.count(why, text)
                    # One value too many, so that Spark also sees that the row is malformed.
                    values = [text.rstrip("\r\n"), *names]
                    if not text.endswith(LINE_ENDS) or (self.multiline and why == OPEN_QUOTES):
                        found.cut = found.cut or CUT_OFF
                elif names[0] in text and (again := _order(values, names)):
                    found.count(REPEATED, text)
                    order = again
                    continue
                elif order and len(values) == len(names):
                    values = [values[n] for n in order]
                yield _ended(write(values), text)
                for n in nameless if len(values) == len(names) else ():
                    if values[n]:
                        found.count(f"{_name_of(n)} has no name, and has values", values[n])
        if self.skip_rows and found.head and not names:
            found.cut = f"has no line after the {self.skip_rows} that skip_rows leaves out"
        if empty:
            found.count("rows without a value left out at the end", empty[0], len(empty))
        found.has_changed |= found.counts.keys() != {*filter(NAMELESS.match, found.counts)}

    def records(self, pieces: Iterator[bytes]) -> Iterator[Record]:
        """Yield the rows of a file in this dialect, from the header on."""
        lines = islice(lines_of(decoded(pieces, self.encoding)), self.skip_rows, None)
        return csv_records(
            lines,
            multiline=self.multiline,
            delimiter=self.delimiter,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar=self.escape or None,
        )

    def names(self, header: str) -> list[str]:
        """Return the names of the columns. A column without a name is called by its position."""
        csv.field_size_limit(LONGEST)
        names = next(csv.reader([header], delimiter=self.delimiter), [])
        return [name.strip() or _name_of(n) for n, name in enumerate(names)]

    def is_whole(self, line: bytes, header: str) -> bool:
        text = line.decode(errors="replace")
        if self.ends_with_newline:
            return False
        return self.multiline or (
            text.count('"') % 2 == 0 and len(self.names(text)) >= len(self.names(header))
        )


NAMELESS = re.compile(r"column \d+")


def _name_of(position: int) -> str:
    return f"column {position + 1}"


def _order(values: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the position of each name, if the values are these names; else []."""
    found = [value.strip(f"{BLANK_TEXT}\ufeff") for value in values]
    return [found.index(name) for name in names] if sorted(found) == sorted(names) else []


def _ended(row: str, text: str) -> str:
    """Return a row that ends with a line feed if its text ends with one."""
    return row.removesuffix("\r\n") + ("\n" if text.endswith(LINE_ENDS) else "")


@dataclass(frozen=True)
class Parquet:
    """Parquet files, which end in .parquet. It has no options.

    Landing("sales", format=Parquet(), fields=[field("cents BIGINT")])
    """

    endings: ClassVar[tuple[str, ...]] = (".parquet",)
    named_in: ClassVar[str] = ""
    row_fault: ClassVar[str] = ""

    def contents(self, path: Path) -> FileContents:
        """Read the rows and the columns with types, as JSON. Raises OSError."""
        with path.open("rb") as stored:
            digest = hashlib.file_digest(stored, hashlib.blake2b)
        content = digest.hexdigest()[:32]
        contents = FileContents(path.stat().st_size, content, unpacked=content)
        try:
            # Spark reads INT96, which has nanoseconds, but no other type with nanoseconds.
            file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
            schema = file.schema_arrow
        except pa.ArrowException as error:
            return replace(contents, fault=f"cannot be read ({str(error).partition('.')[0]})")
        names = Counter(field.name.lower() for field in schema)
        if alike := [field.name for field in schema if names[field.name.lower()] > 1]:
            fault = f"has the columns {named(alike)}, which Spark takes for one"
            return replace(contents, fault=fault)
        header = json.dumps([[field.name, str(field.type)] for field in schema])
        return replace(contents, lines=file.metadata.num_rows, header=header)

    def names(self, header: str) -> list[str]:
        return [name for name, _ in json.loads(header or "[]")]


AnyFormat = JsonLines | Csv | Parquet
FORMATS = get_args(AnyFormat)


def read_contents(path: Path, form: JsonLines | Csv = JSON_LINES) -> FileContents:
    """Read a text file to its end.

    Memory use stays small: lines may be long, except in a dialect. Raises OSError.
    """
    contents, is_irregular = _read_text(path, form, is_rewritten=not form.is_plain)
    if not is_irregular:
        return contents
    again, _ = _read_text(path, form, is_rewritten=True)
    return again if again.is_rewritten else replace(contents, notes=again.notes)


def _read_text(
    path: Path, form: JsonLines | Csv, *, is_rewritten: bool
) -> tuple[FileContents, bool]:
    """Return the contents, and whether a plain file has lines in another form."""
    has_header = isinstance(form, Csv)
    digest = hashlib.blake2b()
    lines = LineCounter(form if isinstance(form, Csv) and not is_rewritten else None)
    found = Found()
    with path.open("rb") as file:
        read_as = form if is_rewritten else None
        for piece in canonical_pieces(file, path.suffix, read_as, found, digest):
            lines.add(piece)
        size = file.tell()
    marks = _NOT_TEXT | (_UTF_16 if is_utf_8(form.encoding) else {})
    fault = next((why for mark, why in marks.items() if found.head.startswith(mark)), found.fault)
    is_cut = lines.is_cut_off(form)
    cut = "" if fault else found.cut or (CUT_OFF if is_cut else "")
    lines.end()
    lines.add(b"")
    header = lines.first.decode(errors="replace") if has_header else names_of_objects(lines.head)
    not_text = [] if lines.utf8 or fault else [_not_text(form, lines.invalid)]
    contents = FileContents(
        size=size,
        content=digest.hexdigest()[:32],
        unpacked=found.unpacked.hexdigest()[:32],
        lines=lines.count - (has_header and lines.count > 0),
        longest_line=lines.longest,
        utf8=lines.utf8,
        fault=fault,
        header=header,
        cut=cut,
        open_quotes=found.counts[OPEN_QUOTES],
        repeated=found.counts[REPEATED],
        notes=[*found.notes, *not_text],
        is_rewritten=is_rewritten and found.has_changed,
        doubt=_looks_like_utf_8(form.encoding, found.head),
    )
    looked_for = (
        re.search(_EMPTY_END % re.escape(form.delimiter).encode(), lines.tail)
        if isinstance(form, Csv)
        else _ARRAY.match(lines.head)
    )
    return contents, bool(looked_for or lines.is_irregular) and not is_rewritten


def _looks_like_utf_8(encoding: str, head: bytes) -> str:
    """Say that a file begins with characters of UTF-8, although another encoding is declared.

    Such bytes are hardly ever text in another encoding. "" for other files.
    """
    if codecs.lookup(encoding).name.startswith("utf"):
        return ""
    try:
        text = codecs.getincrementaldecoder(_UTF_8)().decode(head)  # may end within a character
    except UnicodeDecodeError:
        return ""
    return "" if text.isascii() else "is text in UTF-8: leave encoding= out of its format"


def _not_text(form: JsonLines | Csv, sample: bytes) -> str:
    """Return a sentence about text that is in another encoding than the declared one."""
    likely = likely_encodings(sample) if is_utf_8(form.encoding) else []
    options = f"{type(form).__name__}(encoding={likely[0]!r})" if likely else ""
    remedy = f". It looks like {' or '.join(likely)}: write {options}" if likely else ""
    return f"not all of it is text in {form.encoding}{remedy}"


def canonical_pieces(
    file: BinaryIO, ending: str, form: JsonLines | Csv | None, found: Found, digest: Any
) -> Iterator[bytes]:
    """Yield the pieces of an unpacked file as far as they go, in canonical form with `form`.

    The whole file is hashed.
    """

    def pieces() -> Iterator[bytes]:
        while piece := file.read(PIECE):
            digest.update(piece)
            yield piece

    packed = pieces()
    plain = found.until_cut(unpacked(ending, packed))
    yield from found.encoded(form.canonical(plain, found)) if form else plain
    for _ in packed:  # the rest, for the hash
        pass


_ARRAY = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*(\{|\]\s*\Z)")
# A quote with ordinary text on both sides, or one whose value does not end in its line.
_ODD_QUOTE = r'"(?:(?<=[^{0}\r\n"]")[^{0}\r\n"]|(?<![^{0}\r\n]")[^"\r\n]*[\r\n])'
# A row without a value at the end of a file.
_EMPTY_END = rb"[\r\n][ \t%b]+\s*\Z"
_TAIL_BYTES = 2**12
# The beginnings of files that are not the declared text, under any name.
_UTF_16 = dict.fromkeys(
    (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "is text in UTF-16: write encoding='utf-16' in its format",
)
_NOT_TEXT = {
    b"\x1f\x8b": "is packed with gzip, and its name does not end in .gz",
    b"\x28\xb5\x2f\xfd": "is packed with zstd, and its name does not end in .zst",
    b"PK\x03\x04": "is a ZIP archive or a workbook",
}
_LONGEST_HEADER = 2**17
# The number of bytes around a byte that is not text, from which the encoding is guessed.
_AROUND = 2**11


@dataclass
class LineCounter:
    """Count the lines of a file given in pieces, split as Spark splits them.

    A line ends with a line feed, a carriage return, or both. With `form`, it also looks for lines
    that do not fit a plain file of this form.
    """

    form: Csv | None = None
    is_irregular: bool = False
    count: int = 0
    longest: int = 0
    begun: bool = False
    # The unfinished line: its beginning, its length so far, and whether it is blank so far.
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
    # The bytes around the first byte that is not UTF-8.
    invalid: bytes = b""
    # The names in the first line, the longest first, and the end of the last piece.
    names: Sequence[bytes] = ()
    tail: bytes = b""

    def add(self, piece: bytes) -> None:
        self._decode(piece)
        self.quotes += piece.count(b'"')
        self.head += piece[: HEAD_BYTES - len(self.head)]
        self.tail = (self.tail + piece)[-_TAIL_BYTES:]
        if not self.begun:
            piece, self.begun = piece.removeprefix(BYTE_ORDER_MARK), bool(piece)
        *ended, rest = [*piece.splitlines(), *([b""] if piece[-1:] in (b"", b"\n", b"\r") else [])]
        if ended:
            self._extend(ended[0])
            self.end()
            self.count += sum(1 for line in ended[1:] if line.strip(BLANK))
            self.longest = max(self.longest, max(map(len, ended[1:]), default=0))
            if self.form and not self.is_irregular:
                self._look(piece[len(ended[0]) :])
        self._extend(rest)

    def _extend(self, part: bytes) -> None:
        self.beginning += part[: LONGEST - len(self.beginning)]
        self.length += len(part)
        self.blank = self.blank and not part.strip(BLANK)

    def _look(self, text: bytes) -> None:
        """Look for quotes that do not follow RFC 4180, and for repeated headers."""
        assert self.form
        odd_quote = _ODD_QUOTE.format(re.escape(self.form.delimiter)).encode()
        self.is_irregular |= all(name in text for name in self.names) or bool(
            re.search(odd_quote, text.replace(b'""', b""))
        )

    def _decode(self, piece: bytes) -> None:
        try:
            if self.utf8:
                self.decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            self.utf8 = False
            self.invalid = piece[max(0, error.start - _AROUND) : error.start + _AROUND]

    def end(self) -> None:
        """End the unfinished line."""
        line = bytes(self.beginning)
        if self.form and self.first:
            self._look(line + b"\n")
        elif self.form and self.length < _LONGEST_HEADER:
            names = self.form.names(line.decode(errors="replace"))
            self.names = sorted((name.encode() for name in names), key=len, reverse=True)
            self.is_irregular |= self.blank or any(map(NAMELESS.fullmatch, names))
        self.first = self.first or (b"" if self.blank else line)
        self.count += not self.blank
        self.longest = max(self.longest, self.length)
        self.beginning = bytearray()
        self.length = 0
        self.blank = True

    def is_cut_off(self, form: JsonLines | Csv) -> bool:
        """Tell whether a file that ends here ends within a line, or within a quoted value.

        A line that is too long to be kept must end with a line feed.
        """
        if isinstance(form, Csv) and form.multiline and self.quotes % 2:
            return True
        if self.blank or self.length > LONGEST:
            return not self.blank
        header = self.first.decode(errors="replace")
        return not form.is_whole(bytes(self.beginning), header)
