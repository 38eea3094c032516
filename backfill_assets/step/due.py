"""Decide which requested days must be computed.

A day is due if its inputs are built and something changed since its last build. The snapshot of a
step holds the latest builds, and the versions at which inputs are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

from backfill_assets.calendar import Calendar, Partition, days_around
from backfill_assets.lake.damage import Damage, Depth
from backfill_assets.lake.history import Latest
from backfill_assets.quality.rules import with_trailing_days
from backfill_assets.step.inputs import Inputs, days_of_inputs
from backfill_assets.step.request import StepRequest
from backfill_assets.step.verdict import DayObstacle, Facts, Verdict, decide_day, facts_now
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# Obstacles of days that wait, or need nothing.
_NOT_DUE = (
    DayObstacle.CALENDAR,
    DayObstacle.PROTECTED,
    DayObstacle.ON_REQUEST,
    DayObstacle.NOT_FETCHED,
)
# Sentences for obstacles, if there is more to say than the cause.
_SENTENCES: Mapping[DayObstacle | None, str] = {
    DayObstacle.CALENDAR: "waiting for late data: {}",
    DayObstacle.PROTECTED: "is {}",
    DayObstacle.INPUT: "needs {}, which has no accepted build",
    DayObstacle.FAILED_INPUT: "needs {}, which failed in this plan, or needs a failed partition",
}


@dataclass(frozen=True)
class Due:
    """The verdict on each requested day, in order, and the inputs of each day.

    The lists of days follow from the verdicts. `rewritten` are days that do not hold their accepted
    rows, or hold rows that no build has accepted, and in a shadow the days from live. They are
    always written.
    """

    verdicts: Mapping[date, Verdict]
    inputs: Mapping[date, Inputs]
    rewritten: Collection[date] = ()

    @cached_property
    def compute(self) -> list[date]:
        return [day for day, verdict in self.verdicts.items() if verdict.is_computed]

    @cached_property
    def in_case(self) -> set[date]:
        """Days to compute because they read a day of the same table that may change."""
        return {day for day in self.compute if self.verdicts[day].in_case}

    @property
    def closed(self) -> list[date]:
        """Days to build empty, because nothing was due and nothing came."""
        return [day for day, verdict in self.verdicts.items() if verdict.closed]

    @property
    def up_to_date(self) -> list[date]:
        return [day for day, verdict in self.verdicts.items() if verdict.is_up_to_date]

    @property
    def blocked(self) -> dict[date, str]:
        return self.hindered({*DayObstacle}.difference(_NOT_DUE, [DayObstacle.DELIVERY]))

    @property
    def not_due(self) -> dict[date, str]:
        return self.hindered(_NOT_DUE)

    def hindered(self, by: Collection[DayObstacle] = tuple(DayObstacle)) -> dict[date, str]:
        """Days with one of these obstacles, and its text."""
        return {
            day: _SENTENCES.get(verdict.obstacle, "{}").format(verdict.why)
            for day, verdict in self.verdicts.items()
            if verdict.obstacle in by
        }


def days_due(facts: Facts, days: Iterable[date]) -> Due:
    """Decide for each day, in order, what to do with it."""
    verdicts: dict[date, Verdict] = {}
    building: list[date] = []
    for day in sorted(days):
        verdicts[day] = decide_day(facts, day, building)
        if verdicts[day].is_computed:
            building.append(day)
    elsewhere = {*facts.builds.damaged, *facts.builds.of_live}
    rewritten = [day for name, day in elsewhere if name == facts.table.name]
    return Due(verdicts, {day: facts.inputs(day) for day in verdicts}, rewritten)


def failed_partitions(
    table: Table, request: StepRequest, builds: Latest, workspace: Workspace
) -> set[Partition]:
    """The partitions that failed in the request's plan, and planned partitions that need them.

    A failed partition does not block if it is up to date again, because its delivery or code was
    put back.
    """
    failed = {
        partition
        for partition, build in builds.last.items()
        if request.plan and not build.succeeded and build.plan == request.plan
    }
    if not failed:
        return failed
    for ancestor in table.ancestors():
        days = [day for name, day in failed if name == ancestor.name]
        facts = facts_now(ancestor, days, workspace, builds)
        failed -= {(ancestor.name, day) for day in days if decide_day(facts, day).is_up_to_date}
    planned = set(request.planned)
    for ancestor in table.ancestors():
        new = failed
        while (
            new := {(ancestor.name, day) for day in _needing(ancestor, new, workspace.calendar)}
            & planned - failed
        ):
            failed = failed | new
    return failed


def _needing(table: Table, partitions: Collection[Partition], calendar: Calendar) -> Iterable[date]:
    """The days of `table` that need one of `partitions`."""
    for other, window in table.windows():
        own = table.calendar_of(calendar)
        for day in [day for name, day in partitions if name == other.name]:
            yield from (
                own.days()
                if window.is_whole
                else own.clip(days_around(day, -window.last_needed, -window.first))
            )


@dataclass(frozen=True)
class Snapshot:
    """The lake at the beginning of a step.

    `builds` are the latest builds and the damaged partitions, `inputs` the Delta version of each
    input by table, `version` the Delta version of the table itself.
    """

    builds: Latest
    inputs: Mapping[str, int]
    version: int

    def without(self, lost: Mapping[Partition, Damage]) -> Snapshot:
        """The same snapshot, with `lost` partitions added to the damaged ones."""
        builds = replace(self.builds, damaged={**self.builds.damaged, **lost})
        return replace(self, builds=builds)


def snapshot(
    table: Table, days: Sequence[date], request: StepRequest, workspace: Workspace
) -> Snapshot:
    """Take the snapshot for a step of `days`.

    Builds and versions match: they are read again until no commit came in between.
    """
    lake = workspace.lake
    relevant = _relevant_partitions(table, days, request, workspace)
    lake.recover(relevant)
    names = {table.name, *(other.name for other, _ in table.windows())}
    versions = dict[str, int]()
    while (now := {name: lake.version(name) for name in names}) != versions:
        versions = now
        builds = lake.latest(relevant, plan=request.plan)
        if request.plan and _add_inputs_of_failed(relevant, table, builds, workspace):
            builds = lake.latest(relevant, plan=request.plan)
    damaged = lake.damaged(builds, versions, Depth.LOG)
    damaged |= lake.occupied({table.name: days}, builds)
    inputs = {other.name: versions[other.name] for other, _ in table.windows()}
    return Snapshot(replace(builds, damaged=damaged), inputs, versions[table.name])


def lost_partitions(
    table: Table, due: Due, start: Snapshot, workspace: Workspace
) -> dict[Partition, Damage]:
    """The partitions to write or read by `due` with files that are missing or of another size."""
    looked_at: dict[str, set[date]] = {table.name: set(due.compute)}
    for day in due.compute:
        for name, read in due.inputs[day].tables.items():
            looked_at.setdefault(name, set()).update(map(date.fromisoformat, read))
    versions = {**start.inputs, table.name: start.version}
    return {
        (name, day): damage
        for name, days in looked_at.items()
        for day, damage in workspace.lake.damaged_files(name, days, versions[name]).items()
    }


def _relevant_partitions(
    table: Table, days: Sequence[date], request: StepRequest, workspace: Workspace
) -> defaultdict[str, set[date]]:
    """The partitions whose builds matter for `days`.

    With this limit, a step of one day need not read the whole ledger.
    """
    relevant = defaultdict(set, days_of_inputs(table, days, workspace.calendar))
    relevant[table.name].update(with_trailing_days(days))
    if request.plan:
        for ancestor in table.ancestors():
            relevant.setdefault(ancestor.name, set())
    for name, day in request.planned:
        if name in relevant:
            relevant[name].add(day)
    return relevant


def _add_inputs_of_failed(
    relevant: defaultdict[str, set[date]], table: Table, builds: Latest, workspace: Workspace
) -> bool:
    """Add the inputs of failed partitions to `relevant`. False if no partition failed.

    These show whether the failed partitions are up to date again.
    """
    failed = [partition for partition, build in builds.last.items() if not build.succeeded]
    for ancestor in table.ancestors():
        days = [day for name, day in failed if name == ancestor.name]
        for name, inputs in days_of_inputs(ancestor, days, workspace.calendar).items():
            relevant[name] |= inputs
    return bool(failed)
