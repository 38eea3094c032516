"""Compute the rows of a step once, and write them as files that are not committed yet.

Each input is read at one fixed version, and only for the days that are needed.

A merge by key keeps the rows of a day whose keys are not computed, and writes the whole day.
Spark's MERGE would take a later snapshot, and keep rows that another writer committed meanwhile. If
the kept rows have older code, files or inputs, the day is `mixed` and stays outdated. The audit
refuses a day in which a key repeats.

A function with a window also returns rows about days around. These rows are dropped, and their
number is recorded. Rows about any other day, and rows without a day, fail the day. The job that
computes the rows counts all of them. Rows for the wrong day are detected only if another call of
the function computes that day: neighbouring days of a table without windows are computed by two
calls.

Files that were changed in place, with the same names and sizes, are found only by reading them.
`backfill audit` reads them, and so does a forced build of a day whose rows do not change.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.calendar import consecutive, days_around_any, ranges
from backfill_assets.errors import NOTHING_COMMITTED, BackfillError, counted, named
from backfill_assets.lake.columns import refuse_other_columns
from backfill_assets.lake.damage import Depth
from backfill_assets.lake.data_files import remove_files, write_frame, write_table
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.integrity import damaged_files
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.slices import DataFile, Slice, condition
from backfill_assets.lake.spark.conf import refuse_changes
from backfill_assets.lake.spark.reading import SliceRows, read_files, schema_of
from backfill_assets.lake.spark.session import observe, to_arrow, without_code_generation
from backfill_assets.quality.profile import profiles, schema_mismatches
from backfill_assets.quality.rule import DayProfile
from backfill_assets.quality.rules import MALFORMED
from backfill_assets.quality.small_profile import small_profiles, with_figures, without_figures
from backfill_assets.sources.files.fields import UNPARSED
from backfill_assets.step.errors import is_of_step
from backfill_assets.step.inputs import Inputs
from backfill_assets.step.purity import refuse_impure
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Read, SliceDays, Table, Window
from backfill_assets.workspace import Workspace

# The compressed bytes of inputs up to which rows are collected into this process. With little data,
# most of the time is spent on starting Spark jobs, and one job does the work of three. Three days
# of the sample's outages read 2 MB.
SMALL = 4 * 2**20
# The most rows of one task that are collected. A function may make many rows from a small input.
MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class InputRows:
    """The inputs of a step: one DataFrame per argument, and their size in compressed bytes."""

    rows: Mapping[str, DataFrame]
    size: int


@dataclass(frozen=True)
class Computed:
    """The computed rows of a step, not committed yet.

    read_after         gives `after`: every row that the days will have; these rows are audited
    commit             commits the days that passed
    schema_mismatches  columns that differ from the declared ones; if there are any, no day passes
    profiles           the profiles of `after`, if they are known already
    kept_days          the days that keep rows of their build before (merge)
    merge_key          the key of a merge, if no rule refuses days in which a key repeats
    dropped            the number of rows for days around that were dropped, by these days
    """

    read_after: Callable[[], DataFrame]
    commit: FileCommit
    schema_mismatches: Sequence[str] = ()
    profiles: Mapping[date, DayProfile] | None = None
    kept_days: Collection[date] = ()
    merge_key: Sequence[str] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def after(self) -> DataFrame:
        """The rows. Spark reads their files only if someone asks for rows."""
        return self.read_after()


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
    """Compute `days` once, for the audit and the commit.

    Uncommitted files are removed at the end. A merge keeps rows of the table at `version`, which
    were checked against the accepted builds.
    """
    folder = workspace.lake.path(table.name)
    column = table.partition_by
    with refuse_changes(spark.conf, table.name):
        returned, size = new_rows(table, days, read)
        new = cut_to_days(table, returned)
    faults = schema_mismatches(new.rows.schema, schema_of(spark, table.columns))
    if faults:
        yield Computed(lambda: new.rows, FileCommit(folder, column, [], ""), faults)
        return
    before = SliceRows.of(
        workspace.lake, Slice(table.name, column, tuple(days), version), table.columns
    )
    is_merge = request.write_mode == "merge"
    merge_key = _key_without_rule(table) if is_merge else ()
    with ExitStack() as until_done:
        kept_days: Collection[date] = ()
        # A missing table keeps no rows.
        is_merged = is_merge and version >= 0
        if is_merged:
            rows, kept_days = until_done.enter_context(_merged(table, new.rows, before, folder))
            new = CutRows(rows, new.others)
            size += before.size
        small = None
        if size <= SMALL:
            unique = table.key if merge_key or table.counts_keys else ()
            small = _small(table, new.rows, folder, unique)
            new = new if small or is_merged else cut_to_days(table, returned)
        computed = until_done.enter_context(_written(table, new, small, folder))
        yield replace(computed, kept_days=kept_days, merge_key=merge_key)


def _key_without_rule(table: Table) -> Sequence[str]:
    """The key of a table, unless a rule refuses days in which a key repeats."""
    is_checked = any(rule.counts_keys and rule.severity == "error" for rule in table.rules)
    return () if is_checked else table.key


def read_inputs(
    days: Sequence[date],
    *,
    table: Table,
    workspace: Workspace,
    spark: SparkSession,
    versions: Mapping[str, int],
    inputs: Mapping[date, Inputs],
    near: Path | None = None,
) -> InputRows:
    """Read the days that `inputs` records for each of `days`: only accepted rows."""
    rows: dict[str, DataFrame] = {}
    size = 0
    for name, read in table.reads.items():
        if isinstance(read, Window):
            other = read.table or table
            needed = Slice(
                other.name,
                other.partition_by,
                _days_read(read, other, days, inputs),
                versions[other.name],
            )
            reader = SliceRows.of(workspace.lake, needed, other.columns, near)
            rows[name], size = reader.rows(spark), size + reader.size
            if other.without_days:
                of_days = _slice_days(table, days, spark)
                rows[name] = _without_days(rows[name], other, table.partition_by, of_days)
            elif table.reads_by_day(other, read):
                rows[name] = rows[name].where(condition(table.partition_by, days))
        elif isinstance(read, SliceDays):
            rows[name] = _slice_days(table, days, spark)
        else:
            rows[name], size = (
                read.read(workspace.area, spark, days),
                size + read.size(workspace.area, days),
            )
    return InputRows(rows, size)


def _slice_days(table: Table, days: Sequence[date], spark: SparkSession) -> DataFrame:
    schema = schema_of(spark, f"{table.partition_by} DATE")
    return spark.createDataFrame([(day,) for day in days], schema)


def _without_days(rows: DataFrame, other: Table, day: str, of_days: DataFrame) -> DataFrame:
    """The rows of a table without days, with its own columns.

    If rows hold from a day on: for each of the days, in the column `day`, the row of each key that
    holds then.
    """
    own = rows.drop(other.partition_by, UNPARSED, MALFORMED)
    if not other.fingerprint_by:
        return own
    since = F.coalesce(other.fingerprint_by, F.to_date(F.lit("0001-01-01")))
    key = {*other.key} - {other.fingerprint_by}
    held = of_days.join(own, since <= of_days[day]).groupBy(day, *key)
    latest = F.max_by(F.struct(*own.columns), since).alias("latest")
    return held.agg(latest).select(day, "latest.*")


@contextmanager
def folder_near(workspace: Workspace) -> Iterator[Path | None]:
    """A folder for copies of inputs in an object store, if the executors can read it."""
    if workspace.lake.paths.is_local or workspace.area.executors_elsewhere:
        yield None
        return
    with TemporaryDirectory(prefix="backfill-inputs-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _days_read(
    read: Window, other: Table, days: Sequence[date], inputs: Mapping[date, Inputs]
) -> tuple[date, ...]:
    # Days of the same table that are computed now must not be read in their old state.
    own = set(days) if read.table is None else set()
    recorded = {day: inputs[day].tables.get(other.name, {}) for day in days}
    return tuple(
        sorted({d for day in days for d in read.days(day) if d.isoformat() in recorded[day]} - own)
    )


class CutRows(NamedTuple):
    """The rows of a step's days. Other rows of each call are counted meanwhile."""

    rows: DataFrame
    others: Sequence[tuple[Sequence[date], Observation]]


