"""The data files of a Delta table by the day of their partition, as its log lists them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from backfill_assets.lake.deletion_vectors import NONE_DELETED, with_deletion_vectors


class Listed(NamedTuple):
    """A data file of a day: its path, its size in bytes, its rows, and a hash of which of all it holds were deleted, if any."""

    path: str
    size: int
    rows: int
    deleted: str

    def __str__(self) -> str:
        return f"{self.path} {self.size}{self.deleted and f' {self.deleted}'}"


def listed(table: DeltaTable, by: str) -> Mapping[date, Sequence[Listed]]:
    """The files of each day."""
    added, deleted = pa.table(table.get_add_actions(flatten=True)), with_deletion_vectors(table)
    names = ("path", "size_bytes", "num_records", f"partition.{by}")
    files: dict[date, list[Listed]] = {}
    for path, size, rows, value in zip(*(added[name].to_pylist() for name in names), strict=True):
        if day := _day(value):
            gone = deleted.get(unquote(path), NONE_DELETED)
            files.setdefault(day, []).append(Listed(path, size, (rows or 0) - gone.rows, gone.hash))
    return {day: sorted(of_day) for day, of_day in files.items()}


def of_no_day(table: DeltaTable, by: str) -> list[str]:
    """The values of partitions that are of no day."""
    values = pa.table(table.get_add_actions(flatten=True))[f"partition.{by}"].unique().to_pylist()
    return sorted(str(value) for value in values if not _day(value))


def _day(value: Any) -> date | None:
    """The day that a partition is of: only texts as YYYY-MM-DD are days."""
    with suppress(ValueError):
        day = date.fromisoformat(str(value))
        return day if str(day) == str(value) else None
    return None
