"""The progress of a rebuild at one moment: how far each table is, and which chunks run. Printed elsewhere."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from backfill_assets.calendar import Partition
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
class TableProgress:
    """How many days of one table of the plan are in each state: `running` ones are being computed, `saved` ones needed no
    computing."""

    table: str
    days: int
    done: int
    failed: int
    blocked: int
    running: int
    pending: int
    saved: int

    def counts(self) -> dict[str, int]:
        """The counts by name, as they are recorded at a plan's end."""
        return {name: value for name, value in vars(self).items() if name != "table"}


@dataclass(frozen=True)
class Progress:
    """The progress at one moment. `running`: the run or backfill of each chunk that runs, by the chunk's number, from 1.

    `over`: no command is carrying the plan out. `waiting`: why the server is waited for.

    `recorded`: how a plan that is looked at later has ended.
    """

    plan: Plan
    remaining: Remaining
    running: Mapping[int, str]
    chunks_over: frozenset[int]
    stopped: Stop | None
    started: datetime
    at: datetime
    over: bool
    waiting: str = ""
    recorded: Ending | None = None

    def tables(self) -> Sequence[TableProgress]:
        by_table: dict[str, list[Partition]] = {name: [] for name in self.plan.reasons}
        for partition in self.remaining.states:
            by_table[partition[0]].append(partition)
        return [self._table(name, partitions) for name, partitions in by_table.items()]

    def _table(self, name: str, partitions: Collection[Partition]) -> TableProgress:
        states, count, at_work = self.remaining.states, self.remaining.count(partitions), self.remaining.at_work
        running = sum(1 for partition in partitions if partition in at_work and states[partition] == WorkState.PENDING)
        return TableProgress(
            name,
            days=len(partitions),
            done=count[WorkState.DONE],
            failed=count[WorkState.FAILED],
            blocked=count[WorkState.BLOCKED],
            running=running,
            pending=count[WorkState.PENDING] - running,
            saved=sum(1 for partition in partitions if partition in self.remaining.saved),
        )

    @property
    def ending(self) -> Ending:
        """How it ended, or would if this were the end. What was recorded holds, whatever has changed since."""
        if self.recorded:
            return self.recorded
        if all(state == WorkState.DONE for state in self.remaining.states.values()):
            return Ending.DONE
        if self.stopped is None:
            return Ending.PARTIAL
        return {"cancelled": Ending.CANCELLED, "refused": Ending.REFUSED}.get(self.stopped.kind, Ending.STOPPED)
