"""The differences between two versions of tables, as values and as JSON, stored in the lake.

For every day, rows before = removed + changed + unchanged, and rows after = added + changed +
unchanged. Diffs are stored as `_diffs/<id>.json`. A diff that cannot be read is computed again.
This module reads no table.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cache, cached_property
from itertools import zip_longest
from typing import Any

from pydantic import TypeAdapter

from backfill_assets.diff.tolerance import Tolerance
from backfill_assets.digest import digest
from backfill_assets.lake.storage import Documents, Paths

LONGEST_SHOWN = 60  # characters of one value


@dataclass(frozen=True)
class NumberChanges:
    """The distribution of after - before over changed rows with a finite number on both sides.

    `up` and `down` count these rows, `other` counts all other changed rows. The sums are over the
    counted rows. All figures are 0 where there are only other rows.
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
    """The number of rows that changed from one value to another. Long values are cut."""

    before: Any
    after: Any
    rows: int


@dataclass(frozen=True)
class Example:
    """One changed value. `key` has the key columns except the day."""

    day: str
    key: Mapping[str, Any]
    before: Any
    after: Any


@dataclass(frozen=True)
class ExampleRow:
    """A row that was added or removed: its key, or all values without a key; without the day."""

    day: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class ColumnDiff:
    """A column that differs in `changed` of the rows that both sides have.

    A column of numbers has `numbers`, any other column has `frequent`. Only the columns of a whole
    table have `examples`.
    """

    name: str
    changed: int
    numbers: NumberChanges | None = None
    frequent: tuple[ValueChange, ...] = ()
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class NestedNulls:
    """The nulls and the values at one path inside a struct, an array or a map, on both sides."""

    path: str
    nulls_before: int
    values_before: int
    nulls_after: int
    values_after: int


@dataclass(frozen=True)
class GroupChange:
    """The change of a figure of one column over the rows with one value of a key column.

    `figure` is "sum" or "mean"; the sum of the column "" is the number of rows. `key` is a key
    column or "day". `size` is relative to the magnitudes before. A masked column has no figures.
    """

    key: str
    value: str
    column: str
    figure: str
    before: float | None
    after: float | None
    size: float


@dataclass(frozen=True)
class ToleratedColumn:
    """A column of doubles with a tolerance. `rows` differ within it, and count as unchanged."""

    name: str
    tolerance: Tolerance
    rows: int


