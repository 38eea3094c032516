"""The rows of a step: computed once, written as files that nobody sees until they are committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.calendar import consecutive
from backfill_assets.lake.commit import Commit, FileCommit
from backfill_assets.lake.files import read_files, remove, schema_of, write
from backfill_assets.lake.merge import MergeCommit
from backfill_assets.lake.slice import Slice, condition
from backfill_assets.quality.profile import type_faults
from backfill_assets.step.read import read_inputs
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import Window
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Computed:
    """`after`: every row the days will hold, which is what is audited. `commit`: puts the days that pass into the table.

    With `type_faults` (columns that are not as declared) nothing was computed, and no day passes.
    """

    after: DataFrame
    commit: Commit
    type_faults: Sequence[str] = ()


@contextmanager
def computed(
    table: Table,
    days: Sequence[date],
    request: StepRequest,
    workspace: Workspace,
    *,
    spark: SparkSession,
    versions: Mapping[str, int],
) -> Iterator[Computed]:
    """Compute `days` once, for the audit and the commit; what is not committed is removed at the end."""
    new = _new_rows(table, days, workspace, spark=spark, versions=versions)
    faults = type_faults(new.schema, schema_of(spark, table.columns))
    if faults:
        yield Computed(new, FileCommit(workspace.lake.path(table.name), table.partition_by, [], ""), faults)
        return
    # Into a table that does not exist yet, rows are merged by writing them.
    if request.write_mode == "merge" and workspace.lake.version(table.name) >= 0:
        with _merged(table, new, days, workspace) as merged:
            yield merged
        return
    folder = workspace.lake.path(table.name)
    files = write(new, folder, table.partition_by)
    append_as = request.identity if request.write_mode == "append_once" else ""
    commit = FileCommit(folder, table.partition_by, files, new.schema.json(), append_as)
    try:
        rows = read_files(spark, folder, files, table.partition_by, new.schema)
        yield Computed(rows.unionByName(_before(table, days, workspace, spark)) if append_as else rows, commit)
    finally:
        remove(folder, commit.uncommitted())


@contextmanager
def _merged(table: Table, new: DataFrame, days: Sequence[date], workspace: Workspace) -> Iterator[Computed]:
    new, folder, key = new.persist(), workspace.lake.path(table.name), list(table.key)
    kept = _before(table, days, workspace, new.sparkSession).join(new.select(*key), key, "left_anti")
    try:
        yield Computed(new.unionByName(kept.select(*new.columns)), MergeCommit(folder, table.partition_by, key, new))
    finally:
        new.unpersist()


def _before(table: Table, days: Sequence[date], workspace: Workspace, spark: SparkSession) -> DataFrame:
    """The rows that `days` hold now."""
    lake = workspace.lake
    return lake.read(spark, Slice(table.name, table.partition_by, tuple(days), lake.version(table.name)), table.columns)


def _new_rows(
    table: Table, days: Sequence[date], workspace: Workspace, *, spark: SparkSession, versions: Mapping[str, int]
) -> DataFrame:
    # A table that reads itself is computed one island of consecutive days at a time, each from the day before it.
    parts = consecutive(days) if table.needs_itself() else [list(days)]
    frames = []
    for part in parts:
        inputs = read_inputs(table, part, workspace, spark=spark, versions=versions)
        if _day_by_day(table):
            inputs = {name: _one_task_a_day(rows, table.partition_by, days) for name, rows in inputs.items()}
        frames.append(table.compute(**inputs).where(condition(table.partition_by, part)))
    rows = reduce(DataFrame.unionByName, frames)
    # A delivered file is of one day already, and what is computed day by day from whole days stays so.
    return rows if table.source() or _day_by_day(table) else _one_task_a_day(rows, table.partition_by, days)


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
