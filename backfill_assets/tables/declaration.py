"""`@table`: a pure function of DataFrames, declared with its promises.

A Table is a value: what it reads, its grain and key, the types of its columns, the rules its days must pass, what is
measured on the way. It knows no Spark session, no path and no Dagster; `build` carries it out, `assets` makes it an asset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any

from backfill_assets.calendar import around
from backfill_assets.quality.rules import Rule, types_as_declared
from backfill_assets.sources.protocol import Source
from backfill_assets.tables.code_version import code_version


@dataclass(frozen=True)
class Window:
    """The days of an input that a day S needs: S+first .. S+last, of which those up to S+wait_for must be there.

    `table` None is the table itself (then `last` is before S). Days outside the calendar are never waited for.
    """

    table: Table | None
    first: int = 0
    last: int = 0
    wait_for: int = 0

    def days(self, day: date) -> list[date]:
        return around(day, self.first, self.last)

    def needed(self, day: date) -> list[date]:
        return around(day, self.first, self.last_needed)

    @property
    def last_needed(self) -> int:
        return min(self.last, self.wait_for)


@dataclass(frozen=True)
class SliceDays:
    """An input of one column: the days being computed, so that a day without rows is still a day."""


Read = Window | SliceDays | Source


@dataclass(frozen=True)
class Table:
    """One daily table and what it promises."""

    name: str
    compute: Callable[..., Any] = field(repr=False)
    partition_by: str
    columns: str
    reads: Mapping[str, Read]
    rules: Sequence[Rule]
    version: str
    key: Sequence[str] = ()
    fingerprint_by: str | None = None
    measures: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[Table] = ()
    pool: str = "spark"

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self.compute(*inputs, **named)

    @property
    def promise(self) -> str:
        """The first line of the function's docstring."""
        return (self.compute.__doc__ or "").strip().split("\n")[0]

    def windows(self) -> list[tuple[Table, Window]]:
        """Every table this reads with its window, the tables beside it (same day) included."""
        return self._windows

    @cached_property
    def _windows(self) -> list[tuple[Table, Window]]:
        read = [(each.table or self, each) for each in self.reads.values() if isinstance(each, Window)]
        return read + [(other, Window(other)) for other in self.beside]

    def ancestors(self) -> list[Table]:
        """Every table that this one is made from, inputs first, and itself at the end."""
        found: dict[str, Table] = {}
        for other, _ in self.windows():
            if other is not self:
                found |= {each.name: each for each in other.ancestors()}
        return [*found.values(), self]

    def source(self) -> Source | None:
        return next((each for each in self.reads.values() if not isinstance(each, Window | SliceDays)), None)

    def needs_itself(self) -> bool:
        return any(isinstance(each, Window) and each.table is None for each in self.reads.values())

    def reads_by_day(self, other: Table) -> bool:
        """Whether only the rows of `other` about a day count for it, and not the whole days they arrived on."""
        return other.partition_by != self.partition_by and other.fingerprint_by == self.partition_by


def window(table: Table, *, first: int, last: int, wait_for: int | None = None) -> Window:
    """Read the days S+first .. S+last of `table`; `wait_for` says up to which of them a day must wait (else all)."""
    if first > last:
        raise ValueError(f"a window from S{first:+d} to S{last:+d} is empty")
    return Window(table, first, last, last if wait_for is None else wait_for)


def same_day(table: Table) -> Window:
    return Window(table)


def itself(*, back: int) -> Window:
    """Read the table itself, `back` days before."""
    if back < 1:
        raise ValueError("a table can read only earlier days of itself")
    return Window(None, -back, -back, -back)


def table(
    name: str, *, rules: Sequence[Rule] = (), version: str = "", **promises: Any
) -> Callable[[Callable[..., Any]], Table]:
    """Declare a daily table. `name` is `layer/table`; types are checked for every table, whatever else `rules` names.

    Its version follows its code, unless one is given by hand; see `code_version`.
    """
    every = [types_as_declared(), *rules]
    names = [rule.name for rule in every]
    if len(set(names)) < len(names):
        raise ValueError(f"{name}: two rules of one name in {names}")

    def declare(compute: Callable[..., Any]) -> Table:
        made = Table(name, compute, rules=tuple(every), version=version, **promises)
        return made if version else replace(made, version=_version_of(made))

    return declare


def _version_of(table: Table) -> str:
    """What its rows and figures follow from besides its inputs' rows: the function, how it reads, what it promises to hold."""
    source, compute = table.source(), table.compute
    read = {
        name: (w.table.name if w.table else "itself", w.first, w.last)
        for name, w in table.reads.items()
        if isinstance(w, Window)
    }
    reader = code_version(type(source).__module__, type(source).__qualname__) if source else ""
    beside = repr(
        (table.partition_by, table.columns, list(table.key), table.fingerprint_by, dict(table.measures), read, reader)
    )
    return code_version(compute.__module__, compute.__qualname__, beside=beside)