@dataclass(frozen=True)
class DayDiff:
    """The differences of one day that was read.

    Rows with a repeated key are never `changed`. They are unchanged if the other side has an equal
    row, otherwise removed or added. `repeated_keys_*` counts such keys.
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
    columns: tuple[ColumnDiff, ...] = ()
    nested_nulls: tuple[NestedNulls, ...] = ()

    @property
    def differs(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class TableDiff:
    """The differences of one table.

    `days` were read. `same_days` were not read: their files or fingerprints are the same. `key` has
    no day column. Rows of a table without a key (`keyed` is false) are only added and removed.
    `columns` are over all days: the median and the frequent changes of many days are close but not
    exact. `added_rows` and `removed_rows` are examples. `groups` has the largest change per key
    column and column, over the days that were read. `tolerated` has each column with a tolerance.
    """

    name: str
    before: str
    after: str
    key: tuple[str, ...] = ()
    keyed: bool = True
    columns_added: tuple[str, ...] = ()
    columns_removed: tuple[str, ...] = ()
    columns_retyped: Mapping[str, str] = field(default_factory=dict)
    days: tuple[DayDiff, ...] = ()
    same_days: tuple[str, ...] = ()
    same_rows: int = 0
    columns: tuple[ColumnDiff, ...] = ()
    added_rows: tuple[ExampleRow, ...] = ()
    removed_rows: tuple[ExampleRow, ...] = ()
    groups: tuple[GroupChange, ...] = ()
    tolerated: tuple[ToleratedColumn, ...] = ()

    def total(self, figure: str) -> int:
        """The sum of a figure such as `added` over all days. Days not read are unchanged."""
        same = self.same_rows if figure in ("rows_before", "rows_after", "unchanged") else 0
        return same + sum(getattr(day, figure) for day in self.days)

    @cached_property
    def days_that_differ(self) -> list[date]:
        return [date.fromisoformat(day.day) for day in self.days if day.differs]

    @property
    def differs(self) -> bool:
        """True if rows or columns differ."""
        return bool(
            self.days_that_differ
            or self.columns_added
            or self.columns_removed
            or self.columns_retyped
        )

    @property
    def most_changed(self) -> Sequence[ColumnDiff]:
        """The columns, those with the most changed rows first."""
        return by_changes(self.columns)


def by_changes(columns: Sequence[ColumnDiff]) -> Sequence[ColumnDiff]:
    """Sort columns by changed rows, most first."""
    return sorted(columns, key=lambda column: (-column.changed, column.name))


def examples_of(table: TableDiff) -> Iterator[str]:
    """One changed value per column, most changed first; then an added and a removed row.

    More changed values of each column follow.
    """
    values = [
        [(column.name, example) for example in column.examples] for column in table.most_changed
    ]
    rounds = [_changed(*example) for group in zip_longest(*values) for example in group if example]
    first = sum(1 for examples in values if examples)
    yield from rounds[:first]
    for verb, rows in (("added", table.added_rows), ("removed", table.removed_rows)):
        for row in rows[:1]:
            yield f"{' '.join([row.day, *keys_text(row.values)])}: {verb}"
    yield from rounds[first:]


def _changed(name: str, example: Example) -> str:
    row = " ".join([example.day, *keys_text(example.key)])
    return f"{row}: {name} {value_text(example.before)} → {value_text(example.after)}"


def keys_text(key: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value_text(value)}" for name, value in key.items()]


def value_text(value: Any) -> str:
    """The JSON of a value, which tells text, numbers and null apart. A long one is cut."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


@dataclass(frozen=True)
class Diff:
    """The differences between two sets of tables.

    `id` is a hash of what was compared. `before` and `after` are texts for the two sides. `at` is
    the time of the comparison in UTC.
    """

    id: str
    before: str
    after: str
    at: str
    tables: tuple[TableDiff, ...] = ()

    @property
    def differs(self) -> bool:
        return any(table.differs for table in self.tables)

    def contents(self) -> str:
        """The diff as JSON, as it is stored."""
        return json.dumps(asdict(self), ensure_ascii=False)


def diff_id(compared: Mapping[str, Any]) -> str:
    """A hash of the compared sides, given as JSON values."""
    return digest(json.dumps(compared, sort_keys=True), length=12)


def read_diff(contents: str | bytes) -> Diff:
    """Read the JSON of `Diff.contents`. Raises ValueError for any other text."""
    return _adapter().validate_python(json.loads(contents))


@cache
def _adapter() -> TypeAdapter[Diff]:
    return TypeAdapter(Diff)


@dataclass(frozen=True)
class Diffs:
    """The stored diffs of the lake at `root`, a directory or an object-store prefix."""

    root: str

    def read(self, diff_id: str) -> Diff | None:
        """The diff with this id; None if there is none, or if it cannot be read."""
        try:
            diff = read_diff(self._documents.read(f"{diff_id}.json"))
        except (OSError, ValueError):
            return None
        return diff if diff.id == diff_id else None

    def keep(self, diff: Diff) -> None:
        """Store a diff. It replaces one with the same id."""
        self._write(f"{diff.id}.json", diff.contents())

    def keep_page(self, diff_id: str, page: str) -> str:
        """Store the HTML page of a diff, and return its address."""
        self._write(f"{diff_id}.html", page)
        return f"{self._documents.folder}/{diff_id}.html"

    def _write(self, name: str, text: str) -> None:
        # A text in a table may have half a surrogate pair, which a file cannot store.
        self._documents.write(name, text.encode(errors="backslashreplace").decode())

    @property
    def _documents(self) -> Documents:
        return Documents(Paths(self.root).diffs)
