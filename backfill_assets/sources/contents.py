"""What reading a file once, in pieces, shows of it: enough to judge it before Spark reads it.

A compressed file is unpacked as Spark's reader does it. Python's gzip passes over zeros behind the packed data, that reader
fails on them.
"""

import codecs
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PIECE = 1 << 18
# Of a line that its file does not end, this much is kept to see whether it is whole.
KEPT = 16 * 2**20
GZIP = 16 + zlib.MAX_WBITS
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b" \t"


@dataclass(frozen=True)
class FileContents:
    """A file's size and a hash of its bytes; unpacked, its lines that are not blank, the bytes of its longest line, and whether
    all of it is UTF-8.

    `fault` says why it cannot be read, or not to its end; it is empty where it can. `stamp` is its size and times.
    """

    size: int = 0
    content: str = ""
    lines: int = 0
    longest_line: int = 0
    utf8: bool = True
    fault: str = ""
    stamp: str = ""


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
        self.count += not self.blank
        self.longest = max(self.longest, self.length)
        self.beginning, self.length, self.blank = bytearray(), 0, True

    def cut_off(self) -> bool:
        """Whether the file, if it ends here, ends within a line. A line too long to be kept needs a line feed at its end."""
        if self.blank or self.length > KEPT:
            return not self.blank
        try:
            json.loads(self.beginning.decode(errors="replace"), parse_int=str)
        except (ValueError, RecursionError):
            return True
        return False


def read_contents(path: Path) -> FileContents:
    """Read a file to its end. Memory stays small, however long its lines. Raises OSError."""
    digest, lines, sizes = hashlib.blake2b(), Lines(), list[int]()

    def pieces() -> Iterator[bytes]:
        while piece := file.read(PIECE):
            digest.update(piece)
            sizes.append(len(piece))
            yield piece

    with path.open("rb") as file:
        packed, fault = pieces(), ""
        try:
            for piece in unpacked(packed) if path.name.endswith(".gz") else packed:
                lines.add(piece)
        except (EOFError, zlib.error) as error:
            fault = f"cannot be read to its end ({error})"
            for _ in packed:  # the rest, for the hash
                pass
    fault = fault or ("is cut off" if lines.cut_off() else "")
    lines.end()
    lines.add(b"")
    return FileContents(sum(sizes), digest.hexdigest()[:32], lines.count, lines.longest, lines.utf8, fault)


def unpacked(packed: Iterable[bytes]) -> Iterator[bytes]:
    """What gzip members, one behind the other, hold, in pieces. Raises EOFError or zlib.error where anything else follows."""
    member = None
    for piece in packed:
        while piece:
            if member is None or member.eof:
                member = zlib.decompressobj(wbits=GZIP)
            yield member.decompress(piece, PIECE)
            piece = member.unused_data if member.eof else member.unconsumed_tail
    if member is not None and not member.eof:
        yield member.flush()
        if not member.eof:
            raise EOFError("Compressed file ended before the end-of-stream marker was reached")
