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
    """The rows of these days of the table in `folder` at `version` (-1: no table, and no columns),
    by its day's `column`.

    Only the files of these days are read. Of `columns` (None: all), those are left out that the
    version does not have. Raises TableUnreadable if the version is not there any more.
    """
    table = open_table(folder, version) if version >= 0 else None
    wanted = sorted(set(days))
    if table is None:
        return pa.table({})
    schema = pa.schema(table.schema().to_arrow())
    known = [name for name in columns or schema.names if name in schema.names]
    if not wanted:
        return pa.schema([schema.field(name) for name in known]).empty_table()
    dataset = table.to_pyarrow_dataset(
        file_pruning_predicate=[(column, "in", [str(day) for day in wanted])]
    )
    return dataset.to_table(columns=known)


@dataclass(frozen=True)
class Slice:
    """The `days` of `table`, which are partitions by its column `column`, as they stood at
    `version` (-1: no table).
    """

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
    """One parquet file of one day. `path` is relative to its table's folder, and the same in every
    table it is copied to.

    `lowest` and `highest` are the bounds of some columns, as JSON values; `rows` is None where
    nobody counted.
    """

    path: str
    day: date
    size: int
    rows: int | None
    modified_ms: int
    nulls: Mapping[str, int] = field(default_factory=dict)
    lowest: Mapping[str, Any] = field(default_factory=dict)
    highest: Mapping[str, Any] = field(default_factory=dict)


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
        nulls=_known(entry.get("null_count")),
        lowest=_as_json(entry.get("min")),
        highest=_as_json(entry.get("max")),
    )


def _as_json(bounds: Mapping[str, Any] | None) -> dict[str, Any]:
    # Times are left out: Delta keeps them to the millisecond, and a bound that is rounded the wrong
    # way hides rows.
    return {
        name: str(v) if type(v) is date else v
        for name, v in _known(bounds).items()
        if type(v) in (int, str, date)
    }


def _known(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        name: value
        for name, value in (values or {}).items()
        if value is not None and not isinstance(value, dict)
    }


def condition(column: str, days: Iterable[date]) -> str:
    """The rows of exactly these days; no days, no rows.

    Half-open ranges, because Delta's replaceWhere fails on BETWEEN with this Spark, and long IN
    lists plan slowly.
    """
    ranges = [
        f"({column} >= DATE'{island[0]}' AND {column} < DATE'{island[-1] + timedelta(days=1)}')"
        for island in consecutive(days)
    ]
    return " OR ".join(ranges) or "false"
