"""The status of every (table, day), and why: from the ledger and what lies in the landing area. No Spark, no Dagster.

A day is up to date exactly when a step that was asked for it would not compute it: both ask `build.due`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import cache, cached_property

from backfill_assets.calendar import Calendar
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.latest import Latest, Partition
from backfill_assets.lake.record import Build
from backfill_assets.step.due import Cause, Change, InputReader, Inputs, change, delivered_for, lacking
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


class State(StrEnum):
    """What can be said of a day of a table."""

    UP_TO_DATE = "up to date"
    MISSING = "missing"
    CODE_CHANGED = "outdated: code changed"
    INPUT_CHANGED = "outdated: input changed"
    SOURCE_CHANGED = "outdated: source files changed"
    FAILED = "failed"
    RUNNING = "running"
    NOT_DUE = "not due yet"


@dataclass(frozen=True)
class Finding:
    """The state of one day of one table, and why, in words; nothing needs saying of a day that is up to date.

    `is_built`: some accepted build of it is in the table. `undelivered`: its source is not there, or cannot be used.
    """

    state: State
    why: str = ""
    is_built: bool = field(default=False, compare=False)
    undelivered: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Status:
    """Every day asked for of every table asked for, in their order."""

    tables: Sequence[str]
    days: Sequence[date]
    partitions: Mapping[Partition, Finding] = field(repr=False)

    def of(self, table: str) -> dict[State, list[date]]:
        """The days of one table by their state, in the order of `State`."""
        found: dict[State, list[date]] = {state: [] for state in State}
        for day in self.days:
            found[self.partitions[table, day].state].append(day)
        return {state: days for state, days in found.items() if days}


def status_of(
    workspace: Workspace,
    tables: Sequence[Table],
    days: Sequence[date],
    *,
    latest: Latest,
    running: Mapping[Partition, str] | None = None,
) -> Status:
    """Look at each of `days` of each of `tables`. `running` names the run that is at work on a day."""
    calendar = workspace.calendar
    growing, still = calendar.fixed_last is None, Calendar(calendar.first, calendar.last)
    at_work, partitions, finding = running or {}, dict[Partition, Finding](), cache(Finding)  # most days are found alike
    for table in tables:
        of_table = _TableStatus(table, latest, still, growing)
        delivered = delivered_for(table, days, workspace.area)
        for day in days:
            partition, source = (table.name, day), delivered.get(day, "")
            state, why = (State.RUNNING, f"run {at_work[partition]}") if partition in at_work else of_table.of(day, source)
            partitions[partition] = finding(state, why, partition in latest.accepted, isinstance(source, SourceError))
    return Status([table.name for table in tables], list(days), partitions)


@dataclass(frozen=True)
class _TableStatus:
    """The status of the days of one table, on a calendar whose end is fixed at the time of the call."""

    table: Table
    latest: Latest
    calendar: Calendar
    growing: bool

    @cached_property
    def _inputs(self) -> InputReader:
        return InputReader(self.table, self.latest.accepted, self.calendar)

    def of(self, day: date, delivered: str | SourceError) -> tuple[State, str]:
        partition = (self.table.name, day)
        accepted, last = self.latest.accepted.get(partition), self.latest.last.get(partition)
        changed, why = self._changed(day, accepted, delivered) if accepted else (None, "")
        if accepted and not changed:
            return State.UP_TO_DATE, why
        if last and not last.succeeded:
            return State.FAILED, f"{last.message.strip().partition(chr(10))[0]} (run {last.run})"
        if accepted and changed:
            return _outdated(self.table, day, changed, why, accepted.code_version)
        return self._never_built(day, delivered)

    def _changed(self, day: date, accepted: Build, delivered: str | SourceError) -> tuple[Change | None, str]:
        """What has changed since the accepted build, and what to add to that."""
        if isinstance(delivered, NotDelivered):  # moved away since: the rows built from it stay right
            changed = Change(Cause.CODE) if accepted.code_version != self.table.version else None
            return changed, f"{delivered} any more"
        if isinstance(delivered, SourceError):
            return Change(Cause.SOURCE), str(delivered)
        return change(self.table, accepted, Inputs(self._inputs.of(day), delivered)), ""

    def _never_built(self, day: date, delivered: str | SourceError) -> tuple[State, str]:
        late = [d for _, window in self.table.windows() for d in window.needed(day) if d > self.calendar.last]
        if late and self.growing:
            return State.NOT_DUE, f"complete once {max(late)} is in"
        needs = lacking(self.table, day, self.latest.accepted, self.calendar)
        error = str(delivered) if isinstance(delivered, SourceError) else ""
        return State.MISSING, error or (f"needs {needs}" if needs else "never built")


def _outdated(table: Table, day: date, changed: Change, why: str, before: str) -> tuple[State, str]:
    if changed.cause == Cause.CODE:
        return State.CODE_CHANGED, f"built by code {before}, which is {table.version} now" + (f"; {why}" if why else "")
    if changed.cause == Cause.SOURCE:
        return State.SOURCE_CHANGED, why or f"other files, or other contents, than when {day} was built"
    return State.INPUT_CHANGED, f"{changed.table} {changed.day} has changed since {day} was built"
