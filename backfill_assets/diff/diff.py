"""What differs between two versions of tables, as values and as JSON, stored in the lake.

For every day, rows before = removed + changed + unchanged, and rows after = added + changed +
unchanged. Diffs are stored as `_diffs/<id>.json`. One that cannot be read is made again. Nothing
here reads a table.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

from backfill_assets.lake.storage import Documents, Paths


@dataclass(frozen=True)
class NumberChanges:
    """The distribution of after - before over the changed rows that have a finite number on both
    sides; `other`: the others.

    The sums are of the numbers before and after in these rows. All of it is 0 where there are only
    others.
    """

    up: int = 0
    down: int = 0
    other: int = 0
    least: float = 0
    median: float = 0
    mean: float = 0
    most: float = 0
    sum_before: float = 0
    sum_after: float = 0


@dataclass(frozen=True)
class ValueChange:
    """How many rows changed from one value to another; each as JSON has it, long ones cut off."""

    before: Any
    after: Any
    rows: int


@dataclass(frozen=True)
class Example:
    """One changed value. `key` has the key's columns, but for the day."""

    day: str
    key: Mapping[str, Any]
    before: Any
    after: Any


@dataclass(frozen=True)
class ExampleRow:
    """A row that was added or removed: its key, or all of it where there is no key; without the day
    column.
    """

    day: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class ColumnDiff:
    """A column that differs in some of the rows that both sides have. `numbers` of a column of
    numbers, `frequent` of others.

    `examples` are only given of a whole table.
    """

    name: str
    changed: int
    numbers: NumberChanges | None = None
    frequent: Sequence[ValueChange] = ()
    examples: Sequence[Example] = ()


@dataclass(frozen=True)
class DayDiff:
    """One day that was read. Rows of a key that stands more than once on a side are never
    `changed`: those that have an equal on the other side are unchanged, the others were removed or
    added. `repeated_keys_*` counts such keys.
    """

    day: str
    rows_before: int
    rows_after: int
    added: int
    removed: int
    changed: int
    unchanged: int
    repeated_keys_before: int = 0
    repeated_keys_after: int = 0
    columns: Sequence[ColumnDiff] = ()

    @property
    def differs(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class TableDiff:
    """One table. `days` were read; those of `same_days` were not, because their files or
    fingerprints are the same.

    `key` without the day column; of a table without a key (`keyed` is false) rows are only added
    and removed. `columns` are those of all days together: the median and the frequent changes of
    many days are close, and not exact. `added_rows`, `removed_rows`: a few of them.
    """

    name: str
    before: str
    after: str
    key: Sequence[str] = ()
    keyed: bool = True
    columns_added: Sequence[str] = ()
    columns_removed: Sequence[str] = ()
    columns_retyped: Mapping[str, str] = field(default_factory=dict)
    days: Sequence[DayDiff] = ()
    same_days: Sequence[str] = ()
    same_rows: int = 0
    columns: Sequence[ColumnDiff] = ()
    added_rows: Sequence[ExampleRow] = ()
    removed_rows: Sequence[ExampleRow] = ()

    def total(self, figure: str) -> int:
        """The sum of a figure of all days, such as `added`; rows of days that were not read are
        unchanged.
        """
        same = self.same_rows if figure in ("rows_before", "rows_after", "unchanged") else 0
        return same + sum(getattr(day, figure) for day in self.days)

    @cached_property
    def days_that_differ(self) -> list[date]:
        return [date.fromisoformat(day.day) for day in self.days if day.differs]

    @property
    def differs(self) -> bool:
        """Whether rows or columns do."""
        return bool(
            self.days_that_differ
            or self.columns_added
            or self.columns_removed
            or self.columns_retyped
        )


@dataclass(frozen=True)
class Diff:
    """`id` is a hash of what was compared; `before` and `after` say it in words; `at` is when, in
    UTC.
    """

    id: str
    before: str
    after: str
    at: str
    tables: Sequence[TableDiff] = ()

    @property
    def differs(self) -> bool:
        return any(table.differs for table in self.tables)

    def contents(self) -> str:
        """The diff as JSON, as it is kept."""
        return json.dumps(asdict(self), ensure_ascii=False)


def diff_id(compared: Mapping[str, Any]) -> str:
    """A hash of what is compared, which is given as JSON values."""
    return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()[:12]


def read_diff(contents: str | bytes) -> Diff:
    """The diff that `Diff.contents` wrote; ValueError, KeyError or TypeError for anything else."""
    values = json.loads(contents)
    return Diff(**{**values, "tables": tuple(map(_table, values["tables"]))})


def _table(values: Mapping[str, Any]) -> TableDiff:
    days = tuple(
        DayDiff(**{**day, "columns": tuple(map(_column, day["columns"]))}) for day in values["days"]
    )
    rows = {
        name: tuple(ExampleRow(**row) for row in values[name])
        for name in ("added_rows", "removed_rows")
    }
    known: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return TableDiff(
        **known | rows | {"days": days, "columns": tuple(map(_column, values["columns"]))}
    )


def _column(values: Mapping[str, Any]) -> ColumnDiff:
    numbers = NumberChanges(**values["numbers"]) if values["numbers"] else None
    frequent = tuple(ValueChange(**each) for each in values["frequent"])
    examples = tuple(Example(**each) for each in values["examples"])
    return ColumnDiff(values["name"], values["changed"], numbers, frequent, examples)


@dataclass(frozen=True)
class Diffs:
    """The diffs of the lake at `root`, a directory or an object-store prefix."""

    root: str

    def read(self, diff_id: str) -> Diff | None:
        """The diff of that id; None if there is none, or it is not what was kept any more."""
        try:
            diff = read_diff(self._documents.read(f"{diff_id}.json"))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return diff if diff.id == diff_id else None

    def keep(self, diff: Diff) -> None:
        """Write a diff, in place of one of the same id."""
        self._write(f"{diff.id}.json", diff.contents())

    def keep_page(self, diff_id: str, page: str) -> str:
        """Write the page of a diff beside it; where it is."""
        self._write(f"{diff_id}.html", page)
        return f"{self._documents.folder}/{diff_id}.html"

    def _write(self, name: str, text: str) -> None:
        # Text of a table may hold half a surrogate pair, which no file takes.
        self._documents.write(name, text.encode(errors="backslashreplace").decode())

    @property
    def _documents(self) -> Documents:
        return Documents(Paths(self.root).diffs)
