"""The rows of days of a table at one version, as Arrow in this process: for checks that need no Spark."""

from collections.abc import Iterable, Sequence
from datetime import date

import pyarrow as pa

from backfill_assets.lake.delta_table import open_table


def rows_at(folder: str, version: int, column: str, days: Iterable[date], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of these days of the table in `folder` at `version` (-1: no table, and no columns), by its day's `column`.

    Only the files of these days are read. Of `columns` (None: all), those are left out that the version does not have. Raises
    TableUnreadable if the version is not there any more.
    """
    table, wanted = open_table(folder, version) if version >= 0 else None, sorted(set(days))
    if table is None:
        return pa.table({})
    schema = pa.schema(table.schema().to_arrow())
    known = [name for name in columns or schema.names if name in schema.names]
    if not wanted:
        return pa.schema([schema.field(name) for name in known]).empty_table()
    dataset = table.to_pyarrow_dataset(file_pruning_predicate=[(column, "in", [str(day) for day in wanted])])
    return dataset.to_table(columns=known)
