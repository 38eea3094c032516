"""Deletion vectors of Delta tables: rows that are deleted while their files stay as they are. This project writes none."""

import hashlib
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from backfill_assets.errors import ServiceUnavailable, TableUnreadable
from backfill_assets.lake.delta_table import one_line


class Deleted(NamedTuple):
    """Rows of a file that were deleted without writing it anew: how many, and a hash of which."""

    rows: int = 0
    hash: str = ""


NONE_DELETED = Deleted()


def with_deletion_vectors(table: DeltaTable) -> dict[str, Deleted]:
    """The files of which rows were deleted without writing them anew, by their paths below the table, decoded.

    Raises TableUnreadable or ServiceUnavailable if a deletion vector cannot be read.
    """
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    root = unquote(table.table_uri).rstrip("/")
    deleted: dict[str, Deleted] = {}
    try:
        vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors())
    except DeltaError as error:
        raise TableUnreadable(f"The deletion vectors of the Delta table {root} cannot be read: {one_line(error)}.") from None
    except OSError as error:
        raise ServiceUnavailable(f"The deletion vectors of {root} cannot be read: {one_line(error)}.") from None
    for batch in vectors:
        for uri, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            digest = hashlib.sha256(kept.values.to_numpy(zero_copy_only=False).tobytes()).hexdigest()
            deleted[unquote(uri).partition(root)[2].lstrip("/")] = Deleted(kept.values.false_count, digest[:32])
    return deleted
