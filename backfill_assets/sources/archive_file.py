"""The bytes of an archive as they are read, once: how many, their hash, the lines in them, and the names of their columns."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backfill_assets.errors import SourceError
from backfill_assets.sources.archive import Archive
from backfill_assets.sources.contents import BLANK, BYTE_ORDER_MARK
from backfill_assets.sources.fields import header_of
from backfill_assets.sources.packed import PIECE, unpacked


@dataclass
class ArchiveFile:
    """An archive at `path` that is read, and what has been read of it so far. `name`: of the archive, for messages.

    `names`: the columns of its header; of JSON lines those that any has, None if they are too many for columns. `is_cut`: it
    ends within a line.
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
        """The hash of what was read, once that is all, unpacked: an archive and its packed copy hold the same rows."""
        return str(self.digest.hexdigest()[:32])

    def unpacked(self) -> Iterator[bytes]:
        """What it holds, in pieces."""
        for piece in unpacked(self.path.suffix, self._pieces()):
            self.digest.update(piece)
            yield piece

    def _pieces(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while piece := file.read(PIECE):
                self.bytes_read += len(piece)
                yield piece

    def texts(self) -> Iterator[tuple[str, bool]]:
        """The lines, and whether they are UTF-8; where one is not, U+FFFD stands for what cannot be read."""
        for lines in self._lines():
            for line in lines:
                try:
                    yield line.decode(), True
                except UnicodeDecodeError:
                    yield line.decode(errors="replace"), False

    def _lines(self) -> Iterator[list[bytes]]:
        """The lines, as Spark splits them: at a line feed, a carriage return, or both; without blank ones. Many at once."""
        rest, begun, first = b"", False, b""
        for piece in self.unpacked():
            data = rest + (piece if begun else piece.removeprefix(BYTE_ORDER_MARK))
            begun = begun or bool(piece)
            # A carriage return at the end may have its line feed in the next piece.
            end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
            rest = data[end:]
            self._refuse_too_long([rest])
            lines = self._not_blank(data[:end])
            first = first or next(iter(lines), b"")
            yield lines
        if rest.strip(BLANK) and not rest.endswith(b"\r"):
            self.is_cut = not self.archive.format.is_whole(rest, (first or rest).decode(errors="replace"))
        yield self._not_blank(rest)

    def _not_blank(self, data: bytes) -> list[bytes]:
        lines = data.splitlines()
        self._refuse_too_long(lines)
        return [line for line in lines if line.strip(BLANK)]

    def _refuse_too_long(self, lines: Sequence[bytes]) -> None:
        longest, most = max(map(len, lines), default=0), self.max_line_bytes
        if longest > most:
            raise SourceError(f"{self.name} has a line of {longest} bytes, more than BACKFILL_MAX_LINE_BYTES={most}")

    def place_in(self, names: Sequence[str]) -> int:
        """The place of the column of the day in a header of these names."""
        self.names, column = names, self.archive.day
        if repeated := header_of(names, ()).repeated:
            raise SourceError(f"{self.name} has more than one column {repeated[0]}")
        if column and column not in names:
            raise SourceError(f"{self.name} has no column {column}")
        return names.index(column) if column else 0
