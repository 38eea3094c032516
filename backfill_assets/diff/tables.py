"""Compare tables day by day, with at most one day of both sides in memory. No Spark.

A day is not read if its data files are the same, or if its rows were recorded with the same
fingerprint.
"""

import json
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
from backfill_assets.diff.diff import DayDiff, Diff, Diffs, TableDiff, diff_id
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.columns import type_words
from backfill_assets.lake.delta import open_table, other_partitioning
from backfill_assets.lake.integrity import damaged_files, data_files, day_files


@dataclass(frozen=True)
class Side:
    """The Delta table in `folder`, partitioned by its day in `column`, as it stood at `version`
    (-1: there is no table).

    `id`: Delta's id of the table, where it is known; one that was deleted and made anew has
    another.
    """

    folder: str
    column: str
    version: int
    id: str = ""

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @cached_property
    def log(self) -> DeltaTable:
        """Only of one that exists. TableUnreadable if it is not there any more, or is not
        partitioned by its day.
        """
        try:
            table = open_table(self.folder, self.version)
        except TableUnreadable as error:
            raise TableUnreadable(self._unreadable(str(error))) from None
        if table is None:
            raise TableUnreadable(self._unreadable("There is no table."))
        if self.id and str(table.metadata().id) != self.id:
            raise TableUnreadable(self._unreadable("Another table was made there since."))
        if other := other_partitioning(table, self.column):
            raise TableUnreadable(self._unreadable(f"It {other}."))
        return table

    @cached_property
    def all_days(self) -> set[date]:
        """Every day that has data files."""
        return {day for day, _, _ in day_files(self.log)} if self.exists else set()

    def files(self, days: Collection[date]) -> dict[date, str]:
        """Of each of these days that has data files, a hash of their names."""
        return data_files(self.log, days) if self.exists else {}

    def rows(self, days: Collection[date]) -> dict[date, int | None]:
        """Of each of these days its rows, as the log counts them; None where it does not."""
        rows: dict[date, int | None] = dict.fromkeys(days, 0)
        for day, _, count in day_files(self.log, days) if self.exists else ():
            before = rows[day]
            rows[day] = None if before is None or count is None else before + count
        return rows

    @cached_property
    def types(self) -> dict[str, Any]:
        """The columns that the rows are compared by: each but the day, with its type as Delta has
        it.
        """
        fields = json.loads(self.log.schema().to_json())["fields"] if self.exists else []
        return {field["name"]: field["type"] for field in fields if field["name"] != self.column}

    def day(self, day: date) -> pa.Table:
        """The rows of a day, without the day column. TableUnreadable if its files are gone or
        damaged, or only Spark reads them.
        """
        if not self.exists:
            return pa.table({})
        names = list(self.types)
        try:
            files = self.log.to_pyarrow_dataset(
                file_pruning_predicate=[(self.column, "=", str(day))]
            )
            return files.to_table(
                columns=names, filter=ds.field(self.column) == pa.scalar(day, pa.date32())
            )
        except DeltaProtocolError as error:
            why = f"It is stored in a way that pyarrow does not read: {str(error).splitlines()[0]}"
        except (OSError, pa.ArrowException, DeltaError) as error:
            lost = damaged_files(self.folder, [day], self.version).get(day)
            why = (
                f"On {day}, {lost or str(error).splitlines()[0][:300]}. Delta's vacuum must keep"
                " what is compared."
            )
        raise TableUnreadable(self._unreadable(why))

    def _unreadable(self, why: str) -> str:
        name = "/".join(self.folder.rsplit("/", 2)[1:])
        return f"Version {self.version} of {name} cannot be compared. {why} Nothing was changed."


def stored_column(folder: str, version: int) -> str:
    """The column that a table is partitioned by, where nobody declares it any more; "" where that
    is not known.
    """
    with suppress(TableUnreadable):
        table = open_table(folder, version)
        return ", ".join(table.metadata().partition_columns) if table else ""
    return ""


class RecordedRows(NamedTuple):
    """What the ledger says of a day's rows."""

    fingerprint: str
    rows: int


