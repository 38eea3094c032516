"""One look at a rebuild: how far each table is, what is at work, and when it may end. Printed elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from backfill_assets.lake.latest import Partition
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Remaining, WorkState


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
class RunningChunk:
    """A chunk that was launched and is not over: its backfill, and the partitions it was launched for."""

    backfill_id: str
    partitions: Collection[Partition]


@dataclass(frozen=True)
class TableProgress:
    """How many days of one table of the plan are where. `saved` of those done needed no computing."""

    table: str
    days: int
    done: int
    failed: int
    blocked: int
    running: int
    left: int
    saved: int


@dataclass(frozen=True)
class Progress:
    """One look. `over`: the command's work has ended with it. `silent`: the server does not answer, in words."""

    plan: Plan
    remaining: Remaining
    running: Mapping[int, RunningChunk]
    chunks_over: frozenset[int]
    stopped: Stop | None
    started: datetime
    at: datetime
    over: bool
    silent: str = ""

    def tables(self) -> Sequence[TableProgress]:
        running = {
            c for work in self.running.values() for c in work.partitions if self.remaining.states[c] == WorkState.PENDING
        }
        found = []
        for name in self.plan.reasons:
            partitions = [partition for partition in self.remaining.states if partition[0] == name]
            count = self.remaining.among(partitions)
            now = sum(1 for partition in partitions if partition in running)
            saved = sum(1 for partition in partitions if partition in self.remaining.saved)
            left = count[WorkState.PENDING] - now
            found.append(
                TableProgress(
                    name,
                    len(partitions),
                    count[WorkState.DONE],
                    count[WorkState.FAILED],
                    count[WorkState.BLOCKED],
                    now,
                    left,
                    saved,
                )
            )
        return found

    @property
    def ending(self) -> Ending:
        """How it ended, or would if this were the end."""
        if all(state == WorkState.DONE for state in self.remaining.states.values()):
            return Ending.DONE
        if self.stopped is None:
            return Ending.PARTIAL
        return {"cancelled": Ending.CANCELLED, "refused": Ending.REFUSED}.get(self.stopped.kind, Ending.STOPPED)
