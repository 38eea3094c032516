"""Answer a query in SQL over the tables of a release, of a preview or of live. No server.

DuckDB gets the tables that the query names, as `read` returns them. So a condition that compares
the day with constants opens only the files of these days. DuckDB cannot open other files.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa

from backfill_assets.errors import (
    NOTHING_CHANGED,
    TableUnreadable,
    UsageError,
    counted,
    did_you_mean,
    first_line,
)
from backfill_assets.lake.channels import STABLE
from backfill_assets.lake.history import tables_in
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.released import ReleasedTable, live_table
from backfill_assets.reading import open_release, refuse_with_live
from backfill_assets.settings import read_settings
from backfill_assets.verbs.export import (
    UNCHANGED,
    WRITERS,
    json_text,
    refuse_existing,
    write,
    write_to,
)
from backfill_assets.verbs.report import Line, Report, refuse_file, table_of

ROWS_SHOWN = 50
# DuckDB opens only its own temporary files, and reads no Python variables of this process.
_CLOSED: dict[str, Any] = {"enable_external_access": False, "python_enable_replacements": False}


@dataclass(frozen=True)
class Tables:
    """The tables for a query, and a function that opens one. `which` describes their origin."""

    which: str
    names: Sequence[str]
    open: Callable[[str], ReleasedTable]


@dataclass(frozen=True)
class SqlReport(Report):
    """The number of rows in the answer, with the `first` rows or the file of all rows."""

    which: str
    schema: pa.Schema
    rows: int
    first: Sequence[Sequence[object]] = ()
    file: Path | None = None

    def lines(self) -> Iterator[Line]:
        about = f"{counted(self.rows, 'row')} of {self.which}"
        if self.file:
            yield f"{self.file}: {about}."
            return
        table = table_of(
            self.schema.names, [[cell_text(value) for value in row] for row in self.first]
        )
        for column, kind in zip(table.columns, self.schema.types, strict=True):
            if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
                column.justify = "right"
        yield table
        left_out = self.rows - len(self.first)
        yield f"{about}." + (f" {left_out:,} are not shown: add --output." if left_out else "")


def cell_text(value: object) -> str:
    if value is None:
        return "NULL"
    return json_text(value) if isinstance(value, list | dict) else str(value)


def tables_of(number: int | None, plan: str, *, live: bool) -> Tables:
    """The tables of live, of a plan's preview, or of a release (None: the release of `stable`).

    Raises UsageError if several are named, or if the named one does not exist.
    """
    root = read_settings().lake
    if live:
        refuse_with_live(number, STABLE, plan)
        return Tables("live", tables_in(Ledger(root)), partial(live_table, root))
    release = open_release(number, preview=plan)
    of_plan = f"the preview of plan {release.preview} on " if release.preview else ""
    which = f"{of_plan}release {release.number}"
    return Tables(which, list(release.tables), partial(ReleasedTable, root, release))


def refuse_output(kind: str, file: Path | None, *, overwrite: bool) -> None:
    """Raise UsageError for a format and a file to which rows cannot be written."""
    if file:
        refuse_file(file, [f".{kind}"] if kind else list(WRITERS), UNCHANGED)
        refuse_existing(file, overwrite)
    elif kind == "parquet" and sys.stdout.isatty():
        raise UsageError(
            "Parquet is not for terminals.",
            unchanged="Nothing was read.",
            next_step="Add --output with a .parquet file, or choose another format.",
        )


def answer_query(
    query: str, tables: Tables, kind: str, file: Path | None, *, overwrite: bool
) -> SqlReport | None:
    """Answer a query in a `file`, or on standard output. Without a `kind`, it is a report."""
    with _answer(query, tables) as (schema, batches):
        if file:
            rows = write(schema, batches, file, overwrite=overwrite)
            return SqlReport(tables.which, schema, rows, file=file)
        if kind:
            write_to(sys.stdout.buffer, f".{kind}", schema, batches)
            return None
        first: list[tuple[object, ...]] = []
        rows = 0
        for batch in batches:
            shown = batch.slice(0, ROWS_SHOWN - len(first))
            first += zip(*(column.to_pylist() for column in shown.columns), strict=True)
            rows += batch.num_rows
        return SqlReport(tables.which, schema, rows, first)


@contextmanager
def _answer(query: str, tables: Tables) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Give the columns of the answer, and its rows, which the block reads."""
    query = query.strip().rstrip(";")
    opened = [tables.open(name) for name in tables.names if f'"{name}"'.lower() in query.lower()]
    with (
        TemporaryDirectory() as spilled,
        duckdb.connect(config={**_CLOSED, "temp_directory": spilled}) as connection,
    ):
        connection.execute("SET TimeZone = 'UTC'")
        for table in opened:
            connection.register(table.name, table.dataset())
        if query.lower().split() == ["show", "tables"]:
            connection.register("tables", pa.table({"name": tables.names}))
            query = "FROM tables"

        def rows() -> Iterator[pa.RecordBatch]:
            with _explained(tables, opened):
                yield from reader

        with _explained(tables, opened):
            kinds = [statement.type for statement in duckdb.extract_statements(query)]
            if kinds != [duckdb.StatementType.SELECT]:
                raise UsageError(
                    "This is not one query: SELECT, WITH, FROM, DESCRIBE or SUMMARIZE.",
                    unchanged=NOTHING_CHANGED,
                    next_step="Type one query. Only runs and plans change tables.",
                )
            # Within brackets a query cannot write, and columns with the same name get numbers.
            found = connection.sql(f"FROM ({query}\n)")
            reader = pa.RecordBatchReader.from_stream(found)
        yield reader.schema, rows()


@contextmanager
def _explained(tables: Tables, opened: Iterable[ReleasedTable]) -> Iterator[None]:
    """Raise UsageError for an error of the query, TableUnreadable for one of the files."""
    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        for table in opened:
            table.dataset()  # says more if the version or the plan ended meanwhile
        what = first_line(error)
        what = what if what.endswith(("!", ".", "?")) else f"{what}."
        if "IOError" in what:
            raise TableUnreadable(
                what,
                unchanged=NOTHING_CHANGED,
                next_step="`backfill status` names the days whose files are not as they were.",
            ) from None
        unknown = re.search('name "?(.+?)"? does not exist', what)
        quoted = ", ".join(f'"{name}"' for name in tables.names)
        raise UsageError(
            what + (did_you_mean(unknown[1], tables.names) if unknown else ""),
            unchanged=NOTHING_CHANGED,
            next_step=(
                f"The tables of {tables.which} are {quoted}; DESCRIBE and the name of one, in"
                " double quotes, lists its columns."
            ),
        ) from None
