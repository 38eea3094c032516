"""A slice: the days of one table at one version, and their data files. No Spark.

A day is a partition, so a slice is a list of whole files. Reading, publishing and restoring a slice
all work on that list.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from backfill_assets.calendar import consecutive
from backfill_assets.lake.delta import open_table


def rows_at(
    folder: str,
    version: int,
    column: str,
    days: Iterable[date],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The rows of these days of the table in `folder` at `version`, without Spark.

    `column` is the column of its day. Only the files of these days are read. `columns` (None: all)
    that the version lacks are left out. A table that does not exist (-1) has no columns. Raises
    TableUnreadable if the version is gone.
    """
    table = open_table(folder, version) if version >= 0 else None
    wanted = sorted(set(days))
    if table is None:
        return pa.table({})
    schema = pa.schema(table.schema().to_arrow())
    present = [name for name in columns or schema.names if name in schema.names]
    if not wanted:
        return pa.schema([schema.field(name) for name in present]).empty_table()
    dataset = table.to_pyarrow_dataset(
        file_pruning_predicate=[(column, "in", [str(day) for day in wanted])]
    )
    return dataset.to_table(columns=present)


@dataclass(frozen=True)
class Slice:
    """Days of a table at a version (-1: no table). `column` is the column of its day."""

    table: str
    column: str
    days: tuple[date, ...]
    version: int

    @property
    def condition(self) -> str:
        """The rows of the slice, as SQL."""
        return condition(self.column, self.days)


@dataclass(frozen=True)
class DataFile:
    """One parquet file of one day.

    `path` is relative to the folder of the table, and stays the same in copies. `lowest` and
    `highest` are bounds of some columns, as JSON values. `rows` is None if the file has no
    statistics.
    """

    path: str
    day: date
    size: int
    rows: int | None
    modified_ms: int
    nulls: Mapping[str, int] = field(default_factory=dict)
    lowest: Mapping[str, Any] = field(default_factory=dict)
    highest: Mapping[str, Any] = field(default_factory=dict)


def is_in_folder(path: str) -> bool:
    """True if a file of a table is in its folder. Other writers may add files outside it."""
    return "://" not in path and not path.startswith("/")


def files_of(table: DeltaTable, column: str, days: Iterable[date]) -> list[DataFile]:
    """The files that hold `days`, at the version at which `table` was opened."""
    files = pa.table(table.get_add_actions(flatten=False))
    wanted = pa.array(sorted(set(days)), pa.date32())
    files = files.filter(pc.is_in(pc.struct_field(files["partition"], column), value_set=wanted))
    return [_data_file(entry, column) for entry in files.to_pylist()]


def _data_file(entry: Mapping[str, Any], column: str) -> DataFile:
    return DataFile(
        path=entry["path"],
        day=entry["partition"][column],
        size=entry["size_bytes"],
        rows=entry.get("num_records"),
        modified_ms=entry["modification_time"],
        nulls=_flat(entry.get("null_count")),
        lowest=_as_json(entry.get("min")),
        highest=_as_json(entry.get("max")),
    )


def _as_json(bounds: Mapping[str, Any] | None) -> dict[str, Any]:
    # Times are left out. Delta cuts them to milliseconds, and a bound that is rounded the wrong way
    # hides rows.
    return {
        name: str(value) if type(value) is date else value
        for name, value in _flat(bounds).items()
        if type(value) in (int, str, date)
    }


def _flat(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """The known values of columns that are not nested."""
    return {
        name: value
        for name, value in (values or {}).items()
        if value is not None and not isinstance(value, dict)
    }


def condition(column: str, days: Iterable[date]) -> str:
    """The rows of exactly these days, as SQL.

    Ranges are half open, because Spark plans long IN lists slowly.
    """
    ranges = [
        f"({column} >= DATE'{island[0]}' AND {column} < DATE'{island[-1] + timedelta(days=1)}')"
        for island in consecutive(days)
    ]
    return " OR ".join(ranges) or "false"
