"""Select the partitions of a plan without reading the status of the whole history.

A selection needs the status of the requested partitions, of their inputs and of their readers. It
is read on demand, many partitions at a time. The selection is repeated until it needs no unread
status.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from backfill_assets.calendar import Partition, TextByPartition, days_around
from backfill_assets.lake.history import Latest
from backfill_assets.plan.selection import Selection, select_partitions
from backfill_assets.plan.selector import Selector
from backfill_assets.plan.status import (
    PartitionStatus,
    State,
    StatusByPartition,
    latest_builds,
    status_of,
    with_inputs,
)
from backfill_assets.tables.graph import Graph
from backfill_assets.workspace import Workspace

ReadStatus = Callable[[Collection[Partition]], StatusByPartition]
# The selection stops at a partition with this status.
_UNREAD = PartitionStatus(State.UP_TO_DATE, is_built=True)


def select_neighbours(
    selector: Selector, graph: Graph, read: ReadStatus, was_built: Callable[[str], bool]
) -> Selection:
    """Select partitions as `select_partitions` does, but read only the status that is needed.

    `read` returns the status of some partitions. `was_built` says whether a table has a built day.
    """
    named = graph.named(selector.tables, selector.days)
    status = _StatusRead()
    selection = Selection()
    unread = {*named, *(needed for each in named for needed in graph.needs(each))}
    days_before = 0
    while unread:
        with_days_before = {
            (name, earlier)
            for name, day in unread
            for earlier in (*graph.calendar.clip(days_around(day, -days_before, -1)), day)
        }
        status.known |= read(with_days_before - status.known.keys())
        status.unread.clear()
        selection = select_partitions(selector, graph, status, was_built)
        unread = set(status.unread)
        # This way, a chain of days that need each other takes few rounds.
        days_before = 2 * days_before + 1
    return selection


@dataclass
class _StatusRead(StatusByPartition):
    """The status of partitions that were read. Notes which other partitions are needed."""

    known: dict[Partition, PartitionStatus] = field(default_factory=dict)
    unread: set[Partition] = field(default_factory=set)

    def __getitem__(self, partition: Partition) -> PartitionStatus:
        status = self.known.get(partition)
        if status is None:
            self.unread.add(partition)
            return _UNREAD
        return status

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)


@dataclass
class StatusReader:
    """Reads the status of some partitions, and stores it together with the accepted builds.

    `running` has the run that is computing a partition.
    """

    workspace: Workspace
    running: TextByPartition = field(default_factory=dict)
    builds: Latest = field(default_factory=Latest)
    partitions: dict[Partition, PartitionStatus] = field(default_factory=dict)

    def read(self, partitions: Collection[Partition]) -> StatusByPartition:
        """The status of these partitions."""
        by_table = self.workspace.graph.by_table(partitions)
        tables = [table for table in self.workspace.tables if table.name in by_table]
        latest = latest_builds(self.workspace, days=with_inputs(self.workspace, partitions))
        found: dict[Partition, PartitionStatus] = {}
        for table in tables:
            days = by_table[table.name]
            status = status_of(self.workspace, [table], days, latest=latest, running=self.running)
            found |= status.partitions
        self.builds.accepted.update(latest.accepted)
        self.partitions.update(found)
        return found

    def was_built(self, table: str) -> bool:
        """True if a day of the calendar has an accepted build of the table.

        Days whose rows another program changed later count too.
        """
        if any(name == table for name, _ in self.builds.accepted):
            return True
        accepted = self.workspace.lake.latest({table: None}).accepted
        return any(day in self.workspace.calendar for _, day in accepted)
