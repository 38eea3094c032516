"""Select the partitions that a plan must build, with the reason for each.

Partitions are selected by their status. Their upstream and downstream partitions follow from the
windows of the tables. Partitions that cannot be built are blocked and not part of the plan: their
delivery is missing, or an input neither has an accepted build nor is planned.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from backfill_assets.calendar import Partition, TextByPartition
from backfill_assets.plan.selector import STATES, Selector
from backfill_assets.plan.status import PartitionStatus, State, StatusByPartition
from backfill_assets.tables.graph import Graph, waited_for

OUTDATED = STATES["outdated"] | STATES["failed"]
TO_BUILD = OUTDATED | STATES["missing"] | STATES["occupied"]
NEVER_PLANNED = {State.NOT_DUE, State.BEFORE}
NOT_NOW = NEVER_PLANNED | {State.RUNNING, State.ON_REQUEST}


class ReasonKind(StrEnum):
    """The kind of reason for planning a partition. Stored plans have these values."""

    MISSING = "missing"
    CLOSED = "closed"
    CODE_CHANGED = "code_changed"
    INPUT_CHANGED = "input_changed"
    SOURCE_CHANGED = "source_changed"
    MIXED = "mixed"
    REWRITTEN = "rewritten"
    OCCUPIED = "occupied"
    FAILED = "failed"
    ON_REQUEST = "on_request"
    FORCED = "forced"
    READS = "reads"
    COMPARED = "compared"


@dataclass(frozen=True)
class Reason:
    """The reason for planning a partition.

    `of` is the partition that the planned one reads, or the table that a rule compares with it.
    """

    kind: ReasonKind
    of: str = ""

    @classmethod
    def of_state(cls, state: State) -> "Reason":
        """The reason for a partition that is planned because of its own state."""
        return cls(ReasonKind[state.name])

    def __str__(self) -> str:
        match self.kind:
            case ReasonKind.READS:
                return f"reads {self.of}"
            case ReasonKind.COMPARED:
                return f"compared with {self.of}"
            case ReasonKind.FORCED:
                return "forced"
        return State[self.kind.name].value


@dataclass(frozen=True)
class Selection:
    """The partitions to build, each with its reason, and the blocked ones with the cause.

    A partition is blocked if it lacks an input or a delivery, is running, or cannot be built yet.
    `upstream_helps`: some blocked partitions can be built if their inputs are selected too.
    `left_out` has the state of requested partitions that need building, but are excluded by --only.
    `never_now` has the reason of requested partitions that wait for later days, or are before the
    table's first day. `never_built` has the downstream tables that are left out because they have
    no built day.
    """

    partitions: dict[Partition, Reason] = field(default_factory=dict)
    blocked: dict[Partition, str] = field(default_factory=dict)
    upstream_helps: bool = field(default=False, compare=False)
    left_out: TextByPartition = field(default_factory=dict, compare=False)
    never_now: TextByPartition = field(default_factory=dict, compare=False)
    never_built: Sequence[str] = field(default=(), compare=False)


class _Readers(NamedTuple):
    """Downstream partitions, and the tables left out because they were never built."""

    partitions: dict[Partition, Reason]
    never_built: list[str]


def select_partitions(
    selector: Selector,
    graph: Graph,
    status: StatusByPartition,
    was_built: Callable[[str], bool] | None = None,
) -> Selection:
    """Select the partitions to build.

    `status` has every partition of every table of the graph, on its whole calendar. `was_built`
    says whether a table has a built day (None: `status` has all partitions).
    """
    states = frozenset[State]().union(*(STATES[name] for name in selector.only))
    states |= {State.ON_REQUEST} if selector.on_request and State.MISSING in states else set()
    # A closed day is built to be shown, unless states are named.
    states |= {State.CLOSED} if STATES.keys() <= set(selector.only) else set()
    names = [table.name for table in graph.tables if table.name in selector.tables]
    requestable = graph.named(names, selector.days)
    named = [p for p in requestable if not selector.leaves(status[p])]
    requested = {p: reason for p in named if (reason := _reason(selector.force, states, status[p]))}
    named_anyway = set[State]() if selector.replace_foreign_rows else {State.OCCUPIED}
    named_anyway |= set() if selector.leave_protected else {State.REWRITTEN}
    not_now = {
        p: f"{status[p].state}: {status[p].why}"
        for p in requestable
        if status[p].state in (named_anyway if selector.leaves(status[p]) else _left_out(selector))
    }
    upstream = (
        _upstream(requested, graph, status, selector)
        if selector.upstream
        else _compared(requested, graph, status, selector)
    )
    selection = _buildable(requested | upstream, graph, status)
    has_downstream = selector.downstream != "none"
    readers = _Readers({}, [])
    if has_downstream or "outdated" in selector.only:
        # A named day that is up to date belongs to the plan if a rebuild of its inputs makes it
        # outdated.
        within = None if has_downstream else set(named)
        if was_built is None:
            # Days whose rows another program changed count as built.
            was_built = {
                name
                for (name, _), its in status.items()
                if its.is_built or its.state == State.REWRITTEN
            }.__contains__
        readers = _downstream(
            selection.partitions, graph, status, within, selector, cache(was_built)
        )
        wanted = selection.partitions | readers.partitions
        selection = _buildable(wanted, graph, status, selection.blocked)
    blocked = {
        p: why
        for p, why in selection.blocked.items()
        if p in requested and p not in selection.partitions
    }
    helps = not selector.upstream and _upstream_helps(blocked, graph, status, selector)
    left_out = {
        p: status[p].state.value
        for p in named
        if p not in requested and status[p].state in TO_BUILD - states
    }
    never_now = {
        p: f"{status[p].state}: {status[p].why}" for p in named if status[p].state in NEVER_PLANNED
    }
    return Selection(
        selection.partitions,
        blocked | not_now,
        helps,
        left_out,
        never_now,
        readers.never_built if has_downstream else (),
    )


def _left_out(selector: Selector) -> Collection[State]:
    """Return the states of requested days that are not planned now.

    The state of a running day is unknown until its run has ended.
    """
    if selector.force:
        return NOT_NOW - {State.ON_REQUEST}
    return {State.RUNNING} if STATES.keys() <= set(selector.only) else ()


def _upstream_helps(
    blocked: TextByPartition,
    graph: Graph,
    status: StatusByPartition,
    selector: Selector,
) -> bool:
    """True if some blocked partitions can be built together with their inputs."""
    wanted = {
        partition: Reason.of_state(State.MISSING)
        for partition in blocked
        if not status[partition].hindrance
    }
    if not wanted:
        return False
    with_upstream = wanted | _upstream(wanted, graph, status, selector)
    return not wanted.keys().isdisjoint(_buildable(with_upstream, graph, status).partitions)


def _reason(force: bool, states: Collection[State], status: PartitionStatus) -> Reason | None:
    is_outdated = status.is_outdated and State.SOURCE_CHANGED in states
    if (status.state in states and not status.is_up_to_date) or is_outdated:
        return Reason.of_state(status.state)
    return Reason(ReasonKind.FORCED) if force and status.state not in NOT_NOW else None


def _compared(
    requested: Collection[Partition],
    graph: Graph,
    status: StatusByPartition,
    selector: Selector,
) -> dict[Partition, Reason]:
    """Return the partitions that rules compare with the requested ones, if they need building."""
    tables = graph.by_name
    compared = {
        (other.name, day): Reason(ReasonKind.COMPARED, name)
        for name, day in requested
        for other in tables[name].compared_with
    }
    return {
        p: why
        for p, why in compared.items()
        if p not in requested and status[p].state in TO_BUILD and not selector.leaves(status[p])
    }


def _upstream(
    requested: Collection[Partition],
    graph: Graph,
    status: StatusByPartition,
    selector: Selector,
) -> dict[Partition, Reason]:
    """Return the inputs of the requested partitions that must be built, also indirect inputs.

    These are outdated inputs, and missing ones that the partition needs or that its table never
    waits for.
    """
    upstream = dict[Partition, Reason]()
    queue = list(requested)
    tables = graph.by_name
    while queue:
        partition = queue.pop()
        needed = set(graph.needs(partition))
        waited = {table.name for table in waited_for(tables[partition[0]])}
        for other in graph.reads(partition):
            state = status[other].state
            to_build = state in OUTDATED or (
                state in (State.MISSING, State.OCCUPIED, State.ON_REQUEST) and other in needed
            )
            to_build = to_build or (state == State.MISSING and other[0] not in waited)
            is_new = other not in requested and other not in upstream
            if to_build and is_new and not selector.leaves(status[other]):
                upstream[other] = Reason.of_state(state)
                queue.append(other)
    return upstream


def _downstream(
    selected: Mapping[Partition, Reason],
    graph: Graph,
    status: StatusByPartition,
    within: Collection[Partition] | None,
    selector: Selector,
    was_built: Callable[[str], bool],
) -> "_Readers":
    """Return the readers of the selected partitions, also indirect readers.

    A reader may change after its input was rebuilt. Readers in a table that was never built are
    left out, unless all are requested. With `within`, only these partitions are returned.
    """
    downstream: dict[Partition, Reason] = {}
    never_built = dict[str, None]()
    # A closed day has no rows, so its readers do not change.
    queue = graph.in_order(p for p, why in selected.items() if why.kind != ReasonKind.CLOSED)
    previous = dict[str, date]()
    for partition in queue:
        # The readers of the table's previous day are in the queue already.
        readers = graph.readers(partition, since=previous.get(partition[0]))
        previous[partition[0]] = partition[1]
        for reader in readers:
            known = (
                reader in selected
                or reader in downstream
                or (within is not None and reader not in within)
            )
            if known or reader[1] < selector.since or status[reader].state in NOT_NOW:
                continue
            if selector.leaves(status[reader]) or status[reader].is_protected:
                continue
            if selector.downstream != "all" and not was_built(reader[0]):
                never_built[reader[0]] = None
                continue
            downstream[reader] = Reason(
                ReasonKind.READS, f"{partition[0]} {partition[1].isoformat()}"
            )
            queue.append(reader)
    return _Readers(downstream, list(never_built))


def _buildable(
    wanted: Mapping[Partition, Reason],
    graph: Graph,
    status: StatusByPartition,
    blocked: TextByPartition | None = None,
) -> Selection:
    """Return `wanted` without the partitions that lack a delivery or an input.

    An input counts as present if it has an accepted build, or is wanted too.
    """
    selection = Selection({}, dict(blocked or {}))
    tables = graph.by_name
    available: dict[str, set[date]] = {table.name: set() for table in graph.tables}
    for (name, day), its in status.items():
        if its.is_built:
            available[name].add(day)
    for name, days in graph.by_table(wanted).items():
        incomplete = graph.lacking_inputs(name, days, available)
        for partition in ((name, day) for day in days):
            needed = graph.needs(partition) if partition[1] in incomplete else ()
            lacking = next(
                (p for p in needed if p[1] not in available[p[0]] and not status[p].is_built), None
            )
            damaged = next(
                (
                    p
                    for p in graph.reads(partition)
                    if status[p].state == State.REWRITTEN and p not in selection.partitions
                ),
                None,
            )
            compared = next(
                (
                    other.name
                    for other in tables[name].compared_by_source()
                    if status[p := (other.name, partition[1])].is_changed
                    and p not in selection.partitions
                ),
                None,
            )
            if status[partition].hindrance:
                selection.blocked[partition] = status[partition].hindrance
            elif lacking:
                selection.blocked[partition] = f"needs {lacking[0]} {lacking[1]}"
            elif damaged:
                why = "which does not hold its accepted rows"
                selection.blocked[partition] = f"reads {damaged[0]} {damaged[1]}, {why}"
            elif compared:
                why = "which has another delivery or other code, and is not built again"
                selection.blocked[partition] = f"is compared with {compared}, {why}"
            else:
                selection.partitions[partition] = wanted[partition]
                available[name].add(partition[1])
    return selection