# The profiles and files of a small slice.
_Small = tuple[dict[date, DayProfile], list[DataFile]]
# For each call of a table's function: its days, and the returned rows.
Returned = Sequence[tuple[Sequence[date], DataFrame]]


def new_rows(
    table: Table, days: Sequence[date], read: Callable[[Sequence[date]], InputRows]
) -> tuple[Returned, int]:
    """The rows that the table's function returns for `days`, and its inputs' size in bytes.

    Raises UsageError if the function calls one that depends on more than its inputs.
    """
    calls = []
    size = 0
    for part in _days_together(table, days):
        inputs = read(part)
        rows = inputs.rows
        size += inputs.size
        if _day_by_day(table):
            rows = {
                name: _one_task_a_day(frame, table.partition_by, part)
                for name, frame in rows.items()
            }
        returned = table.compute(**rows)
        refuse_impure(table.name, returned, rows.values())
        calls.append((part, returned))
    return calls, size


def _days_together(table: Table, days: Sequence[date]) -> list[Sequence[date]]:
    """The days of each call of the function."""
    if table.needs_itself():
        # Each day is computed from the day before, one gapless range at a time.
        return [*consecutive(days)]
    if all(_is_of_same_day(table, read) for read in table.reads.values()):
        return [part for part in (days[::2], days[1::2]) if part]
    return [days]


