"""The days of the rows in each file of a Delta table, and their number. No Spark.

The log is enough if it has the day as a partition value, or as both the smallest and the largest
day of a file. Otherwise the file is read: its footer for the number of rows, or the columns of the
day. A file of a Delta table never changes, so it is read once. The counts are saved for the next
process.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import ParquetFileFormat

from backfill_assets.calendar import UTC
from backfill_assets.errors import ServiceUnavailable, SourceError, first_line
from backfill_assets.grouping import grouped
from backfill_assets.lake.delta import (
    NO_DELETED_ROWS,
    CachedTable,
    DeletedRows,
    deleted_rows_by_file,
)
from backfill_assets.lake.listed_files import renamed_columns
from backfill_assets.lake.storage import at_once, files_in, make_cache, write_whole

_PARQUET = ParquetFileFormat(coerce_int96_timestamp_unit="us")
_TYPE = "SELECT typeof(any_value({})) FROM rows"
_LISTED = "SELECT path, size_bytes, modification_time, num_records, {} FROM rows"
# The remaining rows of each day, and a hash of the positions of the deleted rows, unless it is
# given. No column of a Delta table has a name with a blank.
_COUNTED = """
    SELECT coalesce(CAST({} AS VARCHAR), 'None'), count(*) FILTER ("is kept"),
        coalesce(?, md5(string_agg("row no", ' ' ORDER BY "row no") FILTER (NOT "is kept")), '')
    FROM rows GROUP BY 1
