"""Which of the days asked for must be computed: the inputs they have, and whether anything changed since their last build."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache, partial

from backfill_assets.calendar import Calendar, ranges
from backfill_assets.errors import SourceError
from backfill_assets.lake.record import Build
from backfill_assets.sources.protocol import LandingArea
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import Window
from backfill_assets.workspace import Workspace

AcceptedBuilds = Mapping[tuple[str, date], Build]
OF_SOURCE, CODE = "source:", "code"


@dataclass
class Due:
    """The days asked for, sorted out. Every day is in exactly one of the four."""

    compute: list[date] = field(default_factory=list)
    up_to_date: list[date] = field(default_factory=list)
    blocked: dict[date, str] = field(default_factory=dict)
    undelivered: dict[date, str] = field(default_factory=dict)
    inputs: dict[date, dict[str, str]] = field(default_factory=dict)


def sort_out(
    table: Table,
    days: Sequence[date],
    workspace: Workspace,
    *,
    accepted: AcceptedBuilds,
    force: Collection[date] = (),
    already: Collection[date] = (),
    refused: Collection[tuple[str, date]] = (),
) -> Due:
    """Sort `days`, in order.

    `force` are days to compute even if nothing has changed; `already`, days that this run's identity has appended before
    (append_once); `refused`, days of inputs that hold back what needs them although an earlier version of them stands.
    """
    calendar, due, delivered = workspace.calendar, Due(), delivered_for(table, days, workspace.area)
    for day in sorted(days):
        missing = lacking(table, day, accepted, calendar, due.compute, refused)
        if missing:
            due.blocked[day] = f"needs {missing}, of which there is no accepted build"
            continue
        source = delivered.get(day, {})
        if isinstance(source, SourceError):
            due.undelivered[day] = str(source)
            continue
        due.inputs[day] = source | inputs_of(table, day, accepted, calendar)
        if day in already or not (day in force or _changed(table, day, due, accepted)):
            due.up_to_date.append(day)
        else:
            due.compute.append(day)
    return due


def delivered_for(table: Table, days: Sequence[date], area: LandingArea) -> dict[date, dict[str, str] | SourceError]:
    """What each of `days` was delivered, as an input of it; nothing for a table without a source."""
    source = table.source()
    if source is None:
        return {}
    marks = source.fingerprints(area, days)
    return {d: m if isinstance(m, SourceError) else {f"{OF_SOURCE}{source.name}@{d.isoformat()}": m} for d, m in marks.items()}


def inputs_of(table: Table, day: date, accepted: AcceptedBuilds, calendar: Calendar) -> dict[str, str]:
    """What `day` is computed from: `table@day` to fingerprint. Only the parts about `day` of an input with another day."""
    return Inputs(table, accepted, calendar).of(day)


class Inputs:
    """The same for many days of one table: what stands of a day that several of them read is looked up once."""

    def __init__(self, table: Table, accepted: AcceptedBuilds, calendar: Calendar) -> None:
        self._reads = [
            (calendar.window(w.first, w.last), cache(partial(_built, accepted, other.name)), table.reads_by_day(other))
            for other, w in table.windows()
        ]

    def of(self, day: date) -> dict[str, str]:
        found: dict[str, str] = {}
        for around, built, by_part in self._reads:
            there = filter(None, map(built, around(day)))
            if by_part:
                about = day.isoformat()
                found.update([(name, parts[about]) for name, _, parts in there if parts.get(about)])
            else:
                found.update([(name, mark) for name, mark, _ in there if mark])
        return found


def _built(accepted: AcceptedBuilds, table: str, ordinal: int) -> tuple[str, str, Mapping[str, str]] | None:
    """The name of a day among inputs, and its fingerprint, whole and in parts; None where nothing stands."""
    day = date.fromordinal(ordinal)
    build = accepted.get((table, day))
    return (f"{table}@{day.isoformat()}", build.fingerprint, build.parts) if build else None


def lacking(
    table: Table,
    day: date,
    accepted: AcceptedBuilds,
    calendar: Calendar,
    computing: Collection[date] = (),
    refused: Collection[tuple[str, date]] = (),
) -> str:
    """The inputs that `day` waits for and of which there is no accepted build, in words; nothing if all are there."""

    def there(other: Table, needed: date) -> bool:
        partition = (other.name, needed)
        return (partition in accepted and partition not in refused) or (other is table and needed in computing)

    told = []
    for other, window in table.windows():
        days = [needed for needed in calendar.clip(window.needed(day)) if not there(other, needed)]
        told += [f"{other.name} {ranges(days)}"] if days else []
    return ", ".join(told)


def difference(table: Table, last: Build, inputs: Mapping[str, str]) -> str:
    """What has changed since `last`: `code`, or the first input that is another now; nothing if all is as it was."""
    if last.code_version != table.version:
        return CODE
    if last.inputs == inputs:
        return ""
    return min(name for name in {*last.inputs, *inputs} if last.inputs.get(name) != inputs.get(name))


def _changed(table: Table, day: date, due: Due, accepted: AcceptedBuilds) -> bool:
    last = accepted.get((table.name, day))
    if last is None or difference(table, last, due.inputs[day]):
        return True
    # A day of itself that is being computed now may come out different; its fingerprint is not known yet.
    return any(needed in due.compute for needed in _own_days(table, day))


def _own_days(table: Table, day: date) -> list[date]:
    return [d for read in table.reads.values() if isinstance(read, Window) and read.table is None for d in read.days(day)]