def _is_of_same_day(table: Table, read: Read) -> bool:
    """True if no row of an input belongs to another day."""
    return (
        not isinstance(read, Window)
        or read.is_whole
        or (
            read.table is not None
            and read.first == read.last == 0
            and read.table.partition_by == table.partition_by
        )
    )


def _day_by_day(table: Table) -> bool:
    """True if a day is computed only from the same day of one other table."""
    reads = list(table.reads.values())
    is_one = len(reads) == 1 and isinstance(reads[0], Window) and not reads[0].is_whole
    return is_one and _is_of_same_day(table, reads[0])


def cut_to_days(table: Table, returned: Returned) -> CutRows:
    """Cut the returned rows to the days of each call.

    Each attempt to compute the rows needs its own cut, because a failed attempt counts some of
    them.
    """
    column = table.partition_by
    frames = []
    others = []
    for days, rows in returned:
        observation = Observation()
        is_of_days = f"coalesce({condition(column, days)}, false)"
        # As text, because Python has no dates after the year 9999.
        other = F.expr(f"CASE WHEN NOT {is_of_days} THEN coalesce(string({column}), 'no day') END")
        observed = observe(
            rows, observation, F.count(other).alias("rows"), F.collect_set(other).alias("days")
        )
        frames.append(observed.where(is_of_days))
        others.append((days, observation))
    new = reduce(DataFrame.unionByName, frames)
    # A delivered file has rows of only one day. So does the result of a day-by-day computation.
    if not (table.source() or _day_by_day(table)):
        new = _one_task_a_day(new, column, [day for days, _ in returned for day in days])
    return CutRows(new, others)


def _one_task_a_day(rows: DataFrame, column: str, days: Sequence[date]) -> DataFrame:
    """Put each day into one task: one file per day, and no shuffle in the audit."""
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    # Days differ in size. Several tasks per partition balance this.
    return rows.repartition(min(len(days), 4 * tasks), column)


def _days_around(table: Table, days: Sequence[date]) -> set[str]:
    """The days that returned rows may be about, if the function gets the inputs of `days`."""
    around = {*days}
    for read in table.reads.values():
        if isinstance(read, Window) and not table.reads_by_day(other := read.table or table, read):
            # With another day column, a day has rows about all days that read it.
            reach = read.last - read.first
            is_same = other.partition_by == table.partition_by
            first, last = (read.first, read.last) if is_same else (-reach, reach)
            around.update(days_around_any(days, first, last))
    return {*map(str, around)}


def _dropped(table: Table, new: CutRows) -> dict[str, int]:
    """The number of rows that were dropped, by their days.

    Raises BackfillError if rows are about days without an input.
    """
    dropped = {}
    for days, observation in new.others:
        found = observation.get
        on = {*found.get("days", ())}
        if strays := sorted(on - _days_around(table, days)):
            raise BackfillError(
                f"{table.name} returns {counted(found['rows'], 'row')} about other days, and it"
                f" reads no input for some of them: {named(strays)}.",
                unchanged=NOTHING_COMMITTED,
                next_step=(
                    f"Correct {table.partition_by} in its function, or leave these rows out there."
                    " Rows about neighbouring days need a window."
                ),
            )
        if on:
            dropped[ranges(map(date.fromisoformat, on))] = found["rows"]
    return dropped


@contextmanager
def _merged(
    table: Table, new: DataFrame, held: SliceRows, folder: str
) -> Iterator[tuple[DataFrame, set[date]]]:
    """The new rows with the `held` rows of other keys, and the days that keep rows.

    A key is unique within a day. Nulls in a key are equal. `new` is computed only once. Raises
    UsageError if the table in `folder` has other columns.
    """
    refuse_other_columns(folder, new.schema.json())
    new = new.persist()
    kept = new
    try:
        # All rows must be computed, so that rows about other days are counted.
        new.count()
        key = list(dict.fromkeys([table.partition_by, *table.key]))
        before = held.rows(new.sparkSession)
        keys = new.select(*key)
        same = reduce(Column.__and__, [before[name].eqNullSafe(keys[name]) for name in key])
        kept = before.join(keys, same, "left_anti").select(*new.columns).persist()
        days = {day for (day,) in kept.select(table.partition_by).distinct().collect()}
        yield new.unionByName(kept), days
    finally:
        kept.unpersist()
        new.unpersist()


