"""Which days of which tables a rebuild must build, and the reason for each. Values in, values out.

Targets are chosen by their status; what they need and what is made from them follows from the tables' windows. Partitions that
cannot be built (no delivery, an input that neither has an accepted build nor is planned) are blocked, and not part of the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from backfill_assets.errors import UsageError
from backfill_assets.lake.latest import Partition
from backfill_assets.plan.status import Finding, State
from backfill_assets.tables.graph import Graph

# What `--only` names, and the states it stands for.
KINDS = {
    "missing": {State.MISSING},
    "failed": {State.FAILED},
    "outdated": {State.CODE_CHANGED, State.INPUT_CHANGED, State.SOURCE_CHANGED},
}
# How the reason begins of a partition that is planned only because of what it reads.
READS = "reads "
OUTDATED = KINDS["outdated"] | KINDS["failed"]
NOT_NOW = {State.NOT_DUE, State.RUNNING}


@dataclass(frozen=True)
class Selector:
    """What is asked for: days of tables, in which states, and how far up and down the tables it reaches."""

    tables: Sequence[str]
    days: Sequence[date]
    only: Collection[str] = frozenset(KINDS)
    force: bool = False
    upstream: bool = False
    downstream: bool = False


@dataclass(frozen=True)
class Selection:
    """The partitions to build with the reason for each, and the partitions asked for that cannot be, with what they lack."""

    partitions: dict[Partition, str] = field(default_factory=dict)
    blocked: dict[Partition, str] = field(default_factory=dict)


def select(selector: Selector, graph: Graph, status: Mapping[Partition, Finding]) -> Selection:
    """The partitions to build. `status` has every partition of every table of the graph, on its whole calendar."""
    states = frozenset[State]().union(*(KINDS[kind] for kind in selector.only))
    wanted = {
        partition: reason
        for partition in _asked(selector, graph)
        if (reason := _reason(selector.force, states, status[partition]))
    }
    asked = set(wanted)
    if selector.upstream:
        wanted |= _above(wanted, graph, status)
    selection = _possible(wanted, graph, status)
    if selector.downstream:
        selection = _possible(
            selection.partitions | _below(selection.partitions, graph, status), graph, status, selection.blocked
        )
    return Selection(
        selection.partitions, {c: why for c, why in selection.blocked.items() if c in asked and c not in selection.partitions}
    )


def _asked(selector: Selector, graph: Graph) -> Iterator[Partition]:
    return ((table.name, day) for table in graph.tables if table.name in selector.tables for day in selector.days)


def _reason(force: bool, states: Collection[State], found: Finding) -> str:
    if found.state in states:
        return found.state.value
    return "forced" if force and found.state != State.RUNNING else ""


def _above(wanted: Mapping[Partition, str], graph: Graph, status: Mapping[Partition, Finding]) -> dict[Partition, str]:
    """What the wanted partitions need and is not there, and what they read and is outdated; and the same of those."""
    found: dict[Partition, str] = {}
    left = list(wanted)
    while left:
        partition = left.pop()
        needed = set(graph.needs(partition))
        for other in graph.reads(partition):
            state = status[other].state
            if (
                other not in wanted
                and other not in found
                and (state in OUTDATED or (state == State.MISSING and other in needed))
            ):
                found[other] = state.value
                left.append(other)
    return found


def _below(partitions: Mapping[Partition, str], graph: Graph, status: Mapping[Partition, Finding]) -> dict[Partition, str]:
    """What reads a chosen partition, and what reads those: each may come out different once its input has been rebuilt."""
    found: dict[Partition, str] = {}
    left, before = graph.in_order(partitions), dict[str, date]()
    for partition in left:
        # What reads the day looked at before has been found with it.
        readers = graph.readers(partition, since=before.get(partition[0]))
        before[partition[0]] = partition[1]
        for reader in readers:
            if reader not in partitions and reader not in found and status[reader].state not in NOT_NOW:
                found[reader] = f"{READS}{partition[0]} {partition[1].isoformat()}"
                left.append(reader)
    return found


def _possible(
    wanted: Mapping[Partition, str],
    graph: Graph,
    status: Mapping[Partition, Finding],
    known: Mapping[Partition, str] | None = None,
) -> Selection:
    """`wanted` without what lacks a delivery, or an input that neither stands nor is built along."""
    selection = Selection({}, dict(known or {}))
    there: dict[str, set[date]] = {table.name: set() for table in graph.tables}
    for (name, day), found in status.items():
        if found.is_built:
            there[name].add(day)
    days = graph.by_table(wanted)
    for table in graph.tables:
        doubtful = graph.doubtful(table, there)
        for partition in ((table.name, day) for day in days[table.name]):
            needed = graph.needs(partition) if partition[1] in doubtful else ()
            lacking = next(((other, day) for other, day in needed if day not in there[other]), None)
            if status[partition].undelivered:
                selection.blocked[partition] = status[partition].why
            elif lacking:
                selection.blocked[partition] = f"needs {lacking[0]} {lacking[1]}"
            else:
                selection.partitions[partition] = wanted[partition]
                there[table.name].add(partition[1])
    return selection


def states(only: str) -> Collection[str]:
    """The names of a comma-separated list of states; all if it is empty. UsageError for an unknown one."""
    named = frozenset(word.strip() for word in only.split(",") if word.strip())
    unknown = sorted(named - set(KINDS))
    if unknown:
        raise UsageError(f"--only {unknown[0]}: there is no such state. Nothing was planned. Choose of {', '.join(KINDS)}.")
    return named or frozenset(KINDS)
