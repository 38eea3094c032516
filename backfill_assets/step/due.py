"""Decide which of the requested days must be computed.

A day is due if its inputs are built and something changed since its last build. The snapshot of a
step holds the latest builds, and the versions at which inputs are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

from backfill_assets.calendar import Calendar, Partition, days_around, ranges
from backfill_assets.errors import NotFetchedYet, SourceError
from backfill_assets.lake.damage import Damage, Depth
from backfill_assets.lake.history import STEP_COLUMNS, Latest
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import WriteMode
from backfill_assets.quality.rules import with_trailing_days
from backfill_assets.step.inputs import (
    CLOSED,
    NO_DELIVERY,
    AcceptedBuilds,
    InputReader,
    Inputs,
    change_since,
    days_of_inputs,
    days_up_to_date,
    delivered_for,
    newer_code,
    own_days,
    refused_since,
)
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import days_until_complete, is_closed, on_request
from backfill_assets.workspace import Workspace


@dataclass
class Due:
    """The requested days by what to do with them.

    Each day is in exactly one of `compute`, `closed`, `up_to_date`, `blocked`, `unusable`,
    `not_due` and `awaited`. The mappings give the reason of each day.

    in_case    days of `compute` that have not changed so far, but read a day of the same table that
               may change
    closed     days to build empty, because nothing was due and nothing came
    unusable   days whose delivery cannot be used
    awaited    days that must still be fetched from a service
    inputs     what each day is computed from
    rewritten  days that do not hold their accepted rows, or hold rows that no build has accepted,
               and in a shadow days that live holds; they are always written
    """

    compute: list[date] = field(default_factory=list)
    in_case: set[date] = field(default_factory=set)
    closed: list[date] = field(default_factory=list)
    up_to_date: list[date] = field(default_factory=list)
    blocked: dict[date, str] = field(default_factory=dict)
    unusable: dict[date, str] = field(default_factory=dict)
    not_due: dict[date, str] = field(default_factory=dict)
    awaited: dict[date, str] = field(default_factory=dict)
    inputs: dict[date, Inputs] = field(default_factory=dict)
    rewritten: Collection[date] = ()


def days_due(
    table: Table,
    days: Sequence[date],
    workspace: Workspace,
    *,
    builds: Latest,
    force: Collection[date] = (),
    failed: Collection[Partition] = (),
    accept: str = "",
    write_mode: WriteMode = "overwrite",
    replace_foreign_rows: bool = False,
    by_plan: bool = False,
) -> Due:
    """Decide for each day, in order, what to do with it.

    `builds` are the latest builds. Damaged partitions are computed again, and nothing is computed
    from them before. `force` are days to compute even if nothing has changed. `failed` are
    partitions that block their readers although an earlier build of them is accepted. `accept`
    names files that may be empty or missing. Days with rows that no build has accepted are blocked
    without `replace_foreign_rows`. A plan was refused if it has protected days
    (`by_plan`): without one, they are not due.
    """
    calendar = workspace.calendar
    accepted = builds.accepted
    rewritten = builds.damaged
    damaged = {partition: why for partition, why in rewritten.items() if partition in accepted}
    due = Due(rewritten=[day for name, day in {*rewritten, *builds.of_live} if name == table.name])
    delivered = delivered_for(table, days, workspace.area, accepted, accept, calendar)
    reader = InputReader(table, accepted, calendar)
    for day in sorted(days):
        last = accepted.get((table.name, day))
        if last is None and (why := waiting_for_calendar(table, day, calendar)):
            due.not_due[day] = f"waiting for late data: {why}"
            continue
        missing = missing_inputs(table, day, accepted, calendar, due.compute)
        unusable = (
            missing_inputs(table, day, accepted, calendar, due.compute, failed)
            if failed
            else missing
        )
        source = delivered.get(day, NO_DELIVERY)
        tables = reader.fingerprints(day)
        outdated = (
            last is None
            or day in force
            or (table.name, day) in rewritten
            or change_since(table, last, tables, source) is not None
            or refused_since(table, builds, day, tables, source)
        )
        in_case = not outdated and any(own in due.compute for own in own_days(table, day))
        due.inputs[day] = Inputs(tables, NO_DELIVERY if isinstance(source, SourceError) else source)
        if unusable == missing and not (outdated or in_case):
            due.up_to_date.append(day)
        elif last and not by_plan and (protected := workspace.protection(table, day)):
            due.not_due[day] = f"is built and protected ({protected})"
        elif last is None and (table.name, day) in rewritten and not replace_foreign_rows:
            due.blocked[day] = (
                f"{rewritten[table.name, day]}. To replace them: `backfill run --partitions {day}"
                f" --target {table.name} --replace-foreign-rows --reason 'why'`"
            )
        elif (table.name, day) in rewritten and write_mode != "overwrite":
            due.blocked[day] = (
                f"{rewritten[table.name, day]}. Those rows would be kept: use write_mode overwrite"
            )
        elif source == CLOSED:
            due.closed.append(day)
        elif newer := newer_code(table, last):
            due.blocked[day] = (
                f"built by code {newer}, which was loaded after code {table.version} of this run."
                " Load the newer code (`backfill reload`), then run again"
            )
        elif missing and waits_for_request_only(table, day, accepted, calendar, due.compute):
            due.not_due[day] = f"waits for {missing}, which is built on demand only"
        elif missing:
            due.blocked[day] = f"needs {missing}, which has no accepted build"
        elif unusable:
            due.blocked[day] = (
                f"needs {unusable}, which failed in this plan, or needs a failed partition"
            )
        elif isinstance(source, NotFetchedYet):
            due.awaited[day] = str(source)
        elif isinstance(source, SourceError):
            due.unusable[day] = str(source)
        elif other := _of_another_delivery(table, day, accepted, source.fingerprint):
            due.blocked[day] = (
                f"a rule compares it with {other} {day}, which was built from another delivery, or"
                f" by other code. Build both: `backfill run --partitions {day} --target"
                f" {other},{table.name}`"
            )
        elif damaged and (unsafe := _reads_rewritten(table, day, calendar, due, damaged)):
            due.blocked[day] = unsafe
        else:
            due.compute.append(day)
            due.in_case.update([day] if in_case else [])
    return due


def _of_another_delivery(table: Table, day: date, accepted: AcceptedBuilds, delivered: str) -> str:
    """The compared table whose `day` has another delivery or other code; "" if none has."""
    for other in table.compared_with:
        build = accepted.get((other.name, day))
        same_source = other.source() is not None and other.source() == table.source()
        if (
            same_source
            and build
            and not (build.delivered == delivered and build.is_of_code(other.version))
        ):
            return other.name
    return ""


def _reads_rewritten(
    table: Table, day: date, calendar: Calendar, due: Due, rewritten: Mapping[Partition, Damage]
) -> str:
    """Why `day` cannot be computed from its inputs as they are now; "" if it can."""
    for other, window in table.windows():
        for read in other.calendar_of(calendar).clip(window.days(day)):
            if (why := rewritten.get((other.name, read))) and not (
                other is table and read in due.compute
            ):
                again = (
                    f"Build it again: `backfill run --partitions {read} --target {other.name}"
                    " --force`"
                )
                again += "; if its source is gone, put it back: `backfill reconcile --restore`"
                return (
                    f"reads {other.name} {read}, which does not hold its accepted rows:"
                    f" {why}. {again}"
                )
    return ""


def waiting_for_calendar(table: Table, day: date, calendar: Calendar) -> str:
    """What a new day at the end of a growing calendar waits for; "" if nothing."""
    complete = day + timedelta(days=days_until_complete(table))
    return (
        f"complete once {complete} is in"
        if calendar.fixed_last is None and complete > calendar.last
        else ""
    )


def missing_inputs(
    table: Table,
    day: date,
    accepted: AcceptedBuilds,
    calendar: Calendar,
    computing: Collection[date] = (),
    failed: Collection[Partition] = (),
) -> str:
    """The inputs that `day` waits for and that have no accepted build, as text; "" if none.

    Closed days are not waited for.
    """
    found = _lacking(table, day, accepted, calendar, computing, failed)
    return ", ".join(f"{other.name} {ranges(days)}" for other, days in found)


def waits_for_request_only(
    table: Table,
    day: date,
    accepted: AcceptedBuilds,
    calendar: Calendar,
    computing: Collection[date] = (),
) -> bool:
    """True if `day` lacks inputs, and all missing ones are built on demand only."""
    found = _lacking(table, day, accepted, calendar, computing) if on_request(table) else []
    return bool(found) and all(on_request(other) for other, _ in found)


def _lacking(
    table: Table,
    day: date,
    accepted: AcceptedBuilds,
    calendar: Calendar,
    computing: Collection[date],
    failed: Collection[Partition] = (),
) -> list[tuple[Table, list[date]]]:
    def is_available(other: Table, needed: date) -> bool:
        partition = (other.name, needed)
        return (partition in accepted and partition not in failed) or (
            other is table and needed in computing
        )

    missing = []
    for other, window in table.windows():
        days = [
            needed
            for needed in other.calendar_of(calendar).clip(window.needed(day))
            if not is_available(other, needed) and not is_closed(other, needed, calendar)
        ]
        missing += [(other, days)] if days else []
    return missing


def failed_partitions(
    table: Table, request: StepRequest, builds: Latest, workspace: Workspace
) -> set[Partition]:
    """The partitions that failed in the request's plan, and planned ones that need them.

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
    failed -= set(_up_to_date(table, failed, builds, workspace))
    planned = set(request.planned)
    for ancestor in table.ancestors():
        new = failed
        while (
            new := {(ancestor.name, day) for day in _needing(ancestor, new, workspace.calendar)}
            & planned - failed
        ):
            failed = failed | new
    return failed


