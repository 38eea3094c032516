"""Reading a table's inputs for some days: each at one fixed version, no more days than they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.lake.store import Lake
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import SliceDays, Window
from backfill_assets.workspace import Workspace


def versions_of_inputs(table: Table, lake: Lake) -> dict[str, int]:
    """The newest version of every table that `table` reads, to be read from now on."""
    return {name: lake.version(name) for name in {other.name for other, _ in table.windows()}}


def read_inputs(
    table: Table, days: Sequence[date], workspace: Workspace, *, spark: SparkSession, versions: Mapping[str, int]
) -> dict[str, DataFrame]:
    """One DataFrame an input, by the name of the function's argument, with the days that `days` need of it."""
    inputs: dict[str, DataFrame] = {}
    for name, read in table.reads.items():
        if isinstance(read, Window):
            other = read.table or table
            # Days of the table itself that are being computed now must not come in as they stood before.
            own = set(days) if read.table is None else set()
            needed = sorted({d for day in days for d in workspace.calendar.clip(read.days(day))} - own)
            inputs[name] = workspace.lake.read(
                spark, other.name, other.partition_by, needed, versions[other.name], other.columns
            )
        elif isinstance(read, SliceDays):
            rows: list[Any] = [(day,) for day in days]
            inputs[name] = spark.createDataFrame(rows, f"{table.partition_by} DATE")
        else:
            inputs[name] = read.read(workspace.area, spark, days)
    return inputs
