"""A rebuild cut into chunks: days launched together, in an order in which nothing is built before what it reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from backfill_assets.backfill.choose import Graph
from backfill_assets.calendar import islands
from backfill_assets.lake.latest import Cell
from backfill_assets.table import Table

Order = Literal["asc", "desc"]


@dataclass(frozen=True)
class Chunk:
    """Days of tables that are launched together; `after` are the numbers of the chunks that must be over before."""

    number: int
    days: Mapping[str, Sequence[date]]
    after: Sequence[int] = ()

    def cells(self) -> set[Cell]:
        return {(table, day) for table, days in self.days.items() for day in days}


def cut(cells: Collection[Cell], graph: Graph, *, days_per_run: int, order: Order = "asc", canary: int = 0) -> list[Chunk]:
    """Every one of `cells` in exactly one chunk.

    A chunk takes its days of every table, and with them whatever of the plan they read. Tables that read themselves, and
    what is made from those, wait instead for their inputs: going back in time, they would drag all of history into the
    first chunk.
    """
    groups = _groups(sorted({day for _, day in cells}), days_per_run, order, canary)
    own = {day: number for number, group in enumerate(groups) for day in group}
    patient, place, planned = _patient(graph.tables), dict[Cell, int](), set(cells)
    ordered = graph.in_order(cells)
    for cell in sorted((c for c in ordered if c[0] not in patient), key=lambda c: own[c[1]]):
        _take(cell, own[cell[1]], planned, graph, place)
    for cell in (c for c in ordered if c[0] in patient):
        place[cell] = max([own[cell[1]], *(place[other] for other in graph.reads(cell) if other in place)])
    return _chunks(place, graph)


def _groups(days: list[date], size: int, order: Order, canary: int) -> list[list[date]]:
    """Days in the order asked for, `size` at a time; before them, the first few of the longest stretch."""
    longest = max(islands(days), key=len, default=[])
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


def _take(cell: Cell, number: int, cells: set[Cell], graph: Graph, place: dict[Cell, int]) -> None:
    left = [cell]
    while left:
        each = left.pop()
        if each in cells and each not in place:
            place[each] = number
            left += graph.reads(each)


def _chunks(place: Mapping[Cell, int], graph: Graph) -> list[Chunk]:
    numbers = {number: n for n, number in enumerate(sorted(set(place.values())))}
    after: dict[int, set[int]] = {n: set() for n in numbers.values()}
    days: dict[int, dict[str, list[date]]] = {n: {} for n in numbers.values()}
    for cell in graph.in_order(place):
        number = numbers[place[cell]]
        days[number].setdefault(cell[0], []).append(cell[1])
        after[number] |= {numbers[place[o]] for o in graph.reads(cell) if o in place} - {number}
    return [Chunk(n, days[n], sorted(after[n])) for n in sorted(days)]
