"""Which days of which tables a rebuild must build, and the reason for each. Values in, values out.

A cell is a (table, day). Targets are chosen by their status; what they need and what follows from them is found through the
tables' windows. Cells that could not be built (no delivery, an input that is neither there nor planned) are left out, and said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from backfill_assets.backfill.graph import Graph
from backfill_assets.backfill.status import Finding, State
from backfill_assets.lake.latest import Cell

# What `--only` names, and the states it stands for.
KINDS = {
    "missing": {State.MISSING},
    "failed": {State.FAILED},
    "outdated": {State.CODE_CHANGED, State.INPUT_CHANGED, State.SOURCE_CHANGED},
}
# How the reason begins of a cell that is planned only because of what it reads.
READS = "reads "
OUTDATED = KINDS["outdated"] | KINDS["failed"]
NOT_NOW = {State.NOT_DUE, State.RUNNING}


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


def choose(wish: Wish, graph: Graph, status: Mapping[Cell, Finding]) -> Choice:
    """The cells to build. `status` has every cell of every table of the graph, on its whole calendar."""
    states = frozenset[State]().union(*(KINDS[kind] for kind in wish.only))
    wanted = {cell: reason for cell in _asked(wish, graph) if (reason := _reason(wish.force, states, status[cell]))}
    asked = set(wanted)
    if wish.upstream:
        wanted |= _above(wanted, graph, status)
    choice = _possible(wanted, graph, status)
    if wish.downstream:
        choice = _possible(choice.cells | _below(choice.cells, graph, status), graph, status, choice.left_out)
    return Choice(choice.cells, {c: why for c, why in choice.left_out.items() if c in asked and c not in choice.cells})


def _asked(wish: Wish, graph: Graph) -> Iterator[Cell]:
    return ((table.name, day) for table in graph.tables if table.name in wish.tables for day in wish.days)


def _reason(force: bool, states: Collection[State], found: Finding) -> str:
    if found.state in states:
        return found.state.value
    return "forced" if force and found.state != State.RUNNING else ""


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
    left, before = graph.in_order(cells), dict[str, date]()
    for cell in left:
        # What reads the day looked at before has been found with it.
        readers = graph.readers(cell, since=before.get(cell[0]))
        before[cell[0]] = cell[1]
        for reader in readers:
            if reader not in cells and reader not in found and status[reader].state not in NOT_NOW:
                found[reader] = f"{READS}{cell[0]} {cell[1].isoformat()}"
                left.append(reader)
    return found


def _possible(
    wanted: Mapping[Cell, str], graph: Graph, status: Mapping[Cell, Finding], known: Mapping[Cell, str] | None = None
) -> Choice:
    """`wanted` without what lacks a delivery, or an input that neither stands nor is built along."""
    choice = Choice({}, dict(known or {}))
    there: dict[str, set[date]] = {table.name: set() for table in graph.tables}
    for (name, day), found in status.items():
        if found.stands:
            there[name].add(day)
    days = graph.by_table(wanted)
    for table in graph.tables:
        doubtful = graph.doubtful(table, there)
        for cell in ((table.name, day) for day in days[table.name]):
            needed = graph.needs(cell) if cell[1] in doubtful else ()
            lacking = next(((other, day) for other, day in needed if day not in there[other]), None)
            if status[cell].undelivered:
                choice.left_out[cell] = status[cell].why
            elif lacking:
                choice.left_out[cell] = f"needs {lacking[0]} {lacking[1]}"
            else:
                choice.cells[cell] = wanted[cell]
                there[table.name].add(cell[1])
    return choice
