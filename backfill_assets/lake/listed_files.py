"""The data files of each day in the log of a table, and hashes of their names. No Spark."""

from collections.abc import Iterable
from datetime import date
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from backfill_assets.digest import digest, hexdigest
from backfill_assets.grouping import grouped
from backfill_assets.lake.delta import deleted_rows_by_file


def differing_days(one: DeltaTable | None, other: DeltaTable | None) -> frozenset[date]:
    """The days whose files differ between two versions of a table (None: no table)."""
    sides = [_files(table) if table else _NO_FILES for table in (one, other)]
    days: set[date] = set()
    for files, others in zip(sides, sides[::-1], strict=True):
        # Most files of a long history are on both sides. These do not become Python values.
        is_common = pc.is_in(files["name"], value_set=others["name"].combine_chunks())
        days |= set(files["day"].filter(pc.invert(is_common)).to_pylist())
    return frozenset(days)


def day_files(
    table: DeltaTable, of_days: Iterable[date] | None = None
) -> list[tuple[date, str, int | None]]:
    """The day, name and number of rows of each file, or of the files of some days.

    A file with a deletion vector gets another name, and its number of rows is unknown.
    """
    files = _files(table)
    if of_days is not None:
        wanted = pa.array(sorted(set(of_days)), pa.date32())
        files = files.filter(pc.is_in(files["day"], value_set=wanted))
    return list(zip(*files.to_pydict().values(), strict=True))


def rows_by_day(table: DeltaTable, of_days: Iterable[date] | None = None) -> dict[date, int | None]:
    """The number of rows of each day that has files; None where a file has no count."""
    rows: dict[date, int | None] = {}
    for day, _, count in day_files(table, of_days):
        counted = rows.get(day, 0)
        rows[day] = None if counted is None or count is None else counted + count
    return rows


_NO_FILES = pa.table({"day": pa.array([], pa.date32()), "name": pa.array([], pa.string())})


def _files(table: DeltaTable) -> pa.Table:
    """The day, name and rows of each file with a day."""
    listed = pa.table(table.get_add_actions(flatten=True))
    column = "".join(f"partition.{name}" for name in table.metadata().partition_columns[:1])
    if not column or not pa.types.is_date(listed.schema.field(column).type):
        return _NO_FILES
    names = listed["path"]
    rows = pa.nulls(len(listed), pa.int64())
    if "num_records" in listed.column_names:
        rows = listed["num_records"]
    if deleted := deleted_rows_by_file(table):
        is_deleted = pa.array([unquote(name) in deleted for name in names.to_pylist()], pa.bool_())
        other_names = [f"{name} (rows deleted)" for name in names.to_pylist()]
        names = pc.if_else(is_deleted, pa.array(other_names), names.combine_chunks())
        rows = pc.if_else(is_deleted, None, rows)
    files = pa.table({"day": listed[column], "name": names, "rows": rows})
    return files.filter(pc.is_valid(files["day"]))


def data_files(table: DeltaTable, days: Iterable[date] | None = None) -> dict[date, str]:
    """A hash of the names of the data files, for each of these days (None: all) that has files."""
    return hash_by_day((day, name) for day, name, _ in day_files(table, days))


def hash_by_day(files: Iterable[tuple[date, str]]) -> dict[date, str]:
    """A hash of the names of the files of each day."""
    names_by_day = grouped(files)
    return {day: digest(*sorted(names), length=_HASH_LENGTH) for day, names in names_by_day.items()}


_HASH_LENGTH = 16
NO_HASHES = pa.table({"day": pa.array([], pa.date32()), "hash": pa.array([], pa.string())})


def hashes_by_day(table: DeltaTable) -> pa.Table:
    """`data_files` of all days of a table, as columns, for a long history."""
    files = _files(table).sort_by([("day", "ascending"), ("name", "ascending")])
    days = files["day"].to_numpy()
    first = np.flatnonzero(np.r_[True, days[1:] != days[:-1]][: len(days)])
    names = files["name"].cast(pa.binary()).combine_chunks()
    ends = pa.array([*first, len(names)], pa.int32())
    texts = pc.binary_join(pa.ListArray.from_arrays(ends, names), b"\n").to_pylist()
    hashes = pa.array([hexdigest(text, _HASH_LENGTH) for text in texts], pa.string())
    return pa.table({"day": files["day"].take(pa.array(first)), "hash": hashes})


def renamed_columns(table: DeltaTable) -> str:
    """Delta's mode of column mapping. "" if the columns have the same names in the files."""
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    return "" if mode == "none" else mode
