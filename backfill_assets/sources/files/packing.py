"""Packed files, in pieces.

They are unpacked like in Spark, which fails on zeros after the packed data. Python's gzip ignores
these zeros.
"""

import zlib
from collections.abc import Iterable, Iterator
from io import RawIOBase

import pyarrow as pa

PIECE = 1 << 18
# The last piece of a truncated file is lost.
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
