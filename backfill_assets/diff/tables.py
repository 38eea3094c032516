"""Compare tables day by day, with at most one day of both sides in memory. No Spark.

A day is not read if its data files are the same, or if its rows were recorded with the same
fingerprint.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError

from backfill_assets.diff.days import TableTotals, compare_day
from backfill_assets.diff.diff import DayDiff, Diff, Diffs, TableDiff, ToleratedColumn, diff_id
from backfill_assets.diff.masking import masked_diff
from backfill_assets.diff.tolerance import (
    NO_TOLERANCES,
    Tolerances,
    refuse_unknown_columns,
    tolerances_of,
)
from backfill_assets.errors import NOTHING_CHANGED, TableUnreadable, first_line
from backfill_assets.grouping import grouped
from backfill_assets.lake.columns import column_changes, column_types
from backfill_assets.lake.delta import open_table, other_partitioning
from backfill_assets.lake.integrity import damaged_files
from backfill_assets.lake.listed_files import data_files, rows_by_day
from backfill_assets.lake.storage import lake_and_table


def diff_tables(
    pairs: Mapping[str, "TablePair"],
    before: str,
    after: str,
    diffs: Diffs | None = None,
    tolerances: Tolerances = NO_TOLERANCES,
) -> Diff:
    """Compare tables by name. `before` and `after` are texts for the two sides.

    With `diffs`, an earlier comparison of the same sides is read from there, and a new one is
    stored. Raises TableUnreadable, and stores nothing, for a version or a file that is gone. Raises
    UsageError for a tolerance that no column can have.
    """
    if tolerances:
        doubles = {column for pair in pairs.values() for column in pair.doubles}
        refuse_unknown_columns(tolerances, doubles)
    contents = {name: pair.contents() for name, pair in pairs.items()}
    compared = {"form": 4, "before": before, "after": after, "tables": contents}
    # In the order in which tolerances were typed: the first that fits a column counts.
    typed = [[name, each.size, each.is_relative] for name, each in tolerances.items()]
    new_id = diff_id(compared | {"tolerances": typed})
    if diffs and (stored := diffs.read(new_id)):
        return stored
    tables = tuple(
        masked_diff(_diff_table(name, pair, tolerances), pair.masked)
        for name, pair in pairs.items()
    )
    diff = Diff(new_id, before, after, datetime.now(UTC).isoformat(timespec="seconds"), tables)
    if diffs:
        diffs.keep(diff)
    return diff


@dataclass(frozen=True)
class Side:
    """The Delta table in `folder` at `version` (-1: there is no table), partitioned by `column`.

    `id` is Delta's id of the table, if it is known. A recreated table has another id. `listed` is a
    hash of its data files with their sizes and times, for a side whose files may be replaced.
    """

    folder: str
    column: str
    version: int
    id: str = ""
    listed: str = ""

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @cached_property
    def log(self) -> DeltaTable:
        """The log of a side that exists.

        Raises TableUnreadable if the version is gone, if the table was recreated, or if it is not
        partitioned by its day.
        """
        try:
            table = open_table(self.folder, self.version)
        except TableUnreadable as error:
            raise self._unreadable(str(error)) from None
        if table is None:
            raise self._unreadable("There is no table.")
        if self.id and str(table.metadata().id) != self.id:
            raise self._unreadable("Another table was created there since.")
        if other := other_partitioning(table.metadata().partition_columns, self.column):
            raise self._unreadable(f"It {other}.")
        return table

    @cached_property
    def all_days(self) -> set[date]:
        """Every day that has data files."""
        return set(rows_by_day(self.log)) if self.exists else set()

    def files(self, days: Collection[date]) -> dict[date, str]:
        """A hash of the names of the data files, for each of these days that has files."""
        return data_files(self.log, days) if self.exists else {}

    def rows(self, days: Collection[date]) -> dict[date, int | None]:
        """The row count of each of these days in the log; None where the log has no count."""
        counted = rows_by_day(self.log, days) if self.exists else {}
        return dict.fromkeys(days, 0) | counted

    @cached_property
    def types(self) -> dict[str, Any]:
        """The columns to compare: all but the day, with Delta's type of each."""
        return column_types(self.log.schema(), self.column) if self.exists else {}

    def day(self, day: date) -> pa.Table:
        """The rows of a day, without the day column.

        Raises TableUnreadable if files are missing or damaged, or if only Spark can read them.
        """
        if not self.exists:
            return pa.table({})
        try:
            files = self.log.to_pyarrow_dataset(
                file_pruning_predicate=[(self.column, "=", str(day))]
            )
            is_day = ds.field(self.column) == pa.scalar(day, pa.date32())
            return files.to_table(columns=list(self.types), filter=is_day)
        except DeltaProtocolError as error:
            why = f"pyarrow does not read how it is stored: {first_line(error)}"
        except (OSError, pa.ArrowException, DeltaError) as error:
            lost = damaged_files(self.folder, [day], self.version).get(day)
            why = (
                f"On {day}, {lost or first_line(error, 300)}."
                " Delta's vacuum must keep compared files."
            )
        raise self._unreadable(why)

    def _unreadable(self, why: str) -> TableUnreadable:
        _, name = lake_and_table(self.folder)
        return TableUnreadable(
            f"Version {self.version} of {name} cannot be compared. {why}",
            unchanged=NOTHING_CHANGED,
        )


