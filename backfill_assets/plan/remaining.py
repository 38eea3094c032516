"""What is left of a plan: what became of each of its partitions, and what must still be built. Values in, values out.

A partition is done when it is up to date, whoever made it so: a day whose inputs came out the same needs no computing. That
holds only once everything of the plan that it reads is settled, and a day that the plan forces must be the plan's own work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum

from backfill_assets.lake.latest import Latest, Partition
from backfill_assets.lake.record import Build
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.status import Finding, State
from backfill_assets.tables.graph import Graph


class WorkState(StrEnum):
    """What became of a partition of a plan."""

    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    PENDING = "pending"


@dataclass(frozen=True)
class Remaining:
    """Each partition's state, and for those that failed or are blocked back, why.

    `saved`: done without being computed. `failures`: the builds of this plan that failed, of partitions not built since.
    """

    states: Mapping[Partition, WorkState]
    why: Mapping[Partition, str] = field(default_factory=dict)
    saved: Collection[Partition] = ()
    failures: Mapping[Partition, Build] = field(default_factory=dict)

    def of(self, state: WorkState) -> list[Partition]:
        return [partition for partition, found in self.states.items() if found == state]

    def among(self, partitions: Collection[Partition]) -> Counter[WorkState]:
        return Counter(self.states[partition] for partition in partitions)

    def days(self, partitions: Collection[Partition]) -> dict[str, list[date]]:
        """Those of `partitions` that must still be built, by table."""
        found: dict[str, list[date]] = {}
        for table, day in sorted(partitions):
            if self.states[table, day] == WorkState.PENDING:
                found.setdefault(table, []).append(day)
        return found


def remaining_of(
    plan: Plan,
    graph: Graph,
    status: Mapping[Partition, Finding],
    record: Latest,
    *,
    before: Mapping[Partition, Build] | None = None,
    given_up: Mapping[Partition, str] | None = None,
) -> Remaining:
    """Look at every partition of `plan`, inputs first.

    `before` are the failures that a command found when it began: those days are tried again, ones that fail later are not.
    `given_up` are partitions of which the runs came to nothing, and why.
    """
    look = _Look(plan, graph, status, record, before or {}, given_up or {})
    for partition in graph.in_order(look.planned):
        look.at(partition)
    mine = {partition for partition, build in record.accepted.items() if build.plan == plan.id}
    saved = {partition for partition, state in look.states.items() if state == WorkState.DONE and partition not in mine}
    return Remaining(look.states, look.why, saved, look.failures)


@dataclass
class _Look:
    plan: Plan
    graph: Graph
    status: Mapping[Partition, Finding]
    record: Latest
    before: Mapping[Partition, Build]
    given_up: Mapping[Partition, str]
    states: dict[Partition, WorkState] = field(default_factory=dict)
    why: dict[Partition, str] = field(default_factory=dict)
    failures: dict[Partition, Build] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.planned = self.plan.partitions()
        self.forced = {(table, day) for table in self.plan.code for day in self.plan.forced_days(table)}

    def at(self, partition: Partition) -> None:
        last = self.record.last.get(partition)
        failed = last if last and not last.succeeded and last.plan == self.plan.id else None
        if failed:
            self.failures[partition] = failed
        if partition in self.given_up:
            self._settle(partition, WorkState.FAILED, self.given_up[partition])
        elif failed and failed != self.before.get(partition):
            self._settle(partition, WorkState.FAILED, failed.message)
        elif lacking := next((other for other in self.graph.needs(partition) if self._lacks(other)), None):
            self._settle(partition, WorkState.BLOCKED, f"needs {lacking[0]} {lacking[1]}")
        elif any(self.states.get(other) == WorkState.PENDING for other in self.graph.reads(partition)) or not self._stands(
            partition
        ):
            self._settle(partition, WorkState.PENDING)
        else:
            self._settle(partition, WorkState.DONE)

    def _settle(self, partition: Partition, state: WorkState, why: str = "") -> None:
        self.states[partition] = state
        if why:
            self.why[partition] = why

    def _lacks(self, other: Partition) -> bool:
        if other in self.planned:
            return self.states.get(other) in (WorkState.FAILED, WorkState.BLOCKED)
        return other not in self.record.accepted

    def _stands(self, partition: Partition) -> bool:
        accepted = self.record.accepted.get(partition)
        ours = accepted is not None and accepted.plan == self.plan.id
        return self.status[partition].state == State.UP_TO_DATE and (ours or partition not in self.forced)
