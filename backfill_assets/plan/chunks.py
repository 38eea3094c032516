"""A rebuild cut into chunks: days launched together, in an order in which nothing is built before what it reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.calendar import consecutive, days_around_any
from backfill_assets.lake.latest import Partition
from backfill_assets.plan.request import DayOrder
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph

# Of each table, the number of the group that each of its days is built with.
Place = dict[str, dict[date, int]]


@dataclass(frozen=True)
class Chunk:
    """Days of tables that are launched together; `after` are the numbers of the chunks that must be over before."""

    number: int
    days: Mapping[str, Sequence[date]]
    after: Sequence[int] = ()

    def partitions(self) -> set[Partition]:
        return {(table, day) for table, days in self.days.items() for day in days}


def cut(
    partitions: Collection[Partition], graph: Graph, *, days_per_run: int, order: DayOrder = "asc", canary: int = 0
) -> list[Chunk]:
    """Every one of `partitions` in exactly one chunk.

    A chunk takes its days of every table, and with them whatever of the plan they read. Tables that read themselves, and
    what is made from those, wait instead for their inputs: going back in time, they would drag all of history into the
    first chunk.
    """
    planned = {table: set(days) for table, days in graph.by_table(partitions).items()}
    groups = _groups(sorted(set().union(*planned.values())), days_per_run, order, canary)
    patient = _patient(graph.tables)
    place: Place = {table.name: {} for table in graph.tables}
    for number, group in enumerate(groups):
        _take(number, group, planned, [table for table in graph.tables if table.name not in patient], place)
    own = {day: number for number, group in enumerate(groups) for day in group}
    for name in (table.name for table in graph.tables if table.name in patient):
        for day in sorted(planned[name]):
            place[name][day] = max([own[day], *(place[other].get(at, 0) for other, at in graph.reads((name, day)))])
    return _chunks(place, graph)


def _groups(days: list[date], size: int, order: DayOrder, canary: int) -> list[list[date]]:
    """Days in the order asked for, `size` at a time; before them, the first few of the longest stretch."""
    longest = max(consecutive(days), key=len, default=[])
    first = (longest if order == "asc" else longest[::-1])[:canary] if canary < len(days) else []
    rest = [day for day in (days if order == "asc" else days[::-1]) if day not in set(first)]
    return ([first] if first else []) + [rest[n : n + size] for n in range(0, len(rest), size)]


def _patient(tables: Sequence[Table]) -> set[str]:
    """The tables that read themselves, and those made from them."""
    found: set[str] = set()
    for table in tables:
        if table.needs_itself() or any(other.name in found for other, _ in table.windows()):
            found.add(table.name)
    return found


def _take(
    number: int, group: Collection[date], planned: Mapping[str, set[date]], tables: Sequence[Table], place: Place
) -> None:
    """Place the days of a group, and what they read of the plan, where they are not placed yet."""
    wanted = {table.name: set(group) for table in tables}
    for table in reversed(tables):
        days = [day for day in wanted[table.name] & planned[table.name] if day not in place[table.name]]
        place[table.name].update(dict.fromkeys(days, number))
        for other, w in table.windows():
            wanted[other.name].update(days_around_any(days, w.first, w.last))


def _chunks(place: Place, graph: Graph) -> list[Chunk]:
    numbers = {number: n for n, number in enumerate(sorted({n for of in place.values() for n in of.values()}))}
    days: list[dict[str, list[date]]] = [{} for _ in numbers]
    for name, of in place.items():
        for day, number in sorted(of.items()):
            days[numbers[number]].setdefault(name, []).append(day)
    chunks = []
    for n, each in enumerate(days):
        read = {
            numbers[place[other.name][day]]
            for table in graph.tables if table.name in each
            for other, w in table.windows()
            for day in days_around_any(each[table.name], w.first, w.last) if day in place[other.name]
        }  # fmt: skip
        chunks.append(Chunk(n, each, sorted(read - {n})))
    return chunks
