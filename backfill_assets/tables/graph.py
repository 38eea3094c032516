"""Which partitions read which, by the windows of the tables on one calendar.

`--target` names tables as dbt and Dagster do: `raw/outage_events` is one table, `raw/*` those that
match, `+features/daily` one with everything upstream, `staging/outages+` one with everything
downstream, `group:features` all of a layer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from functools import cached_property

from backfill_assets.calendar import Calendar, ClippedWindow, Partition, days_around_any
from backfill_assets.errors import UsageError, did_you_mean
from backfill_assets.tables.declaration import Table


def days_until_complete(table: Table, *, late_rows: bool = False) -> int:
    """How many days after its own a delivery may change a day: of those it waits for, or with
    `late_rows` of all it reads.

    Windows that follow each other add up.
    """
    reach = [
        (window.last if late_rows else window.last_needed)
        + days_until_complete(other, late_rows=late_rows)
        for other, window in table.windows()
        if other is not table
    ]
    return max([0, *reach])


def on_request(table: Table) -> bool:
    """Whether days that were never built wait for somebody to ask for them: the table has a
    schedule of its own, or waits for days of one of which that is so.
    """
    return bool(table.cron) or any(
        on_request(other) for other in waited_for(table) if other is not table
    )


def waited_for(table: Table) -> list[Table]:
    """The inputs of which some days must be there; without any day of the others, each day is built
    from what is there.
    """
    return [other for other, window in table.windows() if window.first <= window.last_needed]


@dataclass(frozen=True)
class Graph:
    """Which partitions read which, on one calendar. `tables` come inputs first."""

    tables: Sequence[Table]
    calendar: Calendar

    def reads(self, partition: Partition) -> Iterator[Partition]:
        """Every partition that this one may read, whether it waits for it or not."""
        return (
            (name, date.fromordinal(n))
            for name, around in self._reads[partition[0]]
            for n in around(partition[1])
        )

    def needs(self, partition: Partition) -> Iterator[Partition]:
        """The partitions without which this one cannot be built."""
        return (
            (name, date.fromordinal(n))
            for name, window in self._needs[partition[0]]
            for n in window(partition[1])
        )

    def readers(self, partition: Partition, since: date | None = None) -> Iterator[Partition]:
        """Every partition that may read this one, without those that may read the earlier day
        `since` of its table too.
        """
        table, day = partition
        for name, window, first in self._readers[table]:
            days = window(day)
            start = (
                max(days.start, since.toordinal() - first + 1)
                if since and since < day
                else days.start
            )
            for n in range(start, days.stop):
                yield name, date.fromordinal(n)

    def lacking_inputs(self, table: Table, available: Mapping[str, set[date]]) -> set[date]:
        """The days of a table that need a day of an input, or of the table itself, that is not
        `available`.
        """
        days: set[date] = set()
        for other, w in table.windows():
            days.update(
                days_around_any(
                    self._days[other.name] - available[other.name], -w.last_needed, -w.first
                )
            )
        return days

    def in_order(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Inputs before what reads them: by table, and by day within one that reads itself."""
        return [(table, day) for table, days in self.by_table(partitions).items() for day in days]

    def by_table(self, partitions: Iterable[Partition]) -> dict[str, list[date]]:
        """The days of every table, tables and days in that order too."""
        by_table: dict[str, list[date]] = {table.name: [] for table in self.tables}
        for table, day in partitions:
            by_table[table].append(day)
        return {table: sorted(days) for table, days in by_table.items()}

    @cached_property
    def _days(self) -> dict[str, frozenset[date]]:
        return {
            table.name: frozenset(table.calendar_of(self.calendar).days()) for table in self.tables
        }

    def _window(self, table: Table, first: int, last: int) -> ClippedWindow:
        return table.calendar_of(self.calendar).window(first, last)

    @cached_property
    def _reads(self) -> dict[str, list[tuple[str, ClippedWindow]]]:
        return {
            t.name: [(o.name, self._window(o, w.first, w.last)) for o, w in t.windows()]
            for t in self.tables
        }

    @cached_property
    def _needs(self) -> dict[str, list[tuple[str, ClippedWindow]]]:
        return {
            t.name: [(o.name, self._window(o, w.first, w.last_needed)) for o, w in t.windows()]
            for t in self.tables
        }

    @cached_property
    def _readers(self) -> dict[str, list[tuple[str, ClippedWindow, int]]]:
        readers: dict[str, list[tuple[str, ClippedWindow, int]]] = {
            table.name: [] for table in self.tables
        }
        for table in self.tables:
            for other, w in table.windows():
                readers[other.name].append(
                    (table.name, self._window(table, -w.last, -w.first), w.first)
                )
        return readers


QUOTED = r"""(?P<quote>["']?)(?P<name>[^+"':]+)(?P=quote)"""
PART = re.compile(rf"(?P<upstream>\+?)(?:(?P<kind>key|group):)?{QUOTED}(?P<downstream>\+?)")


def tables_named(target: str, tables: Sequence[Table]) -> list[Table]:
    """Those of `tables` that a list separated by commas names, in their order; all if it is empty.

    UsageError for a part that names none of them.
    """
    parts = [part.strip() for part in target.split(",") if part.strip()]
    chosen = {name for part in parts for name in _named(part, tables)}
    return [table for table in tables if table.name in chosen or not parts]


def _named(part: str, tables: Sequence[Table]) -> set[str]:
    how = PART.fullmatch(part)
    by_layer = how is not None and how["kind"] == "group"
    matching = [
        each
        for each in tables
        if how and fnmatchcase(_layer(each) if by_layer else each.name, how["name"])
    ]
    if not how or not matching:
        names = [table.name for table in tables]
        raise UsageError(
            f"There is no table {part}.{did_you_mean(part.strip('+'), names)} Nothing was done. The"
            f" tables are {', '.join(names)}. Patterns work too: raw/*, +NAME with what is"
            " upstream, NAME+ with what is downstream, group:raw."
        )
    chosen = {table.name for table in matching}
    upstream = (
        {each.name for table in matching for each in table.ancestors()}
        if how["upstream"]
        else set()
    )
    downstream = (
        {each.name for each in tables if chosen & {a.name for a in each.ancestors()}}
        if how["downstream"]
        else set()
    )
    return chosen | upstream | downstream


def _layer(table: Table) -> str:
    return table.name.partition("/")[0]
