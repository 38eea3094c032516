"""The state of each partition of a plan, and the partitions that must still be built.

It is read only from the lake and the landing area. Nothing is launched and no server is asked.

A partition is done when it is up to date, no matter which run built it: if its inputs did not
change, it needs no computing. This counts only after all its inputs in the plan are done, failed or
blocked. A forced day must be built by the plan.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum

from backfill_assets.calendar import Partition, TextByPartition, days_as_typed
from backfill_assets.grouping import grouped
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import Build, BuildByPartition
from backfill_assets.lake.running import running_steps
from backfill_assets.lake.shadow import Shadow
from backfill_assets.plan.neighbours import StatusReader
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.status import DONE, State, latest_builds, status_of, with_inputs
from backfill_assets.step.request import EarlyStop, early_stops
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph
from backfill_assets.workspace import Workspace

# The advice of a message on what to accept, with the command for one day around it.
_ADVISED = re.compile(r"(?:`backfill run --partitions \S+ )?(--accept (.+?) --reason 'why')`?")


@dataclass(frozen=True)
class Readers:
    """Partitions outside a plan that read days changed by the plan.

    `outdated` has the days that are outdated now, by table. `up_to_date` has the other partitions.
    `changed` are the partitions whose rows the plan changed. `downstream` is a sentence on what
    else reads them.
    """

    outdated: dict[str, list[date]]
    up_to_date: Sequence[Partition] = ()
    changed: Sequence[Partition] = ()
    downstream: str = ""


def readers_left(
    plan: Plan, workspace: Workspace, kept: Collection[Partition] = frozenset()
) -> Readers:
    """Find the partitions outside `plan` that read days whose rows the plan changed.

    Partitions that the plan gave up (`kept`) are outside too.
    """
    graph = workspace.graph
    of_plan = workspace.lake.ledger.builds(
        graph.by_table(plan.partitions()),
        ("table", "day", "run", "code_version", "outcome", "plan", "at"),
    )
    changed = {
        (b.table, b.day)
        for b in of_plan
        if b.plan == plan.id and b.succeeded and b.outcome != "unchanged"
    }
    readers = {reader for partition in changed for reader in graph.readers(partition)} - (
        plan.partitions().keys() - kept
    )
    status = StatusReader(workspace).read(readers)
    by_state = grouped((status[reader].state, reader) for reader in graph.in_order(readers))
    return Readers(
        grouped(by_state.get(State.INPUT_CHANGED, ())),
        [reader for state in DONE for reader in by_state.get(state, ())],
        sorted(changed),
    )


def readers_lines(readers: Readers, ask_above_days: int) -> Iterator[str]:
    """Yield a sentence for each outdated table, and the command that rebuilds the days.

    The command has --yes if it needs it.
    """
    outdated = readers.outdated
    for name, days in outdated.items():
        yield f"Outdated now, because what it reads was rebuilt: {name} {days_as_typed(days)}."
    if outdated:
        days = sorted({day for of_table in outdated.values() for day in of_table})
        yes = " --yes" if len(days) > ask_above_days else ""
        yield (
            f"Rebuild them: `backfill run --partitions {days_as_typed(days)} --only outdated"
            f" --downstream{yes}`."
        )
    if readers.downstream:
        yield readers.downstream


class WorkState(StrEnum):
    """The state of a partition of a plan."""

    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    PENDING = "pending"


@dataclass(frozen=True)
class Remaining:
    """The state of each partition of a plan, with the reason if it failed or is blocked.

    `saved` are done without a build by the plan. `failures` are failed builds of this plan, for
    partitions without a later build. A step of the plan is computing `at_work`. `early_stops`
    belong to tables that read themselves.
    """

    states: Mapping[Partition, WorkState]
    why: TextByPartition = field(default_factory=dict)
    saved: Collection[Partition] = ()
    failures: BuildByPartition = field(default_factory=dict)
    at_work: Collection[Partition] = frozenset()
    early_stops: Sequence[EarlyStop] = ()

    def of(self, state: WorkState) -> list[Partition]:
        return [partition for partition, its in self.states.items() if its == state]

    def count(self, partitions: Collection[Partition]) -> Counter[WorkState]:
        """Count the partitions in each state."""
        return Counter(self.states[partition] for partition in partitions)

    def as_shown(self, chunks: Iterable[Chunk]) -> "Remaining":
        """Return the states as shown to people: a partition that is done stays done.

        If a chunk has partitions left to build, its partitions that the plan has not built count as
        left. They are up to date only until their inputs are built again.
        """
        left = [
            chunk
            for chunk in chunks
            if any(self.states[p] == WorkState.PENDING for p in chunk.partitions())
        ]
        not_run = {p for chunk in left for p in chunk.partitions() if p in self.saved}
        states = {
            p: WorkState.PENDING if p in not_run else state for p, state in self.states.items()
        }
        stops = [
            stop
            for stop in self.early_stops
            if not_run.isdisjoint((stop.table, day) for day in stop.left)
        ]
        return replace(self, states=states, saved=set(self.saved) - not_run, early_stops=stops)

    def pending_days(self, partitions: Collection[Partition]) -> dict[str, list[date]]:
        """Return the days of `partitions` that must still be built, by table."""
        return grouped(
            (table, day)
            for table, day in sorted(partitions)
            if self.states[table, day] == WorkState.PENDING
        )


def remaining_of(
    plan: Plan,
    graph: Graph,
    up_to_date: Collection[Partition],
    builds: Latest,
    *,
    before: BuildByPartition | None = None,
    given_up: TextByPartition | None = None,
    done: Collection[Partition] = (),
) -> Remaining:
    """Return the state of every partition of `plan`, inputs first.

    `before`: failures from before this command; these days are tried again. `given_up`: partitions
    that were not built when their runs ended, with the reason. `done`: partitions that are done in
    any case.
    """
    walk = _Walk(plan, graph, up_to_date, builds, before or {}, given_up or {}, done)
    for partition in graph.in_order(walk.planned):
        walk.visit(partition)
    saved = {
        partition for partition, state in walk.states.items() if state == WorkState.DONE
    } - builds.built_by(plan.id)
    return Remaining(
        walk.states,
        walk.why,
        saved,
        walk.failures,
        early_stops=_early_stops(plan, graph, saved, builds),
    )


def _early_stops(
    plan: Plan, graph: Graph, saved: Collection[Partition], builds: Latest
) -> list[EarlyStop]:
    stops: list[EarlyStop] = []
    for table in (table for table in graph.tables if table.needs_itself()):
        accepted = {
            partition: build
            for partition, build in builds.accepted.items()
            if build.table == table.name
        }
        built = [
            build
            for partition, build in accepted.items()
            if build.plan == plan.id and partition not in saved
        ]
        stops += early_stops(
            table, built, [build for partition, build in accepted.items() if partition in saved]
        )
    return stops


@dataclass
class _Walk:
    """A walk over the plan's partitions, inputs first.

    The state of a partition follows from the states of its inputs.
    """

    plan: Plan
    graph: Graph
    up_to_date: Collection[Partition]
    builds: Latest
    before: BuildByPartition
    given_up: TextByPartition
    done: Collection[Partition]
    states: dict[Partition, WorkState] = field(default_factory=dict)
    why: dict[Partition, str] = field(default_factory=dict)
    failures: dict[Partition, Build] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.planned = self.plan.partitions()
        forced = {(table, day) for table in self.plan.code for day in self.plan.forced_days(table)}
        self.to_force = forced - self.builds.built_by(self.plan.id)

    def visit(self, partition: Partition) -> None:
        last = self.builds.last.get(partition)
        failed = last if last and not last.succeeded and last.plan == self.plan.id else None
        if failed:
            self.failures[partition] = failed
        if partition in self.given_up and (
            self._waits(partition) or not self._is_up_to_date(partition)
        ):
            self._set(partition, WorkState.FAILED, self.given_up[partition])
        elif failed and failed != self.before.get(partition) and not self._is_up_to_date(partition):
            self._set(partition, WorkState.FAILED, failed.message)
        elif partition in self.done:
            self._set(partition, WorkState.DONE)
        elif lacking := next(
            (other for other in self.graph.needs(partition) if self._lacks(other)), None
        ):
            self._set(partition, WorkState.BLOCKED, f"needs {lacking[0]} {lacking[1]}")
        elif self._is_up_to_date(partition) and not self._waits(partition):
            self._set(partition, WorkState.DONE)
        else:
            self._set(partition, WorkState.PENDING)

    def _set(self, partition: Partition, state: WorkState, why: str = "") -> None:
        self.states[partition] = state
        if why:
            self.why[partition] = why

    def _is_up_to_date(self, partition: Partition) -> bool:
        """True if the partition needs no computing.

        This includes a failed partition whose delivery or code was put back.
        """
        return partition in self.up_to_date and partition not in self.to_force

    def _waits(self, partition: Partition) -> bool:
        """True if the plan must still build an input of this partition."""
        return any(
            self.states.get(other) == WorkState.PENDING for other in self.graph.reads(partition)
        )

    def _lacks(self, other: Partition) -> bool:
        if other in self.planned:
            return self.states.get(other) in (WorkState.FAILED, WorkState.BLOCKED)
        return other not in self.builds.accepted


# Arguments: failures from before the command, and partitions given up with the reason.
ReadRemaining = Callable[[BuildByPartition, TextByPartition], Remaining]


def remaining_reader(plan: Plan, workspace: Workspace) -> ReadRemaining:
    """Return a function that reads what remains of the plan.

    Partitions are judged by the planned code. Partitions that the plan has merged (`mixed`) or
    given up (`rebase --keep live`) are done too. If the code has changed since, the plan can be
    shown, but not resumed: partitions that it built, or that are up to date for the present code,
    are done.

    Raises UsageError for tables that are gone.
    """
    plan.refuse_gone_tables(workspace.names)
    tables = workspace.among(plan.code)
    as_planned = [replace(table, version=plan.code[table.name]) for table in tables]
    code_changed = any(table.version != plan.code[table.name] for table in tables)
    graph = workspace.graph

    def up_to_date(tables: Sequence[Table], builds: Latest) -> set[Partition]:
        status = status_of(workspace, tables, plan.days(), latest=builds)
        merged = (
            builds.built_by(plan.id) if plan.options.write_mode == "merge" else set[Partition]()
        )
        return {
            partition
            for partition, each in status.partitions.items()
            if each.is_up_to_date or (each.state == State.MIXED and partition in merged)
        }

    def read(before: BuildByPartition, given_up: TextByPartition) -> Remaining:
        building = workspace_of(plan, workspace)
        lake = building.lake
        # Read before the ledger: a step that ends between the two counts as built.
        steps = running_steps(lake.root)
        builds = latest_builds(building, plan.id, with_inputs(building, plan.partitions()))
        ready = up_to_date(as_planned, builds)
        done = set[Partition](lake.base.kept if isinstance(lake, Shadow) else ())
        if code_changed:
            ready = ready | up_to_date(tables, builds)
            done |= builds.built_by(plan.id)
        remaining = remaining_of(
            plan, graph, ready, builds, before=before, given_up=given_up, done=done
        )
        return replace(
            remaining,
            at_work={partition for partition, step in steps.items() if step.plan == plan.id},
        )

    return read


def as_accepted(plan: Plan, messages: Iterable[str]) -> str:
    """Return the commands to accept what these messages of failed days name; "" without names.

    For a plan into a shadow, which is discarded and planned again.
    """
    found = (match[2] for text in messages for match in _ADVISED.finditer(text))
    names = ",".join(dict.fromkeys(found))
    again = f"{plan.as_typed} --into shadow --accept {names} --reason 'why'"
    advice = f"To accept what is named: `backfill discard {plan.id}`, then `{again}`."
    return advice if names else ""


def without_command(message: str) -> str:
    """The message with only the advised options: its command would plan a single day."""
    return _ADVISED.sub(r"\1", message)
