"""Reading a table's inputs for some days: each at one fixed version, no more days than they need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.lake.slice import Slice, condition
from backfill_assets.step.inputs import Inputs
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import SliceDays, Window
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class InputRows:
    """The inputs of a step: one DataFrame an argument of the table's function, and the bytes they are read from."""

    rows: Mapping[str, DataFrame]
    size: int


def read_inputs(
    days: Sequence[date],
    *,
    table: Table,
    workspace: Workspace,
    spark: SparkSession,
    versions: Mapping[str, int],
    inputs: Mapping[date, Inputs],
) -> InputRows:
    """The days that `days` read of every input: those that `inputs` records of each, and no rows that nobody accepted."""
    rows: dict[str, DataFrame] = {}
    size = 0
    for name, read in table.reads.items():
        if isinstance(read, Window):
            other = read.table or table
            needed = Slice(other.name, other.partition_by, _days_read(read, other, days, inputs), versions[other.name])
            reader = workspace.lake.reader(needed, other.columns)
            rows[name], size = reader.rows(spark), size + reader.size
            if table.reads_by_day(other, read):
                rows[name] = rows[name].where(condition(table.partition_by, days))
        elif isinstance(read, SliceDays):
            values: list[Any] = [(day,) for day in days]
            rows[name] = spark.createDataFrame(values, f"{table.partition_by} DATE")
        else:
            rows[name], size = read.read(workspace.area, spark, days), size + read.size(workspace.area, days)
    return InputRows(rows, size)


def _days_read(read: Window, other: Table, days: Sequence[date], inputs: Mapping[date, Inputs]) -> tuple[date, ...]:
    # Days of the table itself that are being computed now must not come in as they were before.
    own = set(days) if read.table is None else set()
    recorded = {day: inputs[day].tables.get(other.name, {}) for day in days}
    return tuple(sorted({d for day in days for d in read.days(day) if d.isoformat() in recorded[day]} - own))
