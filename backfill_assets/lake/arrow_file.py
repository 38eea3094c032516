"""Rows and facts about them in one file of Arrow, for what is derived and may be made again.

Arrow does not check what it reads, and a wrong offset ends the process. So a checksum does.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

_ABOUT = "about"
_CHECKSUM_BYTES = 4


class ArrowFile(NamedTuple):
    """The rows of a file, and what JSON can say `about` them."""

    rows: pa.Table
    about: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        sink = pa.BufferOutputStream()
        table = self.rows.replace_schema_metadata({_ABOUT: json.dumps(self.about)})
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        written = bytes(sink.getvalue())
        return written + _checksum(written)

    @classmethod
    def from_bytes(cls, contents: bytes) -> "ArrowFile | None":
        """None for anything else than `to_bytes` gave."""
        buffer = pa.py_buffer(contents)
        written = buffer.slice(0, max(0, buffer.size - _CHECKSUM_BYTES))
        if _checksum(written) != contents[written.size :]:
            return None
        try:
            rows = pa.ipc.open_file(written).read_all()
            about = json.loads((rows.schema.metadata or {}).get(_ABOUT.encode(), b"{}"))
        except (pa.ArrowException, OSError, ValueError):
            return None
        return cls(rows.replace_schema_metadata(None), about)


def _checksum(written: bytes | pa.Buffer) -> bytes:
    return crc32(written).to_bytes(_CHECKSUM_BYTES)
