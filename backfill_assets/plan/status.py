"""The status of every partition, and why. No Spark, no Dagster.

A partition is up to date exactly when a step would not compute it: both ask `step/verdict.py`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from backfill_assets.calendar import NO_DAY, Calendar, Partition, TextByPartition
from backfill_assets.errors import (
    IncompleteDelivery,
    NotDelivered,
    NotFetchedYet,
    SourceError,
    first_line,
    first_of,
    named,
)
from backfill_assets.lake.damage import Depth
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import Build, Days
from backfill_assets.lake.running import running_steps
from backfill_assets.step.inputs import (
    CLOSED,
    Change,
    ChangeCause,
    Delivered,
    Deliveries,
    InputReader,
    changed_inputs,
    days_of_inputs,
    delivered_for,
    files_changed,
)
from backfill_assets.step.verdict import DayObstacle, Facts, Verdict, decide_day
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# The number of notes on a day's files that are shown.
_NOTES_SHOWN = 2


def rest_hint(message: str, table: str, day: date) -> str:
    """The command that shows the further lines of a day's message; "" if there are none."""
    is_whole = first_line(message) == message.strip()
    return "" if is_whole else f"; `backfill status --why {table} {day}` shows the rest"


def other_files(failed: Build, delivery: Delivered) -> str:
    """Return a note if a day failed with other files than the current ones.

    The day's message is about the earlier files.
    """
    changed = not isinstance(delivery, SourceError) and delivery.fingerprint != failed.delivered
    return "; other files, or other contents, are there since" if changed else ""


def not_read(delivery: Delivered, named_before: set[tuple[str, ...]] | None = None) -> str:
    """Return a note on files, columns or rows of a day that are not read as delivered.

    Undeclared columns in `named_before` are not named again. Other undeclared columns are named and
    added to it.
    """
    if isinstance(delivery, SourceError):
        return ""
    unread = delivery.unread
    undeclared = tuple(delivery.undeclared)
    columns = list[str]()
    if undeclared and undeclared not in (named_before or ()):
        columns.append(f"columns that are not declared: {', '.join(undeclared)}")
        if named_before is not None:
            named_before.add(undeclared)
    if delivery.absent:
        absent = (
            f"{name} (renamed to {new}?)" if new else name for name, new in delivery.absent.items()
        )
        columns.append(f"columns that no file has: {', '.join(absent)}")
    closed = ["delivered for a day that is closed by `expected`"] if delivery.unexpected else []
    notes = first_of(delivery.notes, _NOTES_SHOWN)
    names = [f"not read: {named(unread, 1)}"] if unread else []
    return "; ".join([*names, *columns, *closed, *notes])


def other_inputs(table: Table, build: Build) -> str:
    """Name the tables that are read now but were not for `build`, and tables no longer read.

    The text is empty without differences.
    """
    now = {other.name for other, _ in table.windows()}
    before = build.inputs.keys()
    if not before or now == before:  # the build was made only from a source
        return ""
    came = ", ".join(sorted(now - before))
    went = ", ".join(sorted(before - now))
    return " and ".join(
        [*([f"reads {came} now"] if came else []), *([f"no longer reads {went}"] if went else [])]
    )


def input_changed(changed: Change, day: date, calendar: Calendar) -> str:
    """Say which input of `day` has changed since the day was built.

    An input may also be outside the present calendar.
    """
    read = date.fromisoformat(changed.day)
    first = read < calendar.first
    if read in calendar:
        return f"{changed.table} {changed.day} has changed since {day} was built"
    return (
        f"{changed.table} {changed.day} is outside the calendar now, which"
        f" {'begins' if first else 'ends'} {calendar.first if first else calendar.last}: built"
        f" again, {day} has nothing of it"
    )


class State(StrEnum):
    """The state of a partition."""

    UP_TO_DATE = "up to date"
    ADOPTED = "up to date (adopted)"
    CLOSED = "closed"
    MISSING = "missing"
    CODE_CHANGED = "outdated: code changed"
    INPUT_CHANGED = "outdated: input changed"
    SOURCE_CHANGED = "outdated: source files changed"
    MIXED = "outdated: keeps rows of earlier builds"
    REWRITTEN = "outdated: not as it was built"
    OCCUPIED = "occupied"
    FAILED = "failed"
    RUNNING = "running"
    NOT_DUE = "waiting for late data"
    ON_REQUEST = "on demand"
    BEFORE = "before the table's first day"


# A day in these states is built, and nothing has changed.
DONE = (State.UP_TO_DATE, State.ADOPTED)


