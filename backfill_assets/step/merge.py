"""Merging by key: a day's rows are those computed, and those it holds under other keys.

Where those are of other code, files or inputs, no build would make them all: the day is `mixed`, and stays outdated.

The day is written whole, as with any other write mode, and committed only if the table is still at the version that was
looked at. Spark's MERGE takes a snapshot of its own, later: what a writer without our lock committed until then would be kept
unseen, in a commit of ours.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame

from backfill_assets.lake.columns import refuse_other_columns
from backfill_assets.lake.reading import Rows
from backfill_assets.tables.declaration import Table


@contextmanager
def merged(table: Table, new: DataFrame, held: Rows, folder: str) -> Iterator[tuple[DataFrame, set[date]]]:
    """`new` and the rows `held` under keys that it does not have; the days that keep rows so. A key is unique within a day;
    nulls in it are equal.

    `new` is computed once, for its rows and for its keys. UsageError if the table in `folder` has other columns.
    """
    refuse_other_columns(folder, new.schema.json())
    new = new.persist()
    kept = new
    try:
        key = list(dict.fromkeys([table.partition_by, *table.key]))
        before, keys = held.rows(new.sparkSession), new.select(*key)
        same = reduce(Column.__and__, [before[name].eqNullSafe(keys[name]) for name in key])
        kept = before.join(keys, same, "left_anti").select(*new.columns).persist()
        days = {day for (day,) in kept.select(table.partition_by).distinct().collect()}
        yield new.unionByName(kept), days
    finally:
        kept.unpersist()
        new.unpersist()
