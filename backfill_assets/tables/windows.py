"""What a table reads: days of other tables, days of itself, a source, or just the days that are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from backfill_assets.calendar import days_around
from backfill_assets.quality.rule import Rule
from backfill_assets.sources.archive import Archive
from backfill_assets.sources.protocol import Source

if TYPE_CHECKING:
    from backfill_assets.tables.declaration import Table


@dataclass(frozen=True)
class Window:
    """The days S+first .. S+last of an input, for each day S; S is computed only once those up to S+wait_for are built.

    `table` None is the table itself; then `last` is negative. Days outside the calendar are never waited for. `whole_days`:
    all rows of these days, also where the input says which day each row is about.
    """

    table: Table | None
    first: int = 0
    last: int = 0
    wait_for: int = 0
    whole_days: bool = False

    def days(self, day: date) -> list[date]:
        """The days of the input that `day` may read."""
        return days_around(day, self.first, self.last)

    def needed(self, day: date) -> list[date]:
        """The days of the input without which `day` cannot be built."""
        return days_around(day, self.first, self.last_needed)

    @property
    def last_needed(self) -> int:
        return min(self.last, self.wait_for)


@dataclass(frozen=True)
class SliceDays:
    """An input with one row per day that is computed, in the column of the table's `partition_by`.

    It lets a function give rows to a day for which its other inputs have none.
    """


Read = Window | SliceDays | Source


def window(table: Table, *, first: int, last: int, wait_for: int | None = None, whole_days: bool = False) -> Window:
    """Read the days S+first .. S+last of `table` for each day S, for example `first=-6, last=0` for a week that ends on S.

    S waits until the days up to S+wait_for are built, all of them if it is not given; a later one that is built afterwards
    makes S outdated. The function gets the days of all S of a run together, so it must not count on seeing only one window.
    Of a `table` whose `fingerprint_by` is the reading table's day, only the rows about the days computed are read, and only
    they make S outdated; with `whole_days` every row of the window is read and counts.
    Raises ValueError if `first` is after `last`, or one of these is no whole number.
    """
    if wrong := [each for each in (first, last, wait_for) if not isinstance(each, int | None)]:
        raise ValueError(f"a window is counted in whole days, not in {wrong[0]!r}")
    if first > last:
        raise ValueError(f"a window from S{first:+d} to S{last:+d} is empty")
    return Window(table, first, last, last if wait_for is None else wait_for, whole_days)


def same_day(table: Table) -> Window:
    """Read, for each day, the same day of `table`."""
    return Window(table)


def itself() -> Window:
    """Read the table itself, on the day before each day that is computed: days are then computed in order.

    The first day of the calendar reads an empty input.
    """
    return Window(None, -1, -1, -1)


def refuse_unusable_reads(
    name: str, reads: Mapping[str, Read], sources: Sequence[object], key: Sequence[str], rules: Sequence[Rule]
) -> None:
    """ValueError for two sources, one that is none, and a rule that computes a table once more and cannot compare it."""
    if len(sources) > 1:
        raise ValueError(f"{name} reads two sources; a day's delivery is one: read each in a table of its own")
    for source in sources:
        if not isinstance(source, Source):
            raise ValueError(f"{name} reads {source!r}, which is no source: its class extends backfill_assets.Source")
        _refuse_unusable_source(name, source)
    for rule in rules:
        if rule.cut is None:
            continue
        if not key:
            raise ValueError(f"{name}: the rule {rule.name} needs a key: key=[...]")
        if set(rule.cut.known) != set(reads):
            raise ValueError(
                f"{name}: the rule {rule.name} knows of {sorted(rule.cut.known)}, but `reads` names {sorted(reads)}"
            )
        if any(isinstance(read, Window) and read.table is None for read in reads.values()):
            raise ValueError(f"{name} reads itself: the rule {rule.name} would need all its days once more")


def _refuse_unusable_source(name: str, source: Source) -> None:
    """ValueError where what a source says of itself is of another kind than `Source` has it."""
    packages, archives, several = source.packages, source.archives, tuple | list
    fits = {
        "name is no text": isinstance(getattr(source, "name", None), str),
        "horizon is no whole number of days": type(source.horizon) is int,
        "packages are no tuple of texts": isinstance(packages, several) and all(isinstance(p, str) for p in packages),
        "archives are no tuple of Archive": isinstance(archives, several) and all(isinstance(a, Archive) for a in archives),
    }
    if wrong := [what for what, is_so in fits.items() if not is_so]:
        raise ValueError(f"{name}: {type(source).__name__} is a source whose {wrong[0]} (backfill_assets.Source)")
