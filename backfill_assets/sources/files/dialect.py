"""The canonical form of a text file: UTF-8, and plain CSV with one header, or JSON lines.

Plain CSV follows RFC 4180.

A file in another dialect is turned into this form row by row, so that all other code knows only one
form. Rows that are left out are counted.
"""

import codecs
import csv
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader, TextIOWrapper
from itertools import chain, islice
from typing import Annotated, Any

from pydantic import AfterValidator

from backfill_assets.sources.files.packing import PIECE, PiecesReader

# The longest line or value in a dialect, in characters, and the number of bytes that are kept from
# the beginning of a file or a line.
LONGEST = 16 * 2**20
HEAD_BYTES = 64 * 2**10
LINE_ENDS = ("\n", "\r")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b" \t"
BLANK_TEXT = " \t\r\n"
CUT_OFF = "is cut off"
REPEATED = "lines left out that are the header again"
OPEN_QUOTES = "lines that end within a quoted value"
BAD_QUOTES = "rows with text around their quotes"
ESCAPED_QUOTES = 'rows with \\" in a value, which Csv(escape="\\\\") would read'
_EXAMPLE_LENGTH = 80
_LINES_WITH_NAMES = 20
_ROWS_AT_ONCE = 1000
# The order in which encodings are named.
_ENCODINGS = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp932", "gb18030", "cp949")
_NOT_BLANK = re.compile(r"[^ \t\r\n]")
_VALUES = json.JSONDecoder(parse_int=str, parse_float=str)
_TOO_LONG = f"has a line or a value of more than {LONGEST} characters"