"""


def columns_pattern(columns: Iterable[str], quote: str) -> str:
    """A pattern for the names of columns in an expression, in any case.

    Names of functions do not match.
    """
    names = "|".join(map(re.escape, columns)) or "(?!)"
    return rf"(?i){quote}?(?<!\w)({names})(?!\w|\s*\(){quote}?"


@cache
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """The database of a process. Opening one takes 30 ms; a forked process has no threads of it."""
    return duckdb.connect()


class RowsInFile(NamedTuple):
    """The rows of a day in a data file: how many remain, and a hash of the `deleted` ones."""

    path: str
    size: int
    rows: int
    deleted: str

    def __str__(self) -> str:
        return f"{self.path} {self.size}{self.deleted and f' {self.deleted}'}"


# By day, the number of remaining rows, and a hash of the deleted rows.
_Counts = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class _File:
    """A file at position `at` in the log, with the day and the number of all its rows.

    Day and number are None if the log does not have them.
    """

    at: int
    deleted: DeletedRows
    path: str
    size: int
    modified: int
    rows: int | None
    day: str | None

    @property
    def key(self) -> str:
        return f"{self.path} {self.size} {self.modified} {self.deleted.hash}"


@dataclass(frozen=True)
class DaysOfFiles:
    """The days of the rows of the `table` at `place`.

    `day` is an expression in DuckDB's SQL. Sorted by `ordered_by`, if it is not "", rows are sorted
    by day. Timestamps are local times in `time_zone`.
    """

    table: CachedTable
    place: str
    day: str
    ordered_by: str
    time_zone: str

    def files(self, saved_at: Path | None) -> dict[str, list[RowsInFile]]:
        """Return the files with rows of each day as text. Rows without a day are at "None".

        Counts are saved at `saved_at`. Raises SourceError if a file or its day cannot be read, and
        ServiceUnavailable if the store does not answer.
        """
        self._refuse_unusable()
        saved: dict[str, _Counts] = {}
        with suppress(OSError, ValueError):
            saved = json.loads(saved_at.read_text()) if saved_at else {}
        deleted = deleted_rows_by_file(self.table)
        listed = self._ask(_LISTED.format(self._day_in_log()), self._listed)
        files = [
            _File(at, deleted.get(unquote(facts[0]), NO_DELETED_ROWS), *facts)
            for at, facts in enumerate(listed)
        ]
        found = at_once(self.place, lambda file: saved.get(file.key) or self._counts(file), files)
        counts = {file.key: counted for file, counted in zip(files, found, strict=True)}
        if saved_at and counts.keys() != saved.keys():
            with suppress(OSError):
                make_cache(saved_at.parent)
                write_whole(saved_at, json.dumps(counts))
        by_day = grouped(
            (day, RowsInFile(file.path, file.size, *rows))
            for file in files
            for day, *rows in counts[file.key]
        )
        return {day: sorted(files) for day, files in by_day.items()}

    @cached_property
    def _listed(self) -> pa.Table:
        return pa.table(self.table.get_add_actions(flatten=True))

    @cached_property
    def _schema(self) -> pa.Schema:
        return pa.schema(self.table.schema().to_arrow())

    @cached_property
    def _columns(self) -> dict[str, bool]:
        """The columns that `day` names, and whether the table is partitioned by each."""
        partition = self.table.metadata().partition_columns
        names = self._schema.names
        words = re.findall(r"\w+", self.day.lower())
        used = [name for name in names if f'"{name}"' == self.day] or [
            name for name in names if name.lower() in words
        ]
        return {name: name in partition for name in used}

    @property
    def _about(self) -> str:
        return self.day.strip('"') + f" of the Delta table {self.place}"

    def _refuse_unusable(self) -> None:
        ((kind,),) = self._ask(_TYPE.format(self.day), self._schema.empty_table())
        if kind not in ("DATE", "VARCHAR"):
            as_date = f"Declare day='CAST({self.ordered_by} AS DATE)'."
            raise SourceError(
                f"{self._about} has the type {kind}. A day must be a DATE or a text",
                next_step=as_date if kind == "TIMESTAMP" and self.ordered_by else "",
            )
        if renamed_columns(self.table) and not all(self._columns.values()):
            raise SourceError(
                f"{self._about} is not a partition column, and columns were renamed"
                " (delta.columnMapping.mode)"
            )

    def _day_in_log(self) -> str:
        """The SQL for the day of all rows of a file. NULL if the log does not have it."""
        pattern = columns_pattern(self._columns, '"')
        of = {
            figure: re.sub(pattern, rf'"{figure}.\1"', self.day)
            for figure in ("partition", "min", "max")
        }
        nulls = f"null_count.{self.ordered_by}"
        if all(self._columns.values()):
            return f"coalesce(CAST({of['partition']} AS VARCHAR), 'None')"
        if self.time_zone == UTC and nulls in self._listed.column_names:
            # Texts sort like their days only if all have the same form.
            least, most = (f'"{figure}.{self.ordered_by}"' for figure in ("min", "max"))
            is_one = (
                f"{of['min']} = {of['max']} AND (typeof({least}) <> 'VARCHAR' OR {least} = {most})"
            )
            return f'CASE WHEN "{nulls}" = 0 AND {is_one} THEN CAST({of["min"]} AS VARCHAR) END'
        return "NULL"

    def _counts(self, file: _File) -> _Counts:
        if file.day is not None and file.rows is not None:
            return [(file.day, file.rows - file.deleted.rows, file.deleted.hash)]
        in_file = [name for name, is_partition in self._columns.items() if not is_partition]
        try:
            fragment = _PARQUET.make_fragment(unquote(file.path), files_in(self.place))
            rows = fragment.to_table(self._schema, in_file)
        except (OSError, pa.ArrowException) as error:
            is_damaged = isinstance(error, FileNotFoundError | pa.ArrowException)
            kind = SourceError if is_damaged or "://" not in self.place else ServiceUnavailable
            raise kind(
                f"{self.place}/{file.path} cannot be read: {first_line(error, 200)}."
            ) from None
        kept = np.ones(len(rows), bool)
        kept[np.asarray(file.deleted.positions, int)] = False
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        for name in self._columns.keys() - columns.keys():
            columns[name] = pa.repeat(self._listed[f"partition.{name}"][file.at], len(rows))
        columns |= {"is kept": pa.array(kept), "row no": pa.array(np.arange(len(rows)))}
        own_hash = None if file.day is None else file.deleted.hash
        return self._ask(_COUNTED.format(self.day), pa.table(columns), own_hash)

    def _ask(self, sql: str, rows: pa.Table, *parameters: str | None) -> list[tuple[Any, ...]]:
        """Ask DuckDB about rows. Timestamps are local times in the time zone."""
        for at, column in enumerate(rows.columns):
            if getattr(column.type, "tz", None):
                clock = pc.local_timestamp(column.cast(pa.timestamp("us", self.time_zone)))
                rows = rows.set_column(at, rows.column_names[at], clock)
        try:
            with _database(os.getpid()).cursor() as connection:
                connection.register("rows", rows)
                return connection.execute(sql, parameters).fetchall()
        except duckdb.Error as error:
            raise SourceError(
                f"{self._about} cannot be computed: {first_line(error, 200)}"
            ) from None
