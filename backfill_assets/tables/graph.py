"""The graph of partitions: the inputs and the readers of each, on one calendar.

`--target` names tables as dbt and Dagster do: `raw/outage_events` is one table, `raw/*` the
matching tables, `+features/daily` a table with its upstream tables, `staging/outages+` a table with
its downstream tables, `group:features` all tables of a layer.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from functools import cached_property

from backfill_assets.calendar import EVERY_DAY, Calendar, ClippedWindow, Partition
from backfill_assets.errors import UsageError, did_you_mean
from backfill_assets.grouping import comma_separated, grouped
from backfill_assets.tables.declaration import Table


def days_until_complete(table: Table, *, late_rows: bool = False) -> int:
    """The number of days after a day for which later deliveries can change it.

    Only inputs that a day waits for count; with `late_rows`, all inputs. The windows of a chain of
    tables add up.
    """
    reach = [
        (window.last if late_rows else window.last_needed)
        + days_until_complete(other, late_rows=late_rows)
        for other, window in table.windows()
        if other is not table
    ]
    return max([0, *reach])


def is_closed(table: Table, day: date, calendar: Calendar) -> bool:
    """True if nothing is due for `day`, by `expected` of the table.

    Without `expected`, a table that reads only tables is closed if every day that it reads is
    closed.
    """
    if table.expected is not None or not table.has_calendar:
        return table.expected is not None and not table.expected(day)
    read = [
        (other, on)
        for other, window in table.windows()
        for on in other.calendar_of(calendar).clip(window.days(day))
        if not other.without_days
    ]
    return bool(read) and all(is_closed(other, on, calendar) for other, on in read)


def on_request(table: Table) -> bool:
    """True if new days are built only on request.

    The table has its own schedule, or waits for a table with one.
    """
    return bool(table.cron) or any(
        on_request(other) for other in waited_for(table) if other is not table
    )


def waited_for(table: Table) -> list[Table]:
    """The inputs that a day needs. A day is built even if other inputs lack days."""
    return [other for other, window in table.windows() if window.first <= window.last_needed]


Windows = dict[str, list[tuple[str, ClippedWindow]]]


@dataclass(frozen=True)
class Graph:
    """The inputs and the readers of each partition. `tables` come inputs first."""

    tables: Sequence[Table]
    calendar: Calendar

    def reads(self, partition: Partition) -> Iterator[Partition]:
        """Every partition that this one may read, even without waiting for it."""
        return _within(self._reads, partition)

    def needs(self, partition: Partition) -> Iterator[Partition]:
        """The partitions without which this one cannot be built. Closed days are not needed."""
        needed = () if self._is_closed(partition) else _within(self._needs, partition)
        return (other for other in needed if not self._is_closed(other))

    def readers(self, partition: Partition, since: date | None = None) -> Iterator[Partition]:
        """Every partition that may read this one.

        Readers that may also read the earlier day `since` of its table are left out.
        """
        table, day = partition
        for name, window, first in self._readers[table]:
            days = window(day)
            start = since.toordinal() - first + 1 if since and since < day else days.start
            for n in range(max(days.start, start), days.stop):
                yield name, date.fromordinal(n)

    def named(self, tables: Iterable[str], days: Sequence[date]) -> list[Partition]:
        """The partitions of these tables that the days name."""
        return [(name, day) for name in tables for day in self.by_name[name].days_of(days)]

    def lacking_inputs(
        self, table: str, days: Sequence[date], available: Mapping[str, set[date]]
    ) -> set[date]:
        """Those of the sorted `days` that need a day that is not `available`."""
        lacking: set[date] = set()
        for other, window in self._needs[table] if days else ():
            first = window(days[0]).start
            last = window(days[-1]).stop
            there = available[other]
            gaps = [
                n
                for n in range(first, last)
                if (on := date.fromordinal(n)) not in there and not self._is_closed((other, on))
            ]
            if gaps:
                lacking.update(day for day in days if _has_any(gaps, window(day)))
        return {day for day in lacking if not self._is_closed((table, day))}

    def in_order(self, partitions: Iterable[Partition]) -> list[Partition]:
        """The partitions with inputs first: by table, and by day within a table."""
        return [(table, day) for table, days in self.by_table(partitions).items() for day in days]

    def by_table(self, partitions: Iterable[Partition]) -> dict[str, list[date]]:
        """The days of each table of the graph. Tables come inputs first, days in order.

        A plan may have days of tables that the project does not have any more.
        """
        days = grouped(partitions)
        return {table.name: sorted(days[table.name]) for table in self.tables if table.name in days}

    def _is_closed(self, partition: Partition) -> bool:
        name, day = partition
        return is_closed(self.by_name[name], day, self.calendar)

    @cached_property
    def by_name(self) -> dict[str, Table]:
        return {table.name: table for table in self.tables}

    def _window(self, table: Table, first: int, last: int) -> ClippedWindow:
        return table.calendar_of(self.calendar).window(first, last)

    @cached_property
    def _reads(self) -> Windows:
        return {
            table.name: [(o.name, self._window(o, w.first, w.last)) for o, w in table.windows()]
            for table in self.tables
        }

    @cached_property
    def _needs(self) -> Windows:
        return {
            table.name: [
                (o.name, self._window(o, w.first, w.last_needed)) for o, w in table.windows()
            ]
            for table in self.tables
        }

    @cached_property
    def _readers(self) -> dict[str, list[tuple[str, ClippedWindow, int]]]:
        readers: dict[str, list[tuple[str, ClippedWindow, int]]] = {
            table.name: [] for table in self.tables
        }
        for table in self.tables:
            for other, w in table.windows():
                reach = (-EVERY_DAY, EVERY_DAY) if w.is_whole else (-w.last, -w.first)
                readers[other.name].append((table.name, self._window(table, *reach), w.first))
        return readers


def _has_any(numbers: Sequence[int], wanted: range) -> bool:
    """True if one of the sorted `numbers` is in `wanted`."""
    at = bisect_left(numbers, wanted.start)
    return at < len(numbers) and numbers[at] in wanted


def _within(windows: Windows, partition: Partition) -> Iterator[Partition]:
    table, day = partition
    return ((name, date.fromordinal(n)) for name, days in windows[table] for n in days(day))


_QUOTED = r"""(?P<quote>["']?)(?P<name>[^+"':]+)(?P=quote)"""
PART = re.compile(rf"(?P<upstream>\+?)(?:(?P<kind>key|group):)?{_QUOTED}(?P<downstream>\+?)")


def tables_named(target: str, tables: Sequence[Table]) -> list[Table]:
    """The tables of a list separated by commas, in the order of `tables`; all if it is "".

    Raises UsageError for a part that names no table.
    """
    parts = comma_separated(target)
    chosen = {name for part in parts for name in _named(part, tables)}
    return [table for table in tables if table.name in chosen or not parts]


def _named(part: str, tables: Sequence[Table]) -> set[str]:
    match = PART.fullmatch(part)
    chosen = {table.name for table in tables if match and _matches(table, match)}
    if not match or not chosen:
        names = [table.name for table in tables]
        raise UsageError(
            f"There is no table {part}.{did_you_mean(part.strip('+'), names)}",
            unchanged="Nothing was done.",
            next_step=f"The tables are {', '.join(names)}. Patterns work too: raw/*, +NAME with"
            " what is upstream, NAME+ with what is downstream, group:raw.",
        )
    ancestors = {table.name: {ancestor.name for ancestor in table.ancestors()} for table in tables}
    upstream = set[str]().union(*(ancestors[name] for name in chosen if match["upstream"]))
    downstream = {name for name in ancestors if match["downstream"] and chosen & ancestors[name]}
    return chosen | upstream | downstream


def _matches(table: Table, match: re.Match[str]) -> bool:
    layer, _, _ = table.name.partition("/")
    return fnmatchcase(layer if match["kind"] == "group" else table.name, match["name"])
