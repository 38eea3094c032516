"""What reading a file once, in pieces, shows of it: enough to judge it before Spark reads it."""

import codecs
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from backfill_assets.sources.packed import PIECE, unpacked

# Of a line that its file does not end, this much is kept to see whether it is whole.
KEPT = 16 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK = b" \t"
# What files begin with that are no text in UTF-8, whatever they are called.
NO_TEXT = {
    b"\xff\xfe": "is text in UTF-16; write it in UTF-8",
    b"\xfe\xff": "is text in UTF-16; write it in UTF-8",
    b"\x1f\x8b": "is packed with gzip, and its name does not end in .gz",
    b"\x28\xb5\x2f\xfd": "is packed with zstd, and its name does not end in .zst",
    b"PK\x03\x04": "is a ZIP archive or a workbook",
}
# Of a file, so much of its beginning is looked at by itself; and so many lines of JSON, for their names.
HEAD, LINES_NAMED = 64 * 2**10, 20


@dataclass(frozen=True)
class FileContents:
    """A file's size and a hash of its bytes; unpacked, its lines that are not blank, the bytes of its longest line, and whether
    all of it is UTF-8.

    `fault` says why it cannot be read, `cut` why not to its end; they are empty where it can. `stamp` is its size and times.
    `header` names its columns, where it does: then it is none of the `lines`; of JSON lines, it has the names in the first
    ones. Of Parquet files, `lines` counts rows.
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
    head: bytes = b""
    quotes: int = 0

    def add(self, piece: bytes) -> None:
        self._decode(piece)
        self.quotes += piece.count(b'"')
        self.head += piece[: HEAD - len(self.head)]
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


def names_in(head: bytes) -> str:
    """The names in the first lines of a file of JSON objects, as JSON; "" if it has no line, or not all of one is in `head`."""
    text, whole = head.removeprefix(BYTE_ORDER_MARK), len(head) < HEAD
    lines = [line for line in text.splitlines()[: None if whole else -1] if line.strip(BLANK)][:LINES_NAMED]
    objects = [json.loads(line.decode(errors="replace"), parse_int=str) for line in lines if is_json(line)]
    names = dict.fromkeys(name for each in objects if isinstance(each, dict) for name in each)
    return json.dumps(list(names)) if lines else ""


def read_contents(
    path: Path, is_whole: IsWhole = lambda line, _: is_json(line), *, has_header: bool = False, multiline: bool = False
) -> FileContents:
    """Read a file of text to its end: of JSON, or with a header, and then with values of several lines between double quotes,
    if it is `multiline`. Memory stays small, however long its lines. Raises OSError."""
    digest, lines, sizes = hashlib.blake2b(), Lines(), list[int]()

    def pieces() -> Iterator[bytes]:
        while piece := file.read(PIECE):
            digest.update(piece)
            sizes.append(len(piece))
            yield piece

    with path.open("rb") as file:
        packed, fault, cut = pieces(), "", ""
        try:
            for piece in unpacked(path.suffix, packed):
                lines.add(piece)
        except EOFError as error:
            cut = f"cannot be read to its end ({error})"
        except zlib.error as error:
            fault = f"cannot be read to its end ({error})"
        for _ in packed:  # the rest, for the hash
            pass
    header = lines.first.decode(errors="replace") if has_header else ""
    fault = next((what for mark, what in NO_TEXT.items() if lines.head.startswith(mark)), fault)
    is_cut = (multiline and lines.quotes % 2 == 1) or lines.cut_off(is_whole, header)
    cut = "" if fault else cut or ("is cut off" if is_cut else "")
    lines.end()
    lines.add(b"")
    header = lines.first.decode(errors="replace") if has_header else names_in(lines.head)
    count = lines.count - (has_header and lines.count > 0)
    content = digest.hexdigest()[:32]
    return FileContents(sum(sizes), content, count, lines.longest, lines.utf8, fault, "", header, cut)