def stored_column(folder: str, version: int) -> str:
    """The partition column of a table that is no longer declared; "" if it cannot be read."""
    with suppress(TableUnreadable):
        table = open_table(folder, version)
        return ", ".join(table.metadata().partition_columns) if table else ""
    return ""


class RecordedRows(NamedTuple):
    """The ledger's facts about a day's rows."""

    fingerprint: str
    rows: int


@dataclass(frozen=True)
class TablePair:
    """Two versions of a table: the sides of each day, and a text for each side."""

    days: Mapping[date, tuple[Side, Side]]
    key: Sequence[str] | None
    before: str = ""
    after: str = ""
    recorded: Mapping[tuple[date, str], RecordedRows] = field(default_factory=dict)
    lineage: Sequence[str] = ()
    masked: Sequence[str] = ()

    @cached_property
    def files(self) -> dict[date, tuple[str, str]]:
        """The hashes of the names of each day's data files before and after; "" without files."""
        by_side = grouped((side, day) for day, sides in self.days.items() for side in set(sides))
        files = {side: side.files(days) for side, days in by_side.items()}
        return {
            day: (files[before].get(day, ""), files[after].get(day, ""))
            for day, (before, after) in self.days.items()
        }

    @cached_property
    def same(self) -> dict[date, int]:
        """The row counts of the days that need not be read."""
        same = dict[date, int]()
        uncounted = dict[Side, list[date]]()
        for day, (before, after) in self.days.items():
            old_files, new_files = self.files[day]
            old = self.recorded.get((day, old_files))
            new = self.recorded.get((day, new_files))
            if old and new and old.fingerprint == new.fingerprint:
                same[day] = old.rows
            elif old_files == new_files and (before.folder == after.folder or not old_files):
                uncounted.setdefault(before, []).append(day)
        for side, days in uncounted.items():
            same |= {day: rows for day, rows in side.rows(days).items() if rows is not None}
        return same

    @cached_property
    def schemas(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """The columns before and after, once for each pair of versions that both exist."""
        return [
            (self._named(before.types), self._named(after.types))
            for before, after in self._versions
            if before.exists and after.exists
        ]

    @cached_property
    def doubles(self) -> set[str]:
        """The columns that may have a tolerance: doubles outside the key, if there is a key."""
        if self.key is None:
            return set()
        columns = [column for both in self.schemas for types in both for column in types.items()]
        doubles = {name for name, kind in columns if kind in ("double", "float")}
        return doubles - set(self.key_in_day)

    @property
    def key_in_day(self) -> tuple[str, ...]:
        """The key without the day column."""
        day_columns = {self.name_of(side.column) for sides in self._versions for side in sides}
        key = map(self.name_of, self.key or ())
        return tuple(name for name in key if name not in day_columns)

    def name_of(self, column: str) -> str:
        """The one name of a column. Names that differ only in case belong to one column."""
        return self._names.get(column.casefold(), column)

    @cached_property
    def _names(self) -> dict[str, str]:
        """Names by lower case: the spelling in key or lineage, else the one stored last."""
        stored = [name for sides in self._versions for side in sides for name in side.types]
        return {name.casefold(): name for name in [*stored, *(self.key or ()), *self.lineage]}

    def _named(self, types: Mapping[str, Any]) -> dict[str, Any]:
        return {self.name_of(name): kind for name, kind in types.items()}

    @property
    def _versions(self) -> Collection[tuple[Side, Side]]:
        """The different pairs of a side before and a side after."""
        return dict.fromkeys(self.days.values())

    def rows(self, day: date) -> tuple[pa.Table, pa.Table]:
        """The rows of a day on both sides. A column has one name on both."""
        old, new = self.days[day]
        before = old.day(day)
        after = new.day(day)
        # A table that does not exist gets the columns of the other side, so that no column is new.
        before = before if old.exists else after.slice(0, 0)
        after = after if new.exists else before.slice(0, 0)
        before, after = (
            rows.rename_columns(list(map(self.name_of, rows.column_names)))
            for rows in (before, after)
        )
        return before, after

    def contents(self) -> dict[str, Any]:
        """The compared versions, names of data files, columns and key, as JSON values."""
        days = {
            str(day): [*self.files[day], before.version, after.version]
            for day, (before, after) in sorted(self.days.items())
        }
        texts = [self.before, self.after]
        return {
            "days": days,
            "key": self.key,
            "lineage": list(self.lineage),
            "masked": list(self.masked),
            "listed": sorted({side.listed for sides in self._versions for side in sides}),
            "schemas": self.schemas,
            "words": texts,
        }


def _diff_table(name: str, pair: TablePair, typed: Tolerances) -> TableDiff:
    totals = TableTotals()
    tolerances = tolerances_of(sorted(pair.doubles), typed)
    days = tuple(_compare_days(pair, totals, tolerances))
    added = dict[str, None]()
    removed = dict[str, None]()
    retyped = dict[str, str]()
    for before, after in pair.schemas:
        changes = column_changes(before, after)
        added |= dict.fromkeys(changes.new)
        removed |= dict.fromkeys(changes.gone)
        retyped |= changes.retyped
    return TableDiff(
        name=name,
        before=pair.before,
        after=pair.after,
        key=pair.key_in_day,
        keyed=pair.key is not None,
        columns_added=tuple(added),
        columns_removed=tuple(removed),
        columns_retyped=retyped,
        days=days,
        same_days=tuple(map(str, sorted(pair.same))),
        same_rows=sum(pair.same.values()),
        columns=tuple(changes.column() for _, changes in sorted(totals.columns.items())),
        added_rows=tuple(totals.added_rows),
        removed_rows=tuple(totals.removed_rows),
        groups=totals.groups.changes(),
        tolerated=tuple(
            ToleratedColumn(column, tolerance, totals.within[column])
            for column, tolerance in tolerances.items()
        ),
    )


def _compare_days(
    pair: TablePair, totals: TableTotals, tolerances: Tolerances
) -> Iterator[DayDiff]:
    for day in sorted(pair.days.keys() - pair.same.keys()):
        before, after = pair.rows(day)
        # A key column that neither side has does not distinguish rows.
        columns = {*before.column_names, *after.column_names}
        key = [name for name in pair.key_in_day if name in columns]
        key_in_day = None if pair.key is None else key
        yield compare_day(str(day), before, after, key_in_day, totals, pair.lineage, tolerances)