@dataclass(frozen=True)
class PartitionStatus:
    """The state of a partition, and the reason as text.

    An up-to-date partition usually has no reason. `is_built`: it holds the rows of an accepted
    build. `hindrance`: the reason why it cannot be built, even after other builds. `loses_inputs`:
    it was built from days that are outside the calendar now. `is_protected`: no plan may build it.
    `is_outdated`: it failed with another delivery, code or input than the current one.
    `is_changed`: it was built by other code, or from another delivery, than the current one.
    """

    state: State
    why: str = ""
    is_built: bool = field(default=False, compare=False)
    hindrance: str = field(default="", compare=False)
    loses_inputs: bool = field(default=False, compare=False)
    is_protected: bool = field(default=False, compare=False)
    is_outdated: bool = field(default=False, compare=False)
    is_changed: bool = field(default=False, compare=False)

    @property
    def is_up_to_date(self) -> bool:
        """True if the partition is built, and a step would not build it. Closed days count."""
        return self.state in DONE or (self.state == State.CLOSED and self.is_built)


StatusByPartition = Mapping[Partition, PartitionStatus]


@dataclass(frozen=True)
class Status:
    """The status of each of `days` of each of `tables`, in their order.

    A table without days has one partition.
    """

    tables: Sequence[str]
    days: Sequence[date]
    partitions: StatusByPartition = field(repr=False)

    def of(self, table: str) -> dict[State, list[date]]:
        """The days of one table by their state, in the order of `State`."""
        by_state: dict[State, list[date]] = {state: [] for state in State}
        # Most neighbouring days have the same state.
        own = self.days_of(table)
        for state, days in groupby(own, lambda day: self.partitions[table, day].state):
            by_state[state] += days
        return {state: days for state, days in by_state.items() if days}

    def days_of(self, table: str) -> Sequence[date]:
        """The days of one table."""
        if (table, NO_DAY) in self.partitions:
            return [NO_DAY]
        return [day for day in self.days if day != NO_DAY]

    @cached_property
    def states(self) -> set[State]:
        """Every state that a partition has."""
        in_order = (partition.state for partition in self.partitions.values())
        return {state for state, _ in groupby(in_order)}


def status_of(
    workspace: Workspace,
    tables: Sequence[Table],
    days: Sequence[date],
    *,
    latest: Latest,
    running: TextByPartition | None = None,
    delivered: Mapping[str, Deliveries] | None = None,
) -> Status:
    """Return the status of each of `days` of each of `tables`.

    `running` has the run of each partition that is being computed. `delivered` has the deliveries
    of tables whose sources were asked already.
    """
    calendar = Calendar(workspace.calendar.first, workspace.calendar.last)
    running = running or {}
    accepted = latest.accepted
    partitions = dict[Partition, PartitionStatus]()
    for table in tables:
        deliveries = (delivered or {}).get(table.name)
        if deliveries is None:
            of_table = table.days_of(days)
            deliveries = delivered_for(table, of_table, workspace.area, accepted, calendar=calendar)
        history = _TableHistory(Facts(table, workspace, latest, deliveries, calendar))
        for day in table.days_of(days):
            partition = (table.name, day)
            run = running.get(partition)
            found = PartitionStatus(State.RUNNING, f"run {run}") if run else history.found(day)
            is_accepted = partition in accepted
            partitions[partition] = replace(
                found,
                is_built=is_accepted and partition not in latest.damaged,
                is_protected=bool(workspace.protection(table, day, is_built=is_accepted)),
            )
    return Status([table.name for table in tables], list(days), partitions)