@contextmanager
def _written(table: Table, new: CutRows, small: _Small | None, folder: str) -> Iterator[Computed]:
    """Write the new rows, unless they are `small`, and remove uncommitted files at the end."""
    column = table.partition_by
    profiles, files = small or (None, write_frame(new.rows, folder, column))
    schema = new.rows.schema
    commit = FileCommit(folder, column, files, schema.json())
    try:
        dropped = _dropped(table, new)
        read = partial(
            read_files,
            new.rows.sparkSession,
            folder,
            files,
            column,
            schema,
        )
        yield Computed(read, commit, profiles=profiles, dropped=dropped)
    finally:
        remove_files(folder, commit.uncommitted())


def _small(table: Table, new: DataFrame, folder: str, unique: Sequence[str]) -> _Small | None:
    """The profiles and files of a small slice, with one Spark job.

    Repeated keys of the columns `unique` are counted. None if a task has too many rows for this
    process, or if rows have values that Arrow or Python cannot represent (a date after the year
    9999). Then Spark must profile and write them.
    """
    try:
        # Only raw text is worth compiling, because parsing it takes long enough.
        with without_code_generation(new.sparkSession, unless=table.source() is not None):
            # The columns of `new` are known. For another frame, Spark would be asked.
            figures = with_figures(new, measures=table.all_measures, samples=table.all_samples)
            rows = to_arrow(_few(figures))
        profiles = small_profiles(
            rows,
            day=table.partition_by,
            about=table.fingerprint_by,
            key=unique,
            measures=list(table.all_measures),
            samples=list(table.all_samples),
        )
        return profiles, write_table(without_figures(rows), folder, table.partition_by)
    except (pa.ArrowException, OverflowError, UnicodeDecodeError):
        return None
    except PySparkException as error:
        if error.getCondition() != _TOO_MANY and "spark.driver.maxResultSize" not in str(error):
            raise
        return None


# The condition of F.raise_error. If the table's code raised it, the computation with Spark raises
# it again.
_TOO_MANY = "USER_RAISED_EXCEPTION"


def _few(rows: DataFrame) -> DataFrame:
    """The rows. Reading more than `MOST_ROWS` raises an error with the condition `_TOO_MANY`."""
    # The lower bits number the rows of a task.
    number = F.monotonically_increasing_id().bitwiseAND(2**33 - 1)
    too_many = F.raise_error(f"a task has more than {MOST_ROWS} rows").cast("boolean")
    return rows.where(F.when(number < MOST_ROWS, F.lit(True)).otherwise(too_many))


def changed_in_place(
    table: Table,
    builds: Mapping[date, Build],
    version: int,
    workspace: Workspace,
    spark: SparkSession,
) -> set[date]:
    """The days whose rows at `version` differ from their build, or whose files are unreadable.

    The builds must have the columns that the table declares now.
    """
    # Days without rows have no files.
    days = tuple(day for day, build in builds.items() if build.rows)
    try:
        held = stored_profiles(table, days, version, workspace, spark)
    except Exception as error:
        # Spark fails for all files if it cannot read one of them.
        if is_of_step(error):
            raise
        folder = workspace.lake.path(table.name)
        damaged = damaged_files(folder, days, version, Depth.BYTES)
        if not damaged:
            raise
        held = stored_profiles(
            table, tuple(day for day in days if day not in damaged), version, workspace, spark
        )
    return {
        day for day in days if day not in held or held[day].fingerprint != builds[day].fingerprint
    }


def stored_profiles(
    table: Table, days: Collection[date], version: int, workspace: Workspace, spark: SparkSession
) -> dict[date, DayProfile]:
    """The profiles of the stored rows of these days, without measures and samples."""
    if not days:
        return {}
    held = Slice(table.name, table.partition_by, tuple(days), version)
    rows = SliceRows.of(workspace.lake, held, table.columns).rows(spark)
    return profiles(
        rows, day=table.partition_by, about=table.fingerprint_by, measures={}, samples={}
    )
