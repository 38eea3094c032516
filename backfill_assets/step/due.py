"""Which of the requested days must be computed: the inputs they have, and whether anything changed since their last build."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import cache, partial
from typing import NamedTuple

from backfill_assets.calendar import Calendar, Partition, ranges
from backfill_assets.errors import SourceError
from backfill_assets.lake.record import Build
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.delivered import NO_DELIVERY, delivered_for
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import Window
from backfill_assets.workspace import Workspace

AcceptedBuilds = Mapping[Partition, Build]


class Inputs(NamedTuple):
    """What a partition is computed from: of each table read, the days' fingerprints; and the delivery."""

    tables: Mapping[str, Mapping[str, str]] = {}
    delivery: Delivery = NO_DELIVERY


class Cause(StrEnum):
    """Why a partition is outdated."""

    CODE = "code"
    SOURCE = "source"
    INPUT = "input"


class Change(NamedTuple):
    """What changed since a build: for an input, which day of which table."""

    cause: Cause
    table: str = ""
    day: str = ""


@dataclass
class Due:
    """The requested days by what is to be done with them. Every day is in exactly one of the first four."""

    compute: list[date] = field(default_factory=list)
    up_to_date: list[date] = field(default_factory=list)
    blocked: dict[date, str] = field(default_factory=dict)
    undelivered: dict[date, str] = field(default_factory=dict)
    inputs: dict[date, Inputs] = field(default_factory=dict)


def days_due(
    table: Table,
    days: Sequence[date],
    workspace: Workspace,
    *,
    accepted: AcceptedBuilds,
    force: Collection[date] = (),
    already: Collection[date] = (),
    failed: Collection[Partition] = (),
    accept: str = "",
) -> Due:
    """Sort `days`, in order.

    `force` are days to compute even if nothing has changed; `already`, days that this run has appended before (append_once);
    `failed`, partitions that block what needs them although an earlier version of them is accepted; `accept`, files that may be
    empty or missing.
    """
    calendar, due = workspace.calendar, Due()
    delivered = delivered_for(table, days, workspace.area, accepted, accept)
    for day in sorted(days):
        missing = lacking(table, day, accepted, calendar, due.compute, failed)
        if missing:
            due.blocked[day] = f"needs {missing}, of which there is no accepted build"
            continue
        delivery = delivered.get(day, NO_DELIVERY)
        if isinstance(delivery, SourceError):
            due.undelivered[day] = str(delivery)
            continue
        due.inputs[day] = Inputs(tables_read(table, day, accepted, calendar), delivery)
        if day in already or not (day in force or _changed(table, day, due, accepted)):
            due.up_to_date.append(day)
        else:
            due.compute.append(day)
    return due


def tables_read(table: Table, day: date, accepted: AcceptedBuilds, calendar: Calendar) -> dict[str, dict[str, str]]:
    """The fingerprints of what `day` is computed from. Of an input with another day column, only the rows about `day` count."""
    return InputReader(table, accepted, calendar).of(day)


class InputReader:
    """The same for many days of one table: the build of a day that several of them read is looked up once."""

    def __init__(self, table: Table, accepted: AcceptedBuilds, calendar: Calendar) -> None:
        self._reads = [
            (o.name, calendar.window(w.first, w.last), cache(partial(_build_of, accepted, o.name)), table.reads_by_day(o))
            for o, w in table.windows()
        ]

    def of(self, day: date) -> dict[str, dict[str, str]]:
        inputs: dict[str, dict[str, str]] = {}
        about = day.isoformat()
        for name, around, build_of, by_day in self._reads:
            builds = [(on, build) for on, build in map(build_of, around(day)) if build]
            if by_day:
                fingerprints = {on: build.day_fingerprints.get(about, "") for on, build in builds}
            else:
                fingerprints = {on: build.fingerprint for on, build in builds}
            inputs.setdefault(name, {}).update((on, value) for on, value in fingerprints.items() if value)
        return inputs


def _build_of(accepted: AcceptedBuilds, table: str, ordinal: int) -> tuple[str, Build | None]:
    day = date.fromordinal(ordinal)
    return day.isoformat(), accepted.get((table, day))


def lacking(
    table: Table,
    day: date,
    accepted: AcceptedBuilds,
    calendar: Calendar,
    computing: Collection[date] = (),
    failed: Collection[Partition] = (),
) -> str:
    """The inputs that `day` waits for and that have no accepted build, in words; "" if all have one."""

    def is_available(other: Table, needed: date) -> bool:
        partition = (other.name, needed)
        return (partition in accepted and partition not in failed) or (other is table and needed in computing)

    missing = []
    for other, window in table.windows():
        days = [needed for needed in calendar.clip(window.needed(day)) if not is_available(other, needed)]
        missing += [f"{other.name} {ranges(days)}"] if days else []
    return ", ".join(missing)


def change(table: Table, last: Build, inputs: Inputs) -> Change | None:
    """What changed since `last`, first the code, then the delivery, then the first input; None if nothing did."""
    if last.code_version != table.version:
        return Change(Cause.CODE)
    if last.delivered != inputs.delivery.fingerprint:
        return Change(Cause.SOURCE)
    if last.inputs == inputs.tables:
        return None
    before, now = _flat(last.inputs), _flat(inputs.tables)
    changed = [key for key in {*before, *now} if before.get(key) != now.get(key)]
    return Change(Cause.INPUT, *min(changed)) if changed else None


def _flat(inputs: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], str]:
    return {(name, day): fingerprint for name, days in inputs.items() for day, fingerprint in days.items()}


def _changed(table: Table, day: date, due: Due, accepted: AcceptedBuilds) -> bool:
    last = accepted.get((table.name, day))
    if last is None or change(table, last, due.inputs[day]):
        return True
    # A day of itself that is being computed now may come out different; its fingerprint is not known yet.
    return any(needed in due.compute for needed in _own_days(table, day))


def _own_days(table: Table, day: date) -> list[date]:
    return [d for read in table.reads.values() if isinstance(read, Window) and read.table is None for d in read.days(day)]