@dataclass
class Found:
    """The findings while a file is turned into its canonical form.

    `fault` and `cut` as in `FileContents`. `head` has the first bytes of the unpacked file, and
    `unpacked` its hash. `counts` and `examples` are about rows that are left out or malformed. If
    the canonical form differs from the file, it `has_changed`.
    """

    fault: str = ""
    cut: str = ""
    head: bytes = b""
    unpacked: Any = field(default_factory=hashlib.blake2b)
    has_changed: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def count(self, what: str, text: str, number: int = 1) -> None:
        self.counts[what] += number
        self.examples.setdefault(what, text.strip(f"{BLANK_TEXT}\ufeff")[:_EXAMPLE_LENGTH])

    @property
    def notes(self) -> list[str]:
        """A sentence for each count, with its first example."""
        return [f"{what}: {n:,} ({self.examples[what]!r})" for what, n in self.counts.items()]

    def until_cut(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces of an unpacked file as far as it can be unpacked."""
        try:
            for piece in pieces:
                self.head += piece[: HEAD_BYTES - len(self.head)]
                self.unpacked.update(piece)
                yield piece
        except EOFError as error:
            self.cut = f"cannot be read to its end ({error})"
        except zlib.error as error:
            self.fault = f"cannot be read to its end ({error})"

    def encoded(self, texts: Iterator[str]) -> Iterator[bytes]:
        """Yield the texts in UTF-8. An invalid byte stays, so its row is malformed."""
        whole = self._until_error(texts)
        while batch := "".join(islice(whole, _ROWS_AT_ONCE)):
            try:
                yield batch.encode(errors="surrogateescape")
            except UnicodeEncodeError as error:
                self.fault = f"is not text ({error.reason})"

    def _until_error(self, texts: Iterator[str]) -> Iterator[str]:
        try:
            yield from texts
        except EOFError:
            self.cut = "is cut off, or is not JSON from some row on"
        except UnicodeError as error:
            self.fault = f"is not text in the declared encoding ({error})"
        except ValueError as error:
            self.fault = str(error)


def is_utf_8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"


def _of_text(encoding: str) -> str:
    try:
        "a".encode(encoding)
    except (LookupError, UnicodeError):
        raise ValueError("it is not an encoding of Python, such as 'cp1252'") from None
    return encoding


Encoding = Annotated[str, AfterValidator(_of_text)]


def likely_encodings(sample: bytes) -> list[str]:
    """Return the likely encodings of a sample of text. Only a guess."""
    from charset_normalizer import from_bytes

    matches = list(from_bytes(sample, cp_isolation=[*_ENCODINGS]))
    best = [match for match in matches if match.chaos == matches[0].chaos]
    likely = {name for match in best for name in match.could_be_from_charset}
    return [name for name in _ENCODINGS if name in likely]


def decoded(pieces: Iterator[bytes], encoding: str) -> TextIOWrapper:
    """Return the text of a file.

    An invalid byte becomes a surrogate, as in `os.fsdecode`. Reading raises UnicodeError if that is
    not possible.
    """
    # An empty piece would end the text.
    binary = BufferedReader(PiecesReader(filter(None, pieces)), PIECE)
    return TextIOWrapper(binary, encoding, "surrogateescape", newline="")


def lines_of(text: TextIOWrapper) -> Iterator[str]:
    """Yield the lines with their ends, without a byte order mark before the first.

    Raises ValueError for a line that is too long.
    """
    mark = "\ufeff"
    while line := text.readline(LONGEST):
        if len(line) == LONGEST:
            raise ValueError(_TOO_LONG)
        yield line.removeprefix(mark)
        mark = ""


Record = tuple[str, list[str], str]


def csv_records(lines: Iterator[str], *, multiline: bool, **options: Any) -> Iterator[Record]:
    """Yield the text of each row, its values, and its fault: "" or a count of `Found`."""
    csv.field_size_limit(LONGEST)
    texts = list[str]()

    def more() -> Iterator[str]:
        for line in lines:
            texts.append(line)
            yield line

    special = {options["quotechar"], options["escapechar"]} - {None}
    for line in lines:
        if not any(mark in line for mark in special):  # most rows, and faster
            yield line, line.rstrip("\r\n").split(options["delimiter"]), ""
            continue
        texts[:] = [line]
        of_row = chain([line], more() if multiline else ())
        values = list[str]()
        why = ""
        try:
            values = next(csv.reader(of_row, strict=True, **options))
        except csv.Error as error:
            why = OPEN_QUOTES if "end of data" in str(error) else BAD_QUOTES
        # An escaped line end would also be within a value.
        if not multiline and values and values[-1].endswith(LINE_ENDS):
            why = OPEN_QUOTES
        text = "".join(texts)
        yield text, values, ESCAPED_QUOTES if why == BAD_QUOTES and '\\"' in text else why


class _Echo:
    def write(self, text: str) -> str:
        return text


def row_writer(delimiter: str) -> Any:
    """Return a writer whose `writerow` returns the row, in RFC 4180 and with a line end."""
    return csv.writer(_Echo(), delimiter=delimiter)


@dataclass
class JsonText:
    """A text in JSON, read value by value. Memory holds one value at a time.

    Methods raise EOFError where the text ends too early, or is not JSON.
    """

    text: TextIOWrapper
    buffer: str = ""
    at: int = 0

    def rows(self, path: Sequence[str]) -> Iterator[str]:
        """Yield each value of the array at `path` as a line, with digits as they are written.

        Raises ValueError if there is no array, or something after it.
        """
        for name in path:
            self._enter(name)
        if self._next() != "[":
            raise ValueError(f"has no array of rows {'.'.join(path)}".rstrip())
        end = self._next(after=1)
        while end != "]":
            # In JSON, line ends are never within a value.
            yield re.sub("[\r\n]", " ", self._value()) + "\n"
            end = self._next()
            if end not in (",", "]"):
                raise EOFError
            if end == ",":
                self._next(after=1)
        self.at += 1
        for _ in path:
            while self._next() == ",":
                self._name()
                self._value()
            if self._next() != "}":
                raise EOFError
            self.at += 1
        if self._next():
            raise ValueError("continues after the end of its JSON")

    def _enter(self, name: str) -> None:
        """Go to the value of a name in the object that follows."""
        names = list[str]()
        while self._next() in ("{", ","):
            names.append(self._name())
            if names[-1] == name:
                return
            self._value()
        raise ValueError(f"has no {name!r} on the way to its rows, only {', '.join(names)}")

    def _name(self) -> str:
        """Return the next name of an object, and go to its value."""
        self._next(after=1)
        name = json.loads(self._value())
        self._next()
        self._next(after=1)
        return str(name)

    def _next(self, after: int = 0) -> str:
        """Go to the next character that is not blank, and return it; "" at the end."""
        self.at += after
        while not (found := _NOT_BLANK.search(self.buffer, self.at)) and self._more():
            pass
        self.at = found.start() if found else len(self.buffer)
        return found[0] if found else ""

    def _value(self) -> str:
        while True:
            try:
                _, end = _VALUES.raw_decode(self.buffer, self.at)
            except (ValueError, RecursionError):
                end = len(self.buffer)
            if end < len(self.buffer):  # otherwise the value may continue
                value = self.buffer[self.at : end]
                self.at = end
                return value
            if not self._more():
                raise EOFError

    def _more(self) -> bool:
        """Read more of the text, as much as is available. False at its end."""
        rest = self.buffer[self.at :]
        if len(rest) > LONGEST:
            raise ValueError(_TOO_LONG)
        piece = self.text.read(max(PIECE, len(rest)))
        self.buffer = rest + piece
        self.at = 0
        return bool(piece)


def is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode(errors="replace"), parse_int=str)
    except (ValueError, RecursionError):
        return False
    return True


def names_of_objects(head: bytes) -> str:
    """Return the names in the first lines of a file of JSON objects, as JSON.

    "" means that the file has no line, or that the first line is longer than `head`.
    """
    text = head.removeprefix(BYTE_ORDER_MARK)
    whole = len(head) < HEAD_BYTES
    lines = [line for line in text.splitlines()[: None if whole else -1] if line.strip(BLANK)][
        :_LINES_WITH_NAMES
    ]
    objects = [
        json.loads(line.decode(errors="replace"), parse_int=str) for line in lines if is_json(line)
    ]
    names = dict.fromkeys(name for row in objects if isinstance(row, dict) for name in row)
    return json.dumps(list(names)) if lines else ""