@dataclass(frozen=True)
class TablePair:
    """Two versions of a table, of each day in `days` the sides before and after; `before` and
    `after` say it in words.

    `key`: the columns that are unique within a day; None compares rows as a whole. `recorded`: by
    day and the hash of the names of its data files (`Side.files`), what is known of its rows.
    """

    days: Mapping[date, tuple[Side, Side]]
    key: Sequence[str] | None
    before: str = ""
    after: str = ""
    recorded: Mapping[tuple[date, str], RecordedRows] = field(default_factory=dict)

    @cached_property
    def files(self) -> dict[date, tuple[str, str]]:
        """Of each day the hashes of the names of its data files, "" where it has none."""
        by_side: dict[Side, list[date]] = {}
        for day, sides in self.days.items():
            for side in set(sides):
                by_side.setdefault(side, []).append(day)
        files = {side: side.files(days) for side, days in by_side.items()}
        return {
            day: (files[one].get(day, ""), files[other].get(day, ""))
            for day, (one, other) in self.days.items()
        }

    @cached_property
    def same(self) -> dict[date, int]:
        """The days that need not be read, with their rows."""
        same = dict[date, int]()
        uncounted = dict[Side, list[date]]()
        for day, (before, after) in self.days.items():
            files = self.files[day]
            known = [self.recorded.get((day, of_side)) for of_side in files]
            if known[0] and known[1] and known[0].fingerprint == known[1].fingerprint:
                same[day] = known[0].rows
            elif files[0] == files[1] and (before.folder == after.folder or not files[0]):
                uncounted.setdefault(before, []).append(day)
        for side, days in uncounted.items():
            same |= {day: rows for day, rows in side.rows(days).items() if rows is not None}
        return same

    @property
    def schemas(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """The columns of both sides, of each pair of versions where there is a table on both."""
        pairs = dict.fromkeys(
            pair for pair in self.days.values() if pair[0].exists and pair[1].exists
        )
        return [(before.types, after.types) for before, after in pairs]

    def compared(self) -> dict[str, Any]:
        """What is compared, as JSON values: versions, names of data files, columns and key."""
        days = {
            str(day): [*self.files[day], *(side.version for side in sides)]
            for day, sides in sorted(self.days.items())
        }
        return {
            "days": days,
            "key": self.key,
            "schemas": self.schemas,
            "words": [self.before, self.after],
        }


def diff_tables(
    pairs: Mapping[str, TablePair], before: str, after: str, diffs: Diffs | None = None
) -> Diff:
    """Compare these tables; `before` and `after` say in words what is compared.

    With `diffs`, a comparison that was made before is read back from there, and a new one is kept.
    Raises TableUnreadable for a version or a data file that is not there any more; nothing is kept
    then.
    """
    compared = {name: pair.compared() for name, pair in pairs.items()}
    of_this = diff_id({"form": 1, "before": before, "after": after, "tables": compared})
    kept = diffs.read(of_this) if diffs else None
    if kept:
        return kept
    tables = tuple(_diff_table(name, pair) for name, pair in pairs.items())
    diff = Diff(of_this, before, after, datetime.now(UTC).isoformat(timespec="seconds"), tables)
    if diffs:
        diffs.keep(diff)
    return diff


def _diff_table(name: str, pair: TablePair) -> TableDiff:
    """Compare one table."""
    totals = TableTotals()
    days = tuple(_days(pair, totals))
    added, removed, retyped = _column_changes(pair)
    return TableDiff(
        name=name,
        before=pair.before,
        after=pair.after,
        key=_key(pair),
        keyed=pair.key is not None,
        columns_added=added,
        columns_removed=removed,
        columns_retyped=retyped,
        days=days,
        same_days=tuple(str(day) for day in sorted(pair.same)),
        same_rows=sum(pair.same.values()),
        columns=tuple(totals.columns[name].column() for name in sorted(totals.columns)),
        added_rows=tuple(totals.added_rows),
        removed_rows=tuple(totals.removed_rows),
    )


def _key(pair: TablePair) -> tuple[str, ...]:
    columns = {side.column for sides in pair.days.values() for side in sides}
    return tuple(name for name in pair.key or () if name not in columns)


def _days(pair: TablePair, totals: TableTotals) -> Iterator[DayDiff]:
    key = _key(pair)
    for day in sorted(set(pair.days) - set(pair.same)):
        sides = pair.days[day]
        before, after = (side.day(day) for side in sides)
        # Without a table there are no rows, of the columns of the other side: none is new.
        before = before if sides[0].exists else after.slice(0, 0)
        after = after if sides[1].exists else before.slice(0, 0)
        # A key column that neither side has tells nothing apart.
        of_both = [
            name for name in key if name in before.column_names or name in after.column_names
        ]
        yield compare_day(str(day), before, after, of_both, pair.key is not None, totals)


def _column_changes(pair: TablePair) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
    """The columns that came, those that went, and those whose type changed, in words."""
    added = dict[str, None]()
    removed = dict[str, None]()
    retyped = dict[str, str]()
    for before, after in pair.schemas:
        added |= dict.fromkeys(name for name in after if name not in before)
        removed |= dict.fromkeys(name for name in before if name not in after)
        for name, kind in before.items():
            if name in after and after[name] != kind:
                words = [type_words(each) for each in (kind, after[name])]
                retyped[name] = (
                    f"{words[0]}, now {words[1]}" if words[0] != words[1] else f"another {words[0]}"
                )
    return tuple(added), tuple(removed), retyped