@dataclass(frozen=True)
class _TableHistory:
    """The builds of a table, compared with its present code, inputs and deliveries."""

    facts: Facts
    # The undeclared columns that the note of an earlier day has named, so that later days need not.
    _named_before: set[tuple[str, ...]] = field(default_factory=set)

    def found(self, day: date) -> PartitionStatus:
        """The state of a day that no run is computing, with the reason."""
        facts = self.facts
        table = facts.table
        if table.first_day and day < table.first_day:
            return PartitionStatus(State.BEFORE, f"its first day is {table.first_day}")
        verdict = decide_day(facts, day)
        change = verdict.change
        is_changed = change is not None and change.cause in (ChangeCause.CODE, ChangeCause.SOURCE)
        found = replace(self._found(day, verdict), is_changed=is_changed)
        if verdict.obstacle in _TOLD and found.state not in _SAYS_OBSTACLE:
            found = replace(found, why="; ".join(filter(None, [found.why, verdict.text])))
        # Plans read the hindrance, because a plan may build a day that is up to date.
        is_undelivered = _is_undelivered(facts.delivery(day))
        if is_undelivered or verdict.obstacle == DayObstacle.NEWER_CODE:
            return replace(found, hindrance=found.why or "nothing is delivered")
        return found

    def _found(self, day: date, verdict: Verdict) -> PartitionStatus:
        facts = self.facts
        accepted = facts.accepted(day)
        last = facts.last(day)
        damage = facts.damage(day)
        delivery = facts.delivery(day)
        obstacle = verdict.obstacle
        if damage and not accepted:
            why = (
                f"{damage}; with a reason, `backfill adopt` takes them as they stand, or a plan"
                " with `--replace-foreign-rows` replaces them"
            )
            return PartitionStatus(State.OCCUPIED, why)
        if damage:
            gone = (
                f"; {delivery} any more: `backfill reconcile --restore` puts back the rows that"
                " were accepted"
            )
            return PartitionStatus(
                State.REWRITTEN, f"{damage}{gone if _is_undelivered(delivery) else ''}"
            )
        if obstacle == DayObstacle.CALENDAR:
            return PartitionStatus(State.NOT_DUE, verdict.why)
        if delivery == CLOSED and not verdict.change:
            return PartitionStatus(State.CLOSED)
        up_to_date = State.ADOPTED if accepted and accepted.is_adopted else State.UP_TO_DATE
        if accepted and not verdict.due:
            notes = (
                _delivery_note(day, accepted, delivery),
                self._by_rules(day),
                _by_code(facts.table, accepted),
                accepted.message,
                not_read(delivery, self._named_before),
            )
            return PartitionStatus(up_to_date, "; ".join(filter(None, notes)))
        if accepted and obstacle == DayObstacle.PROTECTED:
            return PartitionStatus(up_to_date)
        if last and not last.succeeded:
            return self._failed(day, last, accepted, verdict)
        if accepted and verdict.change:
            return self._outdated(day, accepted, verdict.change)
        return self._never_built(day, verdict)

    def _by_rules(self, day: date) -> str:
        """Return a note for an accepted day that today's rules have not judged, or have refused."""
        facts = self.facts
        rules = facts.table.rules_version
        audit = facts.builds.audit_of((facts.table.name, day))
        accepted = facts.accepted(day)
        if audit and audit.rules == rules:
            message = first_line(audit.message)
            return (
                f"refused by an audit: {message} (run {audit.run})"
                if audit.outcome == "refused"
                else ""
            )
        # Builds from before rules were recorded have no rules.
        if accepted is None or accepted.rules in ("", rules):
            return ""
        return "accepted under earlier rules: `backfill audit` judges it by today's"

    def _failed(
        self, day: date, last: Build, accepted: Build | None, verdict: Verdict
    ) -> PartitionStatus:
        if verdict.obstacle == DayObstacle.ON_REQUEST and not accepted:
            return PartitionStatus(State.ON_REQUEST, verdict.why)
        table = self.facts.table
        delivery = self.facts.delivery(day)
        why = f"{first_line(last.message)} (run {last.run}){other_files(last, delivery)}"
        rows = f"; its rows are from the build before (run {accepted.run})" if accepted else ""
        hint = rest_hint(last.message, table.name, day)
        is_outdated = not isinstance(delivery, SourceError) and bool(self.facts.change(last, day))
        return PartitionStatus(State.FAILED, f"{why}{rows}{hint}", is_outdated=is_outdated)

    def _outdated(self, day: date, accepted: Build, changed: Change) -> PartitionStatus:
        facts = self.facts
        table = facts.table
        delivery = facts.delivery(day)
        note = _delivery_note(day, accepted, delivery)
        match changed.cause:
            case ChangeCause.CODE:
                code = f"built by code {accepted.code_version}, which is {table.version} now"
                note = note or other_inputs(table, accepted)
                return PartitionStatus(State.CODE_CHANGED, f"{code}; {note}" if note else code)
            case ChangeCause.SOURCE:
                if not isinstance(delivery, SourceError) and not note:
                    note = files_changed(accepted, delivery)
                files = f"other files, or other contents, than when {day} was built"
                return PartitionStatus(State.SOURCE_CHANGED, note or files)
            case ChangeCause.MIXED:
                mixed = (
                    "some of its rows were made by other code, or from other files or inputs, than"
                    " it has now"
                )
                return PartitionStatus(State.MIXED, note or mixed)
        is_outside = date.fromisoformat(changed.day) not in facts.calendar
        why = input_changed(changed, day, facts.calendar)
        return PartitionStatus(
            State.INPUT_CHANGED, f"{why}; {note}" if note else why, loses_inputs=is_outside
        )

    def _never_built(self, day: date, verdict: Verdict) -> PartitionStatus:
        table = self.facts.table
        if table.cron:
            how = verdict.text or f"`backfill run --partitions {day} --target {table.name}` does"
            if verdict.obstacle == DayObstacle.INPUT:
                first = verdict.why.replace("..", ",").partition(",")[0]
                how = f"it {how}: see `backfill status --why {first}`"
            unbuilt = f"its schedule ({table.cron}) has not built it; {how}"
            return PartitionStatus(State.ON_REQUEST, unbuilt)
        if verdict.obstacle == DayObstacle.ON_REQUEST:
            return PartitionStatus(State.ON_REQUEST, verdict.why)
        if verdict.obstacle in (DayObstacle.DELIVERY, DayObstacle.NOT_FETCHED):
            return PartitionStatus(State.MISSING, str(self.facts.delivery(day)))
        return PartitionStatus(State.MISSING, "" if verdict.obstacle in _TOLD else "not built")


