"""The canonical form of a text file: UTF-8, and CSV as in RFC 4180 with one header, or JSON lines.

A file in another dialect is turned into this form row by row, so that everything else knows one
form only. What is left out on the way is counted.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader, RawIOBase, TextIOWrapper
from typing import Any

PIECE = 1 << 18
# The part of an unfinished line that is kept to see whether it is whole, and the longest value
# that is read in a dialect, in bytes or characters.
LONGEST = 16 * 2**20
HEAD_BYTES = 64 * 2**10
LINE_ENDS = "\r\n"
BLANK_TEXT = f" \t{LINE_ENDS}"
REPEATED = "lines left out that are the header again"
OPEN_QUOTES = "lines that end within a quoted value"
BAD_QUOTES = "rows with other text around their quotes"
_EXAMPLE_LENGTH = 80
_NOT_BLANK = re.compile(r"[ \t\r\n]*")
_VALUES = json.JSONDecoder(parse_int=str, parse_float=str)


@dataclass
class Found:
    """What turning a file into its canonical form found.

    `fault` and `cut` are those of `FileContents`, `head` the first bytes, unpacked. `counts` and
    `examples` are about rows that are left out or malformed. `has_changed` means that the canonical
    form differs from the file.
    """

    fault: str = ""
    cut: str = ""
    head: bytes = b""
    has_changed: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def count(self, what: str, text: str, number: int = 1) -> None:
        self.counts[what] += number
        self.examples.setdefault(what, text.strip(BLANK_TEXT)[:_EXAMPLE_LENGTH])

    @property
    def notes(self) -> list[str]:
        """A sentence for each count, with its first example."""
        return [f"{what}: {n:,} ({self.examples[what]!r})" for what, n in self.counts.items()]

    def until_cut(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces of an unpacked file as far as it can be unpacked."""
        try:
            for piece in pieces:
                self.head += piece[: HEAD_BYTES - len(self.head)]
                yield piece
        except EOFError as error:
            self.cut = f"cannot be read to its end ({error})"
        except zlib.error as error:
            self.fault = f"cannot be read to its end ({error})"

    def encoded(self, texts: Iterator[str], encoding: str) -> Iterator[bytes]:
        """Yield the texts in UTF-8. An invalid byte stays, so its row is malformed."""
        try:
            for text in texts:
                yield text.encode(errors="surrogateescape")
        except UnicodeError as error:
            self.fault = f"is not text in {encoding} ({error})"
        except ValueError as error:
            self.fault = str(error)


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


def is_utf_8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"


def refuse_encoding(about: str, encoding: str) -> None:
    """Raise ValueError for an encoding that Python does not have, or that is not of text."""
    try:
        b"".decode(encoding)
        codecs.getincrementaldecoder(encoding)
    except (LookupError, UnicodeError):
        raise ValueError(
            f"{about}: encoding={encoding!r} is not an encoding of Python, such as 'cp1252'"
        ) from None


def decoded(pieces: Iterator[bytes], encoding: str) -> TextIOWrapper:
    """Return the text of a file. A byte that is invalid becomes a surrogate, as in `os.fsdecode`.

    Reading raises UnicodeError if that is not possible.
    """
    # An empty piece would end the text.
    binary = BufferedReader(PiecesReader(filter(None, pieces)), PIECE)
    return TextIOWrapper(binary, encoding, "surrogateescape", newline="")


def lines_of(text: TextIOWrapper) -> Iterator[str]:
    """Yield the lines with their ends, without a byte order mark. Raises ValueError if too long."""
    mark = "\ufeff"
    while line := text.readline(LONGEST):
        if len(line) == LONGEST:
            raise ValueError(f"has a line of more than {LONGEST} characters")
        yield line.removeprefix(mark)
        mark = ""


Record = tuple[str, list[str] | None, str]


def records(lines: Iterator[str], *, multiline: bool, **options: Any) -> Iterator[Record]:
    """Yield the text of each row, its values, and why it has none: "" or a count of `Found`."""
    csv.field_size_limit(LONGEST)
    if multiline:
        texts = list[str]()
        reader = csv.reader(_noted(lines, texts), strict=True, **options)
        while (row := _row(reader)) is not None:
            yield "".join(texts), *row
            texts.clear()
    else:
        for line in lines:
            values, why = _row(csv.reader([line], strict=True, **options)) or ([], "")
            # After an escaped line end, the row goes on.
            is_open = bool(values and values[-1].endswith(("\n", "\r")))
            yield (line, None, OPEN_QUOTES) if is_open else (line, values, why)


