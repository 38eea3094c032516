"""What is left of a plan: what became of each of its cells, and what must still be built. Values in, values out.

A cell is done when it is up to date, whoever made it so: a day whose inputs came out the same needs no computing. That
holds only once everything of the plan that it reads is settled, and a day that the plan forces must be the plan's own work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum

from backfill_assets.backfill.graph import Graph
from backfill_assets.backfill.plan import Plan
from backfill_assets.backfill.status import Finding, State
from backfill_assets.lake.latest import Cell, Latest
from backfill_assets.lake.records import Build


class Fate(StrEnum):
    """What became of a cell of a plan."""

    DONE = "done"
    FAILED = "failed"
    HELD = "held back"
    LEFT = "left"


@dataclass(frozen=True)
class Left:
    """Each cell's fate, and for those that failed or are held back, why.

    `saved`: done without being computed. `failures`: the builds of this plan that failed, of cells not built since.
    """

    fates: Mapping[Cell, Fate]
    why: Mapping[Cell, str] = field(default_factory=dict)
    saved: Collection[Cell] = ()
    failures: Mapping[Cell, Build] = field(default_factory=dict)

    def of(self, fate: Fate) -> list[Cell]:
        return [cell for cell, found in self.fates.items() if found == fate]

    def among(self, cells: Collection[Cell]) -> Counter[Fate]:
        return Counter(self.fates[cell] for cell in cells)

    def days(self, cells: Collection[Cell]) -> dict[str, list[date]]:
        """Those of `cells` that must still be built, by table."""
        found: dict[str, list[date]] = {}
        for table, day in sorted(cells):
            if self.fates[table, day] == Fate.LEFT:
                found.setdefault(table, []).append(day)
        return found


def left_of(
    plan: Plan,
    graph: Graph,
    status: Mapping[Cell, Finding],
    record: Latest,
    *,
    before: Mapping[Cell, Build] | None = None,
    given_up: Mapping[Cell, str] | None = None,
) -> Left:
    """Look at every cell of `plan`, inputs first.

    `before` are the failures that a command found when it began: those days are tried again, ones that fail later are not.
    `given_up` are cells of which the runs came to nothing, and why.
    """
    look = _Look(plan, graph, status, record, before or {}, given_up or {})
    for cell in graph.in_order(look.planned):
        look.at(cell)
    mine = {cell for cell, build in record.standing.items() if build.plan == plan.id}
    saved = {cell for cell, fate in look.fates.items() if fate == Fate.DONE and cell not in mine}
    return Left(look.fates, look.why, saved, look.failures)


@dataclass
class _Look:
    plan: Plan
    graph: Graph
    status: Mapping[Cell, Finding]
    record: Latest
    before: Mapping[Cell, Build]
    given_up: Mapping[Cell, str]
    fates: dict[Cell, Fate] = field(default_factory=dict)
    why: dict[Cell, str] = field(default_factory=dict)
    failures: dict[Cell, Build] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.planned = self.plan.cells()
        self.forced = {(table, day) for table in self.plan.code for day in self.plan.forced_days(table)}

    def at(self, cell: Cell) -> None:
        last = self.record.last.get(cell)
        failed = last if last and not last.stands and last.plan == self.plan.id else None
        if failed:
            self.failures[cell] = failed
        if cell in self.given_up:
            self._settle(cell, Fate.FAILED, self.given_up[cell])
        elif failed and failed != self.before.get(cell):
            self._settle(cell, Fate.FAILED, failed.message)
        elif lacking := next((other for other in self.graph.needs(cell) if self._lacks(other)), None):
            self._settle(cell, Fate.HELD, f"needs {lacking[0]} {lacking[1]}")
        elif any(self.fates.get(other) == Fate.LEFT for other in self.graph.reads(cell)) or not self._stands(cell):
            self._settle(cell, Fate.LEFT)
        else:
            self._settle(cell, Fate.DONE)

    def _settle(self, cell: Cell, fate: Fate, why: str = "") -> None:
        self.fates[cell] = fate
        if why:
            self.why[cell] = why

    def _lacks(self, other: Cell) -> bool:
        if other in self.planned:
            return self.fates.get(other) in (Fate.FAILED, Fate.HELD)
        return other not in self.record.standing

    def _stands(self, cell: Cell) -> bool:
        standing = self.record.standing.get(cell)
        ours = standing is not None and standing.plan == self.plan.id
        return self.status[cell].state == State.UP_TO_DATE and (ours or cell not in self.forced)
