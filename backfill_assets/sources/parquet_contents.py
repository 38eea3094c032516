"""What a Parquet file shows of itself."""

import hashlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.named import named
from backfill_assets.sources.contents import FileContents


def read_parquet(path: Path) -> FileContents:
    """The rows of a Parquet file, and its columns with their types as JSON. Raises OSError."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, hashlib.blake2b)
    contents = FileContents(path.stat().st_size, digest.hexdigest()[:32])
    try:
        schema, rows = pq.read_schema(path), pq.read_metadata(path).num_rows
    except pa.ArrowException as error:
        return replace(contents, fault=f"cannot be read ({str(error).partition('.')[0]})")
    names = Counter(field.name.lower() for field in schema)
    if alike := [field.name for field in schema if names[field.name.lower()] > 1]:
        return replace(contents, fault=f"has the columns {named(alike)}, which Spark takes for one")
    return replace(contents, lines=rows, header=json.dumps([[field.name, str(field.type)] for field in schema]))