def _noted(lines: Iterator[str], texts: list[str]) -> Iterator[str]:
    for line in lines:
        texts.append(line)
        yield line


def _row(reader: Iterator[list[str]]) -> tuple[list[str] | None, str] | None:
    try:
        row = next(reader, None)
    except csv.Error as error:
        return None, OPEN_QUOTES if "end of data" in str(error) else BAD_QUOTES
    return None if row is None else (row, "")


def written(delimiter: str) -> Callable[[Sequence[str]], str]:
    """Return a function that writes values as a row of RFC 4180, without a line end."""
    special = re.compile(f'["{LINE_ENDS}{re.escape(delimiter)}]').search

    def write(values: Sequence[str]) -> str:
        return delimiter.join(quoted(value) if special(value) else value for value in values)

    return write


def quoted(value: str) -> str:
    """Return the value in quotes."""
    return '"{}"'.format(value.replace('"', '""'))


@dataclass
class JsonText:
    """A text in JSON, read value by value. Only one value is in memory at a time.

    Methods raise ValueError where the text is not JSON.
    """

    text: TextIOWrapper
    found: Found
    buffer: str = ""
    at: int = 0
    has_ended: bool = False

    def rows(self, path: Sequence[str]) -> Iterator[str]:
        """Yield each value of the array at `path` as a line."""
        try:
            for name in path:
                self._enter(name)
            if self._next() != "[":
                raise ValueError(f"has no array of rows{' under ' if path else ''}{'.'.join(path)}")
            yield from self._values()
            last = ""
            while self._next():
                last = self.buffer.rstrip(BLANK_TEXT)[-1]
                self.at = len(self.buffer)
        except json.JSONDecodeError:
            self.found.cut = "is cut off, or is not JSON from some row on"
            return
        if last and not path:
            raise ValueError("continues after the end of its array")
        if path and last != "}":
            self.found.cut = "is cut off"

    def _values(self) -> Iterator[str]:
        """Yield the values of an array, with digits as they are written."""
        self.at += 1
        end = self._next()
        while end != "]":
            self._next()
            # In JSON, line ends are never within a value.
            yield re.sub(f"[{LINE_ENDS}]", " ", self._value()) + "\n"
            end = self._next()
            if end not in (",", "]"):
                raise json.JSONDecodeError("no comma", self.buffer, self.at)
            self.at += end == ","
        self.at += 1

    def _enter(self, name: str) -> None:
        """Go to the value of a name in the object that follows."""
        names = list[str]()
        while self._next() in ("{", ","):
            self.at += 1
            self._next()
            key = self._value()
            names.append(json.loads(key))
            self._next()
            self.at += 1
            self._next()
            if names[-1] == name:
                return
            self._value()
        raise ValueError(f"has no {name!r} on the way to its rows, only {', '.join(names)}")

    def _next(self) -> str:
        """Go to the next character that is not blank, and return it; "" at the end."""
        while True:
            blank = _NOT_BLANK.match(self.buffer, self.at)
            assert blank
            self.at = blank.end()
            if self.at < len(self.buffer) or not self._more():
                return self.buffer[self.at : self.at + 1]

    def _value(self) -> str:
        while True:
            try:
                _, end = _VALUES.raw_decode(self.buffer, self.at)
            except (ValueError, RecursionError):
                if not self._more():
                    raise json.JSONDecodeError("no value", self.buffer, self.at) from None
                if len(self.buffer) > 2 * LONGEST:
                    raise ValueError(f"has a value of more than {LONGEST} characters") from None
            else:
                # A number may go on.
                if end < len(self.buffer) or not self._more():
                    value = self.buffer[self.at : end]
                    self.at = end
                    return value

    def _more(self) -> bool:
        """Read more of the text, as much as there is already. False at its end."""
        rest = self.buffer[self.at :]
        piece = self.text.read(max(PIECE, len(rest)))
        self.buffer = rest + piece
        self.at = 0
        return bool(piece)
