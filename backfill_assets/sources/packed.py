"""Unpacking files that are packed with gzip or zstd, in pieces, as Spark's reader does it.

Python's gzip passes over zeros behind the packed data, that reader fails on them.
"""

import zlib
from collections.abc import Iterable, Iterator
from io import RawIOBase

import pyarrow as pa

PIECE = 1 << 18
# Of a file that is cut off, the piece in which it ends is lost.
SMALL_PIECE = 1 << 14
GZIP = 16 + zlib.MAX_WBITS


def of_gzip(packed: Iterable[bytes]) -> Iterator[bytes]:
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


def unpacked(ending: str, packed: Iterator[bytes]) -> Iterator[bytes]:
    """What a file of that ending holds. Raises EOFError or zlib.error for one that is cut off or holds anything else."""
    if ending == ".gz":
        return of_gzip(packed)
    return _unpacked_zstd(packed) if ending == ".zst" else packed


class Pieces(RawIOBase):
    """Pieces as a file, for Arrow to read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._rest or next(self._pieces, b"")
        taken, self._rest = piece[: len(buffer)], piece[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def _unpacked_zstd(packed: Iterator[bytes]) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(Pieces(packed), mode="r"), "zstd") as stream:
        while piece := _read(stream):
            yield piece


def _read(stream: pa.CompressedInputStream) -> bytes:
    try:
        return bytes(stream.read(SMALL_PIECE))
    except OSError as error:
        raise (EOFError if "Truncated" in str(error) else zlib.error)(str(error)) from None
