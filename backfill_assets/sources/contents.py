"""What reading a file once, in pieces, shows of it: enough to judge it before Spark reads it."""

import codecs
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.sources.packed import PIECE, unpacked

# Of a line that its file does not end, this much is kept to see whether it is whole.
KEPT = 16 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b" \t"


@dataclass(frozen=True)
class FileContents:
    """A file's size and a hash of its bytes; unpacked, its lines that are not blank, the bytes of its longest line, and whether
    all of it is UTF-8.

    `fault` says why it cannot be read, or not to its end; it is empty where it can. `stamp` is its size and times. `header`
    names its columns, where it does: then it is none of the `lines`. Of Parquet files, `lines` counts rows.
    """

    size: int = 0
    content: str = ""
    lines: int = 0
    longest_line: int = 0
    utf8: bool = True
    fault: str = ""
    stamp: str = ""
    header: str = ""


@dataclass
class Lines:
    """Counts lines, given in pieces, as Spark splits them: at a line feed, a carriage return, or both."""

    count: int = 0
    longest: int = 0
    begun: bool = False
    # The line that has not ended yet: its beginning, its length so far, and whether it is blank so far.
    beginning: bytearray = field(default_factory=bytearray)
    length: int = 0
    blank: bool = True
    utf8: bool = True
    decoder: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))
    first: bytes = b""

    def add(self, piece: bytes) -> None:
        self._decode(piece)
        if not self.begun:
            piece, self.begun = piece.removeprefix(BYTE_ORDER_MARK), bool(piece)
        *ended, rest = [*piece.splitlines(), *([b""] if piece[-1:] in (b"", b"\n", b"\r") else [])]
        if ended:
            self._extend(ended[0])
            self.end()
            self.count += sum(1 for line in ended[1:] if line.strip(BLANK))
            self.longest = max(self.longest, max(map(len, ended[1:]), default=0))
        self._extend(rest)

    def _extend(self, part: bytes) -> None:
        self.beginning += part[: KEPT - len(self.beginning)]
        self.length += len(part)
        self.blank = self.blank and not part.strip(BLANK)

    def _decode(self, piece: bytes) -> None:
        try:
            if self.utf8:
                self.decoder.decode(piece, final=not piece)
        except UnicodeDecodeError:
            self.utf8 = False

    def end(self) -> None:
        """The line that has not ended yet ends here."""
        self.first = self.first or (b"" if self.blank else bytes(self.beginning))
        self.count += not self.blank
        self.longest = max(self.longest, self.length)
        self.beginning, self.length, self.blank = bytearray(), 0, True

    def cut_off(self, is_whole: "IsWhole", header: str) -> bool:
        """Whether the file, if it ends here, ends within a line. A line too long to be kept needs a line feed at its end."""
        if self.blank or self.length > KEPT:
            return not self.blank
        return not is_whole(bytes(self.beginning), header)


# Whether a file's last line, which no line feed ends, is whole, given the file's header.
IsWhole = Callable[[bytes, str], bool]


def is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode(errors="replace"), parse_int=str)
    except (ValueError, RecursionError):
        return False
    return True


def read_contents(path: Path, is_whole: IsWhole = lambda line, _: is_json(line), *, has_header: bool = False) -> FileContents:
    """Read a file of text to its end. Memory stays small, however long its lines. Raises OSError."""
    digest, lines, sizes = hashlib.blake2b(), Lines(), list[int]()

    def pieces() -> Iterator[bytes]:
        while piece := file.read(PIECE):
            digest.update(piece)
            sizes.append(len(piece))
            yield piece

    with path.open("rb") as file:
        packed, fault = pieces(), ""
        try:
            for piece in unpacked(path.suffix, packed):
                lines.add(piece)
        except (EOFError, zlib.error) as error:
            fault = f"cannot be read to its end ({error})"
            for _ in packed:  # the rest, for the hash
                pass
    header = lines.first.decode(errors="replace") if has_header else ""
    fault = fault or ("is cut off" if lines.cut_off(is_whole, header) else "")
    lines.end()
    lines.add(b"")
    header, count = lines.first.decode(errors="replace") if has_header else "", lines.count - (has_header and lines.count > 0)
    content = digest.hexdigest()[:32]
    return FileContents(sum(sizes), content, count, lines.longest, lines.utf8, fault, header=header)


def read_parquet(path: Path) -> FileContents:
    """The rows of a Parquet file, and its columns with their types as JSON. Raises OSError."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, hashlib.blake2b)
    contents = FileContents(path.stat().st_size, digest.hexdigest()[:32])
    try:
        schema, rows = pq.read_schema(path), pq.read_metadata(path).num_rows
    except pa.ArrowException as error:
        return replace(contents, fault=f"cannot be read ({str(error).partition('.')[0]})")
    return replace(contents, lines=rows, header=json.dumps([[field.name, str(field.type)] for field in schema]))