def _up_to_date(
    table: Table, partitions: Collection[Partition], builds: Latest, workspace: Workspace
) -> Iterator[Partition]:
    for ancestor in table.ancestors():
        days = [day for name, day in partitions if name == ancestor.name]
        yield from (
            (ancestor.name, day) for day in days_up_to_date(ancestor, days, builds, workspace)
        )


def _needing(table: Table, partitions: Collection[Partition], calendar: Calendar) -> Iterable[date]:
    """The days of `table` that need one of `partitions`."""
    for other, window in table.windows():
        for day in [day for name, day in partitions if name == other.name]:
            yield from table.calendar_of(calendar).clip(
                days_around(day, -window.last_needed, -window.first)
            )


@dataclass(frozen=True)
class Snapshot:
    """What a step knows when it begins.

    `builds` are the latest builds and the damaged partitions, `inputs` the Delta version of each
    input by table, `version` the Delta version of the table itself.
    """

    builds: Latest
    inputs: Mapping[str, int]
    version: int

    def without(self, lost: Mapping[Partition, Damage]) -> Snapshot:
        """The same, with `lost` partitions added to the damaged ones."""
        builds = replace(self.builds, damaged={**self.builds.damaged, **lost})
        return replace(self, builds=builds)


def snapshot(
    table: Table, days: Sequence[date], request: StepRequest, workspace: Workspace
) -> Snapshot:
    """Take the snapshot for a step of `days`.

    Builds and versions belong together: they are read again until no commit came between.
    """
    lake = workspace.lake
    relevant = _relevant_partitions(table, days, request, workspace)
    lake.recover(relevant)
    versions = _versions(table, lake)
    before = None
    builds = Latest()
    while versions != before:
        before = versions
        builds = lake.latest(relevant, STEP_COLUMNS, plan=request.plan)
        if request.plan and _add_inputs_of_failed(relevant, table, builds, workspace):
            builds = lake.latest(relevant, STEP_COLUMNS, plan=request.plan)
        versions = _versions(table, lake)
    damaged = lake.damaged(builds, versions, Depth.LOG)
    damaged |= lake.occupied({table.name: days}, builds)
    inputs = {other.name: versions[other.name] for other, _ in table.windows()}
    return Snapshot(replace(builds, damaged=damaged), inputs, versions[table.name])


def _versions(table: Table, lake: Lake) -> dict[str, int]:
    return {
        name: lake.version(name)
        for name in {table.name, *(other.name for other, _ in table.windows())}
    }


def lost_partitions(
    table: Table, due: Due, start: Snapshot, workspace: Workspace
) -> dict[Partition, Damage]:
    """The partitions that `due` would write or read, if files are missing or have another size."""
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

    Without them, a step of one day would read the whole ledger.
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

    They are needed to see whether these partitions are up to date again.
    """
    failed = [partition for partition, build in builds.last.items() if not build.succeeded]
    for ancestor in table.ancestors():
        days = [day for name, day in failed if name == ancestor.name]
        for name, inputs in days_of_inputs(ancestor, days, workspace.calendar).items():
            relevant[name] |= inputs
    return bool(failed)
