"""Which days of which tables a rebuild must build, and the reason for each. Values in, values out.

A cell is a (table, day). Targets are chosen by their status; what they need and what follows from them is found through the
tables' windows. Cells that could not be built (no delivery, an input that is neither there nor planned) are left out, and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from backfill_assets.backfill.status import Finding, State
from backfill_assets.calendar import Calendar, around
from backfill_assets.lake.latest import Cell
from backfill_assets.table import Table, Window

# What `--only` names, and the states it stands for.
KINDS = {
    "missing": {State.MISSING},
    "failed": {State.FAILED},
    "outdated": {State.CODE_CHANGED, State.INPUT_CHANGED, State.SOURCE_CHANGED},
}
# How the reason begins of a cell that is planned only because of what it reads.
READS = "reads "
OUTDATED = KINDS["outdated"] | KINDS["failed"]


@dataclass(frozen=True)
class Wish:
    """What is asked for: days of tables, in which states, and how far up and down the tables it reaches."""

    tables: Sequence[str]
    days: Sequence[date]
    only: frozenset[str] = frozenset(KINDS)
    force: bool = False
    upstream: bool = False
    downstream: bool = False


@dataclass(frozen=True)
class Choice:
    """The cells to build with the reason for each, and the cells asked for that cannot be, with what they lack."""

    cells: dict[Cell, str] = field(default_factory=dict)
    left_out: dict[Cell, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """Which cells read which, on one calendar. `tables` come inputs first."""

    tables: Sequence[Table]
    calendar: Calendar

    def reads(self, cell: Cell) -> Iterator[Cell]:
        """Every cell that this one may read, waited for or not."""
        windows = self._by_name[cell[0]].windows()
        return ((other.name, day) for other, w in windows for day in self.calendar.clip(w.days(cell[1])))

    def needs(self, cell: Cell) -> Iterator[Cell]:
        """The cells without which this one cannot be built."""
        windows = self._by_name[cell[0]].windows()
        return ((other.name, day) for other, w in windows for day in self.calendar.clip(w.needed(cell[1])))

    def readers(self, cell: Cell) -> Iterator[Cell]:
        """Every cell that may read this one."""
        back = [(name, -w.last, -w.first) for name, w in self._readers.get(cell[0], ())]
        return ((name, day) for name, first, last in back for day in self.calendar.clip(around(cell[1], first, last)))

    def in_order(self, cells: Iterable[Cell]) -> list[Cell]:
        """Inputs before what reads them: by table, and by day within one that reads itself."""
        place = {table.name: n for n, table in enumerate(self.tables)}
        return sorted(cells, key=lambda cell: (place[cell[0]], cell[1]))

    @cached_property
    def _by_name(self) -> dict[str, Table]:
        return {table.name: table for table in self.tables}

    @cached_property
    def _readers(self) -> dict[str, list[tuple[str, Window]]]:
        found: dict[str, list[tuple[str, Window]]] = {}
        for table in self.tables:
            for other, w in table.windows():
                found.setdefault(other.name, []).append((table.name, w))
        return found


def choose(wish: Wish, graph: Graph, status: Mapping[Cell, Finding]) -> Choice:
    """The cells to build. `status` has every cell of every table of the graph, on its whole calendar."""
    wanted = {cell: reason for cell in _asked(wish, graph) if (reason := _reason(wish, status[cell]))}
    asked = set(wanted)
    if wish.upstream:
        wanted |= _above(wanted, graph, status)
    choice = _possible(wanted, graph, status)
    if wish.downstream:
        choice = _possible(choice.cells | _below(choice.cells, graph, status), graph, status, choice.left_out)
    return Choice(choice.cells, {c: why for c, why in choice.left_out.items() if c in asked and c not in choice.cells})


def _asked(wish: Wish, graph: Graph) -> Iterator[Cell]:
    return ((table.name, day) for table in graph.tables if table.name in wish.tables for day in wish.days)


def _reason(wish: Wish, found: Finding) -> str:
    chosen = any(found.state in KINDS[kind] for kind in wish.only)
    if chosen:
        return found.state.value
    return "forced" if wish.force and found.state != State.RUNNING else ""


def _above(wanted: Mapping[Cell, str], graph: Graph, status: Mapping[Cell, Finding]) -> dict[Cell, str]:
    """What the wanted cells need and is not there, and what they read and is outdated; and the same of those."""
    found: dict[Cell, str] = {}
    left = list(wanted)
    while left:
        cell = left.pop()
        needed = set(graph.needs(cell))
        for other in graph.reads(cell):
            state = status[other].state
            if (
                other not in wanted
                and other not in found
                and (state in OUTDATED or (state == State.MISSING and other in needed))
            ):
                found[other] = state.value
                left.append(other)
    return found


def _below(cells: Mapping[Cell, str], graph: Graph, status: Mapping[Cell, Finding]) -> dict[Cell, str]:
    """What reads a chosen cell, and what reads those: each may come out different once its input has been rebuilt."""
    found: dict[Cell, str] = {}
    left = graph.in_order(cells)
    for cell in left:
        for reader in graph.readers(cell):
            if reader not in cells and reader not in found and status[reader].state not in (State.NOT_DUE, State.RUNNING):
                found[reader] = f"{READS}{cell[0]} {cell[1]}"
                left.append(reader)
    return found


def _possible(
    wanted: Mapping[Cell, str], graph: Graph, status: Mapping[Cell, Finding], known: Mapping[Cell, str] | None = None
) -> Choice:
    """`wanted` without what lacks a delivery, or an input that neither stands nor is built along."""
    choice = Choice({}, dict(known or {}))
    for cell in graph.in_order(wanted):
        lacking = [other for other in graph.needs(cell) if other not in choice.cells and not status[other].stands]
        if status[cell].undelivered:
            choice.left_out[cell] = status[cell].why
        elif lacking:
            choice.left_out[cell] = f"needs {lacking[0][0]} {lacking[0][1]}"
        else:
            choice.cells[cell] = wanted[cell]
    return choice
