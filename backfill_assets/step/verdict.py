"""Decide about a day: whether it must be built, and the obstacles to that.

A step, `status`, plans, publications and the sensor of sources call `decide_day`. `Facts` has the
facts about the days of one table at one moment, and the answer depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from functools import cached_property

from backfill_assets.calendar import Calendar, Partition, ranges
from backfill_assets.errors import NotFetchedYet, SourceError
from backfill_assets.lake.damage import Damage
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import Build, WriteMode
from backfill_assets.step.inputs import (
    CLOSED,
    NO_DELIVERY,
    Change,
    Delivered,
    Deliveries,
    InputReader,
    Inputs,
    change_since,
    delivered_for,
    newer_code,
    own_days,
)
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import days_until_complete, is_closed, on_request
from backfill_assets.workspace import Workspace

# Tables with their missing days.
_Lacking = list[tuple[Table, list[date]]]


class DayObstacle(StrEnum):
    """The obstacles to building a day."""

    OCCUPIED = "holds rows of another program"
    CALENDAR = "waits for later days"
    PROTECTED = "is built and protected"
    WRITE_MODE = "would keep rows of another program"
    NEWER_CODE = "was built by newer code"
    ON_REQUEST = "waits for a day that is built on demand"
    INPUT = "lacks an input"
    FAILED_INPUT = "has an input that failed in this plan"
    NOT_FETCHED = "waits for the answer of a service"
    DELIVERY = "has no usable delivery"
    COMPARED = "is compared with a day of another delivery"
    DAMAGED_INPUT = "reads a day without its accepted rows"


@dataclass(frozen=True)
class Verdict:
    """The answer about a day.

    due       whether it must be built: it never was, it is damaged or forced, or something changed
    in_case   it has not changed so far, but reads a day of the same table that may change
    closed    nothing is due on it and nothing came, so it is built empty
    change    what changed since the accepted build
    obstacle  what keeps it from being built now
    why       the obstacle in words
    """

    due: bool
    in_case: bool = False
    closed: bool = False
    change: Change | None = None
    obstacle: DayObstacle | None = None
    why: str = ""

    @property
    def text(self) -> str:
        """The text of the obstacle."""
        return f"needs {self.why}" if self.obstacle == DayObstacle.INPUT else self.why

    @property
    def is_computed(self) -> bool:
        return (self.due or self.in_case) and not (self.closed or self.obstacle)

    @property
    def is_up_to_date(self) -> bool:
        return not (self.due or self.in_case or self.obstacle)


@dataclass(frozen=True)
class Facts:
    """The facts about the days of one table at one moment, and the request of a step.

    builds     the latest builds of its days and of all that they read, with the damaged ones
    delivered  what the source has for each day
    calendar   the calendar of the project, which may end where it ended when the source was asked
    force      days to build even if nothing has changed
    failed     partitions that failed in this plan: they block their readers
    by_plan    whether a plan asks. It was refused if it has protected days
    """

    table: Table
    workspace: Workspace
    builds: Latest
    delivered: Deliveries
    calendar: Calendar
    force: Collection[date] = ()
    failed: Collection[Partition] = ()
    write_mode: WriteMode = "overwrite"
    replace_foreign_rows: bool = False
    by_plan: bool = False
    _read: dict[date, Inputs] = field(default_factory=dict, init=False, compare=False)

    def accepted(self, day: date) -> Build | None:
        return self.builds.accepted.get((self.table.name, day))

    def last(self, day: date) -> Build | None:
        return self.builds.last.get((self.table.name, day))

    def damage(self, day: date) -> Damage | None:
        return self.builds.damaged.get((self.table.name, day))

    def delivery(self, day: date) -> Delivered:
        return self.delivered.get(day, NO_DELIVERY)

    def inputs(self, day: date) -> Inputs:
        """The current inputs of the day."""
        if day not in self._read:
            delivery = self.delivery(day)
            usable = NO_DELIVERY if isinstance(delivery, SourceError) else delivery
            self._read[day] = Inputs(self._reader.fingerprints(day), usable)
        return self._read[day]

    def change(self, build: Build, day: date) -> Change | None:
        """The change since this build of the day."""
        return change_since(self.table, build, self.inputs(day).tables, self.delivery(day))

    @cached_property
    def _reader(self) -> InputReader:
        return InputReader(self.table, self.builds.accepted, self.calendar)

    @cached_property
    def damaged_inputs(self) -> Mapping[Partition, Damage]:
        """Damaged days with an accepted build. Nothing is built from them."""
        accepted = self.builds.accepted
        return {p: damage for p, damage in self.builds.damaged.items() if p in accepted}


def facts_now(
    table: Table, days: Collection[date], workspace: Workspace, builds: Latest, accept: str = ""
) -> Facts:
    """The facts about days, with the current answer of the source."""
    calendar = workspace.calendar
    delivered = delivered_for(
        table, sorted(days), workspace.area, builds.accepted, accept, calendar
    )
    return Facts(table, workspace, builds, delivered, calendar)


def decide_day(facts: Facts, day: date, building: Collection[date] = ()) -> Verdict:
    """Decide about a day. `building` are earlier days of the table that are built with it."""
    last = facts.accepted(day)
    delivery = facts.delivery(day)
    change = facts.change(last, day) if last else None
    due = (
        last is None
        or day in facts.force
        or facts.damage(day) is not None
        or change is not None
        or _is_refused(facts, day)
    )
    in_case = not due and any(own in building for own in own_days(facts.table, day))
    # An input that failed in the same plan stops a day that seems to be up to date.
    is_asked = due or in_case or _failed_inputs(facts, day, building)
    obstacles = _obstacles(facts, day, building) if is_asked else iter(())
    obstacle, why = next(obstacles, (None, ""))
    closed = obstacle is None and due and delivery == CLOSED
    return Verdict(due, in_case, closed, change, obstacle, why)


def _is_refused(facts: Facts, day: date) -> bool:
    """True if the present rules refused the day after its accepted build.

    Rows of the present code and inputs were refused, so a new build would be refused too. A day
    that could not be computed, such as after a lost engine, was not refused. Nor is a closed day.
    """
    last = facts.last(day)
    delivery = facts.delivery(day)
    if last is None or last.outcome != "failed" or not last.fingerprint:
        return False
    if isinstance(delivery, SourceError) or delivery == CLOSED:
        return False
    return last.rules == facts.table.rules_version and not facts.change(last, day)


def _obstacles(
    facts: Facts, day: date, building: Collection[date]
) -> Iterator[tuple[DayObstacle, str]]:
    """All obstacles to building a day, with text. The first one counts."""
    table = facts.table
    last = facts.accepted(day)
    damage = facts.damage(day)
    delivery = facts.delivery(day)
    if damage and not last and not facts.replace_foreign_rows:
        how = f"`backfill run --partitions {day} --target {table.name} --replace-foreign-rows"
        yield DayObstacle.OCCUPIED, f"{damage}. To replace them: {how} --reason 'why'`"
    if not last and (late := waiting_for_calendar(table, day, facts.workspace.calendar)):
        yield DayObstacle.CALENDAR, late
    protection = facts.workspace.protection(table, day, is_built=last is not None)
    if protection and not facts.by_plan:
        yield DayObstacle.PROTECTED, f"{'built and ' if last else ''}protected ({protection})"
    if damage and facts.write_mode != "overwrite":
        yield (
            DayObstacle.WRITE_MODE,
            f"{damage}. Those rows would be kept: use write_mode overwrite",
        )
    if delivery == CLOSED:
        return  # nothing is read or computed
    if newer := newer_code(table, last):
        yield (
            DayObstacle.NEWER_CODE,
            f"built by code {newer}, which was loaded after code {table.version} of this run."
            " Load the newer code (`backfill reload`), then run again",
        )
    if lacking := _lacking(facts, day, building):
        if on_request(table) and all(on_request(other) for other, _ in lacking):
            yield DayObstacle.ON_REQUEST, f"needs {_named(lacking)}, which is built on demand only"
        yield DayObstacle.INPUT, _named(lacking)
    if failed := _failed_inputs(facts, day, building):
        yield DayObstacle.FAILED_INPUT, _named(failed)
    if isinstance(delivery, NotFetchedYet):
        yield (
            DayObstacle.NOT_FETCHED,
            f"waits: {delivery}. A nightly run builds recent days later. For this day, type"
            f" `backfill run --partitions {day} --target {table.name}`",
        )
    if isinstance(delivery, SourceError):
        yield DayObstacle.DELIVERY, str(delivery)
    if other := _of_another_delivery(facts, day):
        yield (
            DayObstacle.COMPARED,
            f"a rule compares it with {other} {day}, which was built from another delivery, or by"
            f" other code. Build both: `backfill run --partitions {day} --target"
            f" {other},{table.name}`",
        )
    if damaged := _damaged_input(facts, day, building):
        name, read = damaged
        again = f"`backfill run --partitions {read} --target {name} --force`"
        yield (
            DayObstacle.DAMAGED_INPUT,
            f"reads {name} {read}, which does not hold its accepted rows:"
            f" {facts.damaged_inputs[damaged]}. Build it again: {again}; if its source is gone, put"
            " it back: `backfill reconcile --restore`",
        )


def _of_another_delivery(facts: Facts, day: date) -> str:
    """The compared table whose `day` has another delivery or other code; "" without one."""
    delivered = facts.inputs(day).delivery.fingerprint
    for other in facts.table.compared_by_source():
        build = facts.builds.accepted.get((other.name, day))
        is_same = build and build.delivered == delivered and build.is_of_code(other.version)
        if build and not is_same and not build.is_adopted:
            return other.name
    return ""


def _damaged_input(facts: Facts, day: date, building: Collection[date]) -> Partition | None:
    """A damaged day that `day` reads, and that is not built first."""
    own = {(facts.table.name, other) for other in building}
    damaged = facts.damaged_inputs.keys() - own
    for other, window in facts.table.windows() if damaged else ():
        for read in other.calendar_of(facts.calendar).clip(window.days(day)):
            if (other.name, read) in damaged:
                return other.name, read
    return None


def _failed_inputs(facts: Facts, day: date, building: Collection[date]) -> _Lacking:
    """The missing inputs and those that failed in this plan; empty if none failed."""
    if not facts.failed:
        return []
    unusable = _lacking(facts, day, building, facts.failed)
    return [] if unusable == _lacking(facts, day, building) else unusable


def waiting_for_calendar(table: Table, day: date, calendar: Calendar) -> str:
    """The day for which a new day of a growing calendar waits, as text; "" if it does not wait."""
    complete = day + timedelta(days=days_until_complete(table))
    is_waiting = calendar.fixed_last is None and complete > calendar.last
    return f"complete once {complete} is in" if is_waiting else ""


def _named(lacking: _Lacking) -> str:
    return ", ".join(f"{other.name} {ranges(days)}" for other, days in lacking)


def _lacking(
    facts: Facts, day: date, building: Collection[date], failed: Collection[Partition] = ()
) -> _Lacking:
    """The needed inputs of the day without an accepted build.

    Closed days are not needed.
    """
    there = facts.builds.accepted.keys() - set(failed) if failed else facts.builds.accepted
    lacking = []
    for other, window in facts.table.windows():
        computed = building if other is facts.table else ()
        days = [
            needed
            for needed in other.calendar_of(facts.calendar).clip(window.needed(day))
            if needed not in computed
            and (other.name, needed) not in there
            and not is_closed(other, needed, facts.calendar)
        ]
        lacking += [(other, days)] if days else []
    return lacking
