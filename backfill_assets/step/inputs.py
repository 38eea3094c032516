"""What a partition is computed from now, and what of it has changed since a build: code, delivery, inputs."""

from collections.abc import Collection, Iterable, Mapping
from datetime import date
from enum import StrEnum
from functools import cache, partial
from typing import NamedTuple

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.record import Build
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.delivered import NO_DELIVERY, Delivered, delivered_for
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
    MIXED = "mixed"


class Change(NamedTuple):
    """What changed since a build: for an input, which day of which table."""

    cause: Cause
    table: str = ""
    day: str = ""


def tables_read(table: Table, day: date, accepted: AcceptedBuilds, calendar: Calendar) -> dict[str, dict[str, str]]:
    """The fingerprints of what `day` is computed from. Of an input with another day column, only the rows about `day` count."""
    return InputReader(table, accepted, calendar).of(day)


def days_of_inputs(table: Table, days: Iterable[date], calendar: Calendar) -> dict[str, set[date]]:
    """By table, every day that `days` may read, whether it is there or not."""
    read: dict[str, set[date]] = {}
    wanted = list(days)
    for other, window in table.windows():
        clip = other.calendar_of(calendar).clip
        read.setdefault(other.name, set()).update(on for day in wanted for on in clip(window.days(day)))
    return read


class InputReader:
    """The same for many days of one table: the build of a day that several of them read is looked up once."""

    def __init__(self, table: Table, accepted: AcceptedBuilds, calendar: Calendar) -> None:
        # Whole days come last: where a day is read both ways, the fingerprint of all its rows counts.
        windows = sorted(table.windows(), key=lambda read: not table.reads_by_day(*read))
        self._reads = [
            (
                o.name,
                o.calendar_of(calendar).window(w.first, w.last),
                cache(partial(_build_of, accepted, o.name)),
                table.reads_by_day(o, w),
            )
            for o, w in windows
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


def change(table: Table, last: Build, inputs: Mapping[str, Mapping[str, str]], delivery: Delivered) -> Change | None:
    """What changed since `last`: a damaged delivery, the code, the delivery, or the first input; None if nothing did.

    Where nothing did, and the day keeps rows that were made before something had, it is `mixed`: no build would make them all.
    A delivery that was moved away since changes nothing: what was built from it stays right.
    """
    if isinstance(delivery, SourceError) and not isinstance(delivery, NotDelivered):
        return Change(Cause.SOURCE)
    if last.code_version != table.version:
        return Change(Cause.CODE)
    mixed = Change(Cause.MIXED) if last.mixed else None
    if isinstance(delivery, NotDelivered):
        return mixed
    if last.delivered != delivery.fingerprint:
        return Change(Cause.SOURCE)
    if last.inputs != inputs and (changed := partitions_changed(last.inputs, inputs)):
        return Change(Cause.INPUT, *changed[0])
    return mixed


def partitions_changed(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str]]:
    """The table and the day of every input that has another fingerprint, came in, or went; in order."""
    flat, flat_now = _flat(before), _flat(now)
    return sorted(key for key in {*flat, *flat_now} if flat.get(key) != flat_now.get(key))


def _flat(inputs: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], str]:
    return {(name, day): fingerprint for name, days in inputs.items() for day, fingerprint in days.items()}


def days_up_to_date(table: Table, days: Collection[date], builds: Latest, workspace: Workspace) -> list[date]:
    """Those of `days` whose accepted build is of the code, the inputs and the delivery as they are now."""
    delivered = delivered_for(table, sorted(days), workspace.area, builds.accepted)
    reader = InputReader(table, builds.accepted, workspace.calendar)

    def stands(day: date) -> bool:
        last = builds.accepted.get((table.name, day))
        if last is None or (table.name, day) in builds.rewritten:
            return False
        return change(table, last, reader.of(day), delivered.get(day, NO_DELIVERY)) is None

    return [day for day in days if stands(day)]


def own_days(table: Table, day: date) -> list[date]:
    """The days of the table itself that `day` may read."""
    return [d for read in table.reads.values() if isinstance(read, Window) and read.table is None for d in read.days(day)]
