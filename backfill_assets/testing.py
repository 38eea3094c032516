"""Run a table's function on rows that are written by hand, in tests of a project.

    from backfill_assets.testing import run

    rows = run(totals, {"sales": [{"day": date(2024, 6, 1), "cents": 5}]})
    assert rows == [{"day": date(2024, 6, 1), "cents": 5}]

Neither a server nor a lake is needed. Spark starts once, without Delta and without the network.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from backfill_assets.errors import UsageError, named
from backfill_assets.lake.spark.reading import schema_of
from backfill_assets.lake.spark.session import FIXED, INTERPRETED, ONE_MACHINE, open_session
from backfill_assets.quality.profile import schema_mismatches
from backfill_assets.step.purity import refuse_impure
from backfill_assets.tables.declaration import Read, SliceDays, Table, Window

_SMALL = {
    "spark.master": "local[1]",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}

Rows = Sequence[dict[str, Any]]


@cache
def session() -> SparkSession:
    """The small session of this process. Another session of it is used, if one is open."""
    return open_session(FIXED | INTERPRETED | ONE_MACHINE | _SMALL)


def run(
    table: Table,
    reads: Mapping[str, Rows],
    *,
    spark: SparkSession | None = None,
) -> list[dict[str, Any]]:
    """Run a table's function, and return its rows as dicts, in order of day and key.

    `reads` has the rows of the inputs by argument. An input without rows may be left out. A value
    that is left out is null, a time without a zone is in UTC, and a map is a list of pairs.
    `SliceDays()` reads the column `partition_by`. No rule judges the rows.

    Raises UsageError for inputs and columns that are not declared, and if the function returns
    other columns than declared.
    """
    spark = spark or session()
    _refuse(reads.keys() - table.reads.keys(), f"{table.name} does not read")
    inputs = {
        name: _frame(spark, _columns_of(table, read), reads.get(name, ()))
        for name, read in table.reads.items()
    }
    returned = table.compute(**inputs)
    refuse_impure(table.name, returned, inputs.values())
    declared = schema_of(spark, table.columns)
    faults = schema_mismatches(returned.schema, declared)
    _refuse(faults, f"{table.name} returns other columns than declared:")
    rows = returned.select(declared.names).toArrow()
    order = dict.fromkeys([table.partition_by, *table.key], "ascending")
    return rows.sort_by([*order.items()]).to_pylist()


def _columns_of(table: Table, read: Read) -> str:
    """The columns of an input, as SQL."""
    if isinstance(read, Window):
        return (read.table or table).columns
    if isinstance(read, SliceDays):
        return f"{table.partition_by} DATE"
    # A source that declares no columns has those of its table.
    return getattr(read, "row_columns", table.columns)


def _frame(spark: SparkSession, columns: str, rows: Rows) -> DataFrame:
    empty = spark.createDataFrame([], columns)
    schema = empty.toArrow().schema
    _refuse(set().union(*rows).difference(schema.names), f"An input with {columns} has no column")
    values = pa.Table.from_pylist([*rows], schema)
    return spark.createDataFrame(values) if rows else empty


def _refuse(wrong: Iterable[str], what: str) -> None:
    if names := sorted(wrong):
        raise UsageError(
            f"{what} {named(names)}.",
            unchanged="Nothing was tested.",
            next_step="Correct the test, or the declaration or the function of the table.",
        )
