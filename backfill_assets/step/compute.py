"""What a table's function makes of its inputs, for some days: not computed yet."""

from collections.abc import Callable, Sequence
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame

from backfill_assets.calendar import consecutive
from backfill_assets.lake.slice import condition
from backfill_assets.step.read import InputRows
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import Window


def new_rows(table: Table, days: Sequence[date], read: Callable[[Sequence[date]], InputRows]) -> tuple[DataFrame, int]:
    """The rows of `days`, not computed yet, and the bytes of what they are computed from; `read` reads the inputs of days."""
    # A table that reads itself is computed one island of consecutive days at a time, each from the day before it.
    parts = consecutive(days) if table.needs_itself() else [list(days)]
    frames, size = [], 0
    for part in parts:
        inputs = read(part)
        rows, size = inputs.rows, size + inputs.size
        if _day_by_day(table):
            rows = {name: _one_task_a_day(frame, table.partition_by, days) for name, frame in rows.items()}
        # Rows of neighbouring days are cut off; a row of no day is kept, to be found.
        named = f"({condition(table.partition_by, part)}) OR `{table.partition_by}` IS NULL"
        frames.append(table.compute(**rows).where(named))
    new = reduce(DataFrame.unionByName, frames)
    # A delivered file is of one day already, and what is computed day by day from whole days stays so.
    return (new if table.source() or _day_by_day(table) else _one_task_a_day(new, table.partition_by, days)), size


def _day_by_day(table: Table) -> bool:
    """Whether a day's rows come from the same day's rows of one other table, and nothing else."""
    reads = list(table.reads.values())
    return len(reads) == 1 and all(
        isinstance(r, Window) and r.table is not None and r.first == r.last == 0 and r.table.partition_by == table.partition_by
        for r in reads
    )


def _one_task_a_day(rows: DataFrame, column: str, days: Sequence[date]) -> DataFrame:
    """The same rows with each day's in one task: one file a day to write, and an audit by day and key moves none again."""
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    # Days differ in size; several to a task even that out, as long as there are days enough.
    return rows.repartition(min(len(days), 4 * tasks), column)
