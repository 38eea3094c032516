"""One look at a rebuild: how far each table is, what is at work, and when it may end. Printed elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from backfill_assets.backfill.left import Fate, Left
from backfill_assets.backfill.plan import Plan
from backfill_assets.lake.latest import Cell


class Ending(StrEnum):
    """How a command's work on a plan ended."""

    DONE = "done"
    PARTIAL = "partial"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    REFUSED = "refused"


@dataclass(frozen=True)
class Stop:
    """Why nothing more is launched."""

    kind: Literal["budget", "canary", "cancelled", "refused"]
    why: str


@dataclass(frozen=True)
class AtWork:
    """A chunk that was launched and is not over: its backfill, and the cells it was launched for."""

    backfill_id: str
    cells: Collection[Cell]


@dataclass(frozen=True)
class TableProgress:
    """How many days of one table of the plan are where. `saved` of those done needed no computing."""

    table: str
    days: int
    done: int
    failed: int
    held: int
    running: int
    left: int
    saved: int


@dataclass(frozen=True)
class Progress:
    """One look. `over`: the command's work has ended with it. `silent`: the server does not answer, in words."""

    plan: Plan
    left: Left
    at_work: Mapping[int, AtWork]
    chunks_over: frozenset[int]
    stopped: Stop | None
    started: datetime
    at: datetime
    over: bool
    silent: str = ""

    def tables(self) -> Sequence[TableProgress]:
        running = {c for work in self.at_work.values() for c in work.cells if self.left.fates[c] == Fate.LEFT}
        found = []
        for name in self.plan.reasons:
            cells = [cell for cell in self.left.fates if cell[0] == name]
            count = self.left.among(cells)
            now = sum(1 for cell in cells if cell in running)
            saved = sum(1 for cell in cells if cell in self.left.saved)
            left = count[Fate.LEFT] - now
            found.append(
                TableProgress(name, len(cells), count[Fate.DONE], count[Fate.FAILED], count[Fate.HELD], now, left, saved)
            )
        return found

    @property
    def ending(self) -> Ending:
        """How it ended, or would if this were the end."""
        if all(fate == Fate.DONE for fate in self.left.fates.values()):
            return Ending.DONE
        if self.stopped is None:
            return Ending.PARTIAL
        return {"cancelled": Ending.CANCELLED, "refused": Ending.REFUSED}.get(self.stopped.kind, Ending.STOPPED)