# The obstacles, other than deliveries, that keep a day from being built.
_TOLD = (
    DayObstacle.PROTECTED,
    DayObstacle.INPUT,
    DayObstacle.NEWER_CODE,
    DayObstacle.ON_REQUEST,
    DayObstacle.COMPARED,
    DayObstacle.DAMAGED_INPUT,
)


_SAYS_OBSTACLE = (State.OCCUPIED, State.ON_REQUEST, State.CLOSED)


def _is_undelivered(delivery: Delivered) -> bool:
    """True if nothing is delivered. A step fetches missing answers of a service itself."""
    return isinstance(delivery, NotDelivered) and not isinstance(delivery, NotFetchedYet)


def _delivery_note(day: date, accepted: Build, delivery: Delivered) -> str:
    """Return a note on the delivery of a built day that cannot be built from it again."""
    if delivery == CLOSED:
        return f"nothing is due, and {day} was built with rows" if accepted.rows else ""
    if accepted.is_closed:
        nothing = f"; {delivery}" if isinstance(delivery, SourceError) else ""
        return f"{day} was built as a closed day{nothing}"
    if _is_undelivered(delivery) and not isinstance(delivery, IncompleteDelivery):
        return f"{delivery} any more: the rows stay, and cannot be built again"
    return str(delivery) if isinstance(delivery, SourceError) else ""


def _by_code(table: Table, accepted: Build) -> str:
    """Return a note for a day that keeps rows of earlier code; "" for other days."""
    built_by = accepted.code_version
    kept = f"built by code {built_by}, and kept for {table.version} (`backfill accept-code`)"
    return "" if accepted.is_adopted or built_by == table.version else kept


class OutdatedByInputs(NamedTuple):
    """The inputs of a partition that changed since it was built, and its last build."""

    inputs: Sequence[Partition]
    last: Build


def outdated_by_inputs(
    workspace: Workspace, partitions: Collection[Partition], also: Iterable[Build] = ()
) -> dict[Partition, OutdatedByInputs]:
    """Find the built partitions among these whose inputs have changed.

    Protected partitions are left out, because they stay as they are, and adopted ones, because
    their inputs are not known. `also` has builds that will be recorded, and already count.
    """
    builds = workspace.lake.latest(with_inputs(workspace, partitions))
    builds.add(also)
    found = {}
    wanted = workspace.graph.by_table(partitions)
    for table in workspace.tables:
        inputs = InputReader(table, builds.accepted, workspace.calendar)
        for day in wanted.get(table.name, ()):
            partition = (table.name, day)
            accepted = builds.accepted.get(partition)
            if accepted is None or accepted.is_adopted or workspace.protection(table, day):
                continue
            if changed := changed_inputs(accepted.inputs, inputs.fingerprints(day)):
                read = [(name, date.fromisoformat(on)) for name, on in changed]
                found[partition] = OutdatedByInputs(read, builds.last[partition])
    return found


def with_inputs(
    workspace: Workspace, partitions: Collection[Partition]
) -> dict[str, Collection[date]]:
    """The days of these partitions, and of all their inputs, by table."""
    days: dict[str, set[date]] = {}
    by_table = workspace.graph.by_table(partitions)
    for table in workspace.among(by_table):
        own = by_table[table.name]
        read = days_of_inputs(table, own, workspace.calendar)
        for name, of_table in ((table.name, own), *read.items()):
            days.setdefault(name, set()).update(of_table)
    return dict(days)


def latest_builds(workspace: Workspace, plan: str = "", days: Days | None = None) -> Latest:
    """Return the latest builds of these days (None: of all tables), with the damaged ones.

    Damage is found in the log only. The result also says which partitions `plan` has built.
    """
    of = dict.fromkeys(workspace.names) if days is None else days
    builds = workspace.lake.latest(of, plan=plan)
    damaged = workspace.lake.damaged(builds, dict.fromkeys(of), Depth.LOG)
    occupied = workspace.lake.occupied(of, builds)
    return replace(builds, damaged=damaged | occupied)


def runs_by_partition(workspace: Workspace) -> dict[Partition, str]:
    """Return the run that is computing each partition.

    Call it before reading the ledger: a step that ends between the two then counts as running, not
    as missing.
    """
    return {partition: step.run for partition, step in running_steps(workspace.lake.root).items()}
