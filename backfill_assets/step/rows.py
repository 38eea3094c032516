"""The rows of a step: computed once, written as files that nobody sees until they are committed."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from backfill_assets.lake.commit import Commit
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.files import NO_DAY, remove, write, write_table
from backfill_assets.lake.reading import read_files, schema_of
from backfill_assets.lake.session import without_code_generation
from backfill_assets.lake.slice import DataFile, Slice
from backfill_assets.lake.spark_conf import refuse_changes
from backfill_assets.quality.day import DayProfile
from backfill_assets.quality.profile import schema_mismatches
from backfill_assets.quality.small_profile import small_profiles, with_figures, without_figures
from backfill_assets.step.compute import new_rows
from backfill_assets.step.merge import merged
from backfill_assets.step.read import InputRows
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# Compressed bytes of inputs up to which rows are taken into this process: planning and starting Spark jobs is most of the work
# on so little, and one job does what three did. Three days of the sample's outages read 2 MB.
SMALL = 4 * 2**20


@dataclass(frozen=True)
class Computed:
    """`after`: every row the days will hold, which is what is audited. `commit`: puts the days that pass into the table.

    With `schema_mismatches` (columns that are not as declared, rows without a day) no day passes. `profiles` are those of
    `after`, where they are known already. `kept` are the days that keep rows which they had before.
    """

    after: DataFrame
    commit: Commit
    schema_mismatches: Sequence[str] = ()
    profiles: Mapping[date, DayProfile] | None = None
    kept: Collection[date] = ()


@contextmanager
def compute_days(
    table: Table,
    days: Sequence[date],
    request: StepRequest,
    workspace: Workspace,
    *,
    spark: SparkSession,
    read: Callable[[Sequence[date]], InputRows],
    version: int,
) -> Iterator[Computed]:
    """Compute `days` once, for the audit and the commit; what is not committed is removed at the end.

    Rows that are kept (merge) are those of the table at `version`, which are known to be as they were accepted.
    """
    folder, column = workspace.lake.path(table.name), table.partition_by
    with refuse_changes(spark.conf, table.name):
        new, size = new_rows(table, days, read)
    faults = schema_mismatches(new.schema, schema_of(spark, table.columns))
    if faults:
        yield Computed(new, FileCommit(folder, column, [], ""), faults)
        return
    before = workspace.lake.reader(Slice(table.name, column, tuple(days), version), table.columns)
    with ExitStack() as until_done:
        kept: Collection[date] = ()
        if request.write_mode == "merge" and version >= 0:  # a table that does not exist yet keeps no rows
            new, kept = until_done.enter_context(merged(table, new, before, folder))
            size += before.size
        yield replace(until_done.enter_context(_written(table, new, size, folder)), kept=kept)


@contextmanager
def _written(table: Table, new: DataFrame, size: int, folder: str) -> Iterator[Computed]:
    """Write `new` as files of `folder`."""
    column = table.partition_by
    small = _small(table, new, folder) if size <= SMALL else None
    profiles, files = small or (None, write(new, folder, column))
    without_day = sum(file.rows or 0 for file in files if file.day == NO_DAY)
    commit = FileCommit(folder, column, files, new.schema.json())
    try:
        rows = read_files(new.sparkSession, folder, [file for file in files if file.day != NO_DAY], column, new.schema)
        if without_day:
            yield Computed(rows, commit, [_without_day(column, without_day)])
            return
        yield Computed(rows, commit, profiles=profiles)
    finally:
        remove(folder, commit.uncommitted())


def _without_day(column: str, rows: int) -> str:
    return f"{rows:,} computed row(s) have no day: {column} is null. Leave them out, or give them a day"


def _small(table: Table, new: DataFrame, folder: str) -> tuple[dict[date, DayProfile], list[DataFile]] | None:
    """The profiles and the files of a small slice, by one Spark job; None if its rows are too many for this process, or hold
    what Arrow or Python have no value for (a date after the year 9999): Spark has to count and write them."""
    try:
        return _by_arrow(table, new, folder)
    except (pa.ArrowException, OverflowError, UnicodeDecodeError):
        return None
    except PySparkException as error:
        if "spark.driver.maxResultSize" not in str(error):
            raise
        return None


def _by_arrow(table: Table, new: DataFrame, folder: str) -> tuple[dict[date, DayProfile], list[DataFile]]:
    # Code is generated for raw text alone: parsing it takes long enough to be worth compiling.
    with without_code_generation(new.sparkSession, unless=table.source() is not None):
        rows = with_figures(new, measures=table.measures, samples=table.samples).toArrow()
    profiles = small_profiles(
        rows,
        day=table.partition_by,
        about=table.fingerprint_by,
        key=table.key if table.counts_keys else (),
        measures=list(table.measures),
        samples=list(table.samples),
    )
    return profiles, write_table(without_figures(rows), folder, table.partition_by)
