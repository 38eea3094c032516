"""A plan's partitions cut into chunks, ordered so that nothing is built before what it reads."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.calendar import Partition, consecutive, days_around_any
from backfill_assets.plan.request import DayOrder
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph

# By table and day: the number of the group that the partition is built with.
Places = dict[str, dict[date, int]]


@dataclass(frozen=True)
class Chunk:
    """Days of tables that are launched together; `after` are the numbers of the chunks that must be over before it."""

    number: int
    days: Mapping[str, Sequence[date]]
    after: Sequence[int] = ()

    def partitions(self) -> set[Partition]:
        return {(table, day) for table, days in self.days.items() for day in days}


def cut(
    partitions: Collection[Partition], graph: Graph, *, days_per_run: int, order: DayOrder = "asc", canary: int = 0
) -> list[Chunk]:
    """Every one of `partitions` in exactly one chunk.

    A chunk has its days of every table, and whatever these read of the plan. Tables that read themselves, and those
    downstream of them, are built with the last of their inputs instead: with newest days first, the first chunk would
    otherwise have to have all of history.
    """
    planned = {table: set(days) for table, days in graph.by_table(partitions).items()}
    groups = _groups(sorted(set().union(*planned.values())), days_per_run, order, canary)
    recursive = _recursive(graph.tables)
    places: Places = {table.name: {} for table in graph.tables}
    for number, group in enumerate(groups):
        _take(number, group, planned, [table for table in graph.tables if table.name not in recursive], places)
    own = {day: number for number, group in enumerate(groups) for day in group}
    for name in (table.name for table in graph.tables if table.name in recursive):
        for day in sorted(planned[name]):
            places[name][day] = max([own[day], *(places[other].get(at, 0) for other, at in graph.reads((name, day)))])
    return _chunks(places, graph)


def _groups(days: list[date], size: int, order: DayOrder, canary: int) -> list[list[date]]:
    """Days in the order requested, `size` at a time; before them the canary: the first few of the longest row of days."""
    longest = max(consecutive(days), key=len, default=[])
    first = (longest if order == "asc" else longest[::-1])[:canary] if canary < len(days) else []
    rest = [day for day in (days if order == "asc" else days[::-1]) if day not in set(first)]
    return ([first] if first else []) + [rest[n : n + size] for n in range(0, len(rest), size)]


def _recursive(tables: Sequence[Table]) -> set[str]:
    """The tables that read themselves, and those downstream of them."""
    names: set[str] = set()
    for table in tables:
        if table.needs_itself() or any(other.name in names for other, _ in table.windows()):
            names.add(table.name)
    return names


def _take(
    number: int, group: Collection[date], planned: Mapping[str, set[date]], tables: Sequence[Table], places: Places
) -> None:
    """Place the days of a group, and what they read of the plan, unless they have a place."""
    wanted = {table.name: set(group) for table in tables}
    for table in reversed(tables):
        days = [day for day in wanted[table.name] & planned[table.name] if day not in places[table.name]]
        places[table.name].update(dict.fromkeys(days, number))
        for other, w in table.windows():
            wanted[other.name].update(days_around_any(days, w.first, w.last))


def _chunks(places: Places, graph: Graph) -> list[Chunk]:
    """The groups that have a partition, numbered from 0."""
    numbers = {number: n for n, number in enumerate(sorted({n for of in places.values() for n in of.values()}))}
    groups: list[dict[str, list[date]]] = [{} for _ in numbers]
    for name, of in places.items():
        for day, number in sorted(of.items()):
            groups[numbers[number]].setdefault(name, []).append(day)
    chunks = []
    for n, days in enumerate(groups):
        read = {
            numbers[places[other.name][day]]
            for table in graph.tables if table.name in days
            for other, w in table.windows()
            for day in days_around_any(days[table.name], w.first, w.last) if day in places[other.name]
        }  # fmt: skip
        chunks.append(Chunk(n, days, sorted(read - {n})))
    return chunks
