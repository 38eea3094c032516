"""The rows of a step: what its days will hold once committed, and which of those are new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.calendar import consecutive
from backfill_assets.lake.record import WriteMode
from backfill_assets.lake.slice import condition
from backfill_assets.step.read import read_inputs
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import Window
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Computed:
    """`after`: every row the days will hold, which is what is audited. `new`: the rows to write."""

    after: DataFrame
    new: DataFrame


@contextmanager
def computed(
    table: Table,
    days: Sequence[date],
    mode: WriteMode,
    workspace: Workspace,
    *,
    spark: SparkSession,
    versions: Mapping[str, int],
) -> Iterator[Computed]:
    """Compute `days` once and keep the rows while the audit and the commit use them."""
    new = _new_rows(table, days, workspace, spark=spark, versions=versions).persist()
    try:
        yield Computed(_after(table, new, days, mode, spark, workspace), new)
    finally:
        new.unpersist()


def _new_rows(
    table: Table, days: Sequence[date], workspace: Workspace, *, spark: SparkSession, versions: Mapping[str, int]
) -> DataFrame:
    # A table that reads itself is computed one island of consecutive days at a time, each from the day before it.
    parts = consecutive(days) if table.needs_itself() else [list(days)]
    frames = []
    for island in parts:
        inputs = read_inputs(table, island, workspace, spark=spark, versions=versions)
        if _day_by_day(table):
            inputs = {name: _whole_days(rows, table.partition_by, days) for name, rows in inputs.items()}
        frames.append(table.compute(**inputs).where(condition(table.partition_by, island)))
    rows = reduce(DataFrame.unionByName, frames)
    # A delivered file is of one day already, and what is computed day by day from whole days stays so.
    return rows if table.source() or _day_by_day(table) else _whole_days(rows, table.partition_by, days)


def _day_by_day(table: Table) -> bool:
    """Whether a day's rows come from the same day's rows of one other table, and nothing else."""
    reads = list(table.reads.values())
    return len(reads) == 1 and all(
        isinstance(r, Window) and r.table is not None and r.first == r.last == 0 and r.table.partition_by == table.partition_by
        for r in reads
    )


def _whole_days(rows: DataFrame, column: str, days: Sequence[date]) -> DataFrame:
    """The same rows with each day's side by side: one file a day to write, and an audit by day and key moves none again."""
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    # Days differ in size; several to a task even that out, as long as there are days enough.
    return rows.repartition(min(len(days), 4 * tasks), column)


def _after(
    table: Table, new: DataFrame, days: Sequence[date], mode: WriteMode, spark: SparkSession, workspace: Workspace
) -> DataFrame:
    if mode == "overwrite":
        return new
    lake = workspace.lake
    before = lake.read(spark, table.name, table.partition_by, days, lake.version(table.name), table.columns)
    kept = before.join(new.select(*table.key), list(table.key), "left_anti") if mode == "merge" else before
    return new.unionByName(kept.select(*new.columns))
