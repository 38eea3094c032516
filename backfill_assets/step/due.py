"""Which of the requested days must be computed: the inputs they have, and whether anything changed since their last build."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from backfill_assets.calendar import Calendar, Partition, ranges
from backfill_assets.errors import Awaited, SourceError
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.record import WriteMode
from backfill_assets.step.delivered import NO_DELIVERY, Delivered, delivered_for
from backfill_assets.step.inputs import AcceptedBuilds, Inputs, change, own_days, tables_read
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import days_until_complete, on_request
from backfill_assets.workspace import Workspace


@dataclass
class Due:
    """The requested days by what is to be done with them. Every day is in exactly one of the first six.

    `in_case`: those of `compute` of which nothing has changed so far; they read a day of the table itself that may come out
    different. `unusable`: days whose source cannot be used, and why. `awaited`: days that a service is still to be asked for.
    `rewritten`: days that do not hold the rows that were accepted, in a shadow those too that live holds: they are written
    whatever they come to.
    """

    compute: list[date] = field(default_factory=list)
    in_case: set[date] = field(default_factory=set)
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
) -> Due:
    """Sort `days`, in order.

    `builds` are the latest ones; partitions that were `rewritten` since are computed again, and nothing is computed from them
    before. `force` are days to compute even if nothing has changed; `failed`, partitions that block what needs them although
    an earlier version of them is accepted; `accept`, files that may be empty or missing.
    """
    calendar, accepted, rewritten = workspace.calendar, builds.accepted, builds.rewritten
    due = Due(rewritten=[day for name, day in {*rewritten, *builds.of_live} if name == table.name])
    delivered = delivered_for(table, days, workspace.area, builds.accepted, accept)
    for day in sorted(days):
        if (table.name, day) not in accepted and (why := incomplete(table, day, calendar)):
            due.not_due[day] = f"not due yet: {why}"
            continue
        missing = lacking(table, day, accepted, calendar, due.compute)
        unusable = lacking(table, day, accepted, calendar, due.compute, failed) if failed else missing
        source, tables = delivered.get(day, NO_DELIVERY), tables_read(table, day, accepted, calendar)
        outdated = day in force or (table.name, day) in rewritten or _changed(table, day, accepted, tables, source)
        in_case = not outdated and any(own in due.compute for own in own_days(table, day))
        due.inputs[day] = Inputs(tables, NO_DELIVERY if isinstance(source, SourceError) else source)
        if unusable == missing and not (outdated or in_case):
            due.up_to_date.append(day)
        elif missing and lacks_on_request(table, day, accepted, calendar, due.compute):
            due.not_due[day] = f"waits for {missing}, which is built on request only"
        elif missing:
            due.blocked[day] = f"needs {missing}, of which there is no accepted build"
        elif unusable:
            due.blocked[day] = f"needs {unusable}, which failed in this plan, or needs what failed"
        elif isinstance(source, Awaited):
            due.awaited[day] = str(source)
        elif isinstance(source, SourceError):
            due.unusable[day] = str(source)
        elif other := _of_another_delivery(table, day, accepted, source.fingerprint):
            due.blocked[day] = (
                f"a rule compares it with {other} {day}, which was built from another delivery, or by other code. Build both: "
                f"`backfill run --partitions {day} --target {other},{table.name}`"
            )
        elif (table.name, day) in rewritten and write_mode != "overwrite":
            due.blocked[day] = f"{rewritten[table.name, day]}. Those rows would be kept: use write_mode overwrite"
        elif rewritten and (unsafe := _reads_rewritten(table, day, calendar, due, rewritten)):
            due.blocked[day] = unsafe
        else:
            due.compute.append(day)
            due.in_case.update([day] if in_case else [])
    return due


def _of_another_delivery(table: Table, day: date, accepted: AcceptedBuilds, delivered: str) -> str:
    """A table that a rule compares `day` with, of another delivery or built by other code; "" if there is none."""
    for other in table.compared_with:
        build = accepted.get((other.name, day))
        same_source = other.source() is not None and other.source() == table.source()
        if same_source and build and (build.delivered, build.code_version) != (delivered, other.version):
            return other.name
    return ""


def _reads_rewritten(table: Table, day: date, calendar: Calendar, due: Due, rewritten: Mapping[Partition, str]) -> str:
    """Why `day` must not be computed from what its inputs hold now; "" if it may."""
    for other, window in table.windows():
        for read in other.calendar_of(calendar).clip(window.days(day)):
            if (why := rewritten.get((other.name, read))) and not (other is table and read in due.compute):
                again = f"Build it again: `backfill run --partitions {read} --target {other.name} --force`"
                again += "; if its source is gone, put it back: `backfill reconcile --restore`"
                return f"reads {other.name} {read}, which does not hold the rows that were accepted: {why}. {again}"
    return ""


def incomplete(table: Table, day: date, calendar: Calendar) -> str:
    """What a day at the end of a growing calendar waits for before it is first built, in words; "" if it waits for nothing."""
    complete = day + timedelta(days=days_until_complete(table))
    return f"complete once {complete} is in" if calendar.fixed_last is None and complete > calendar.last else ""


def lacking(
    table: Table,
    day: date,
    accepted: AcceptedBuilds,
    calendar: Calendar,
    computing: Collection[date] = (),
    failed: Collection[Partition] = (),
) -> str:
    """The inputs that `day` waits for and that have no accepted build, in words; "" if all have one."""
    found = _lacking(table, day, accepted, calendar, computing, failed)
    return ", ".join(f"{other.name} {ranges(days)}" for other, days in found)


def lacks_on_request(
    table: Table, day: date, accepted: AcceptedBuilds, calendar: Calendar, computing: Collection[date] = ()
) -> bool:
    """Whether `day` lacks inputs, and all of them are days that are built on request only."""
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
        return (partition in accepted and partition not in failed) or (other is table and needed in computing)

    missing = []
    for other, window in table.windows():
        days = [needed for needed in other.calendar_of(calendar).clip(window.needed(day)) if not is_available(other, needed)]
        missing += [(other, days)] if days else []
    return missing


def _changed(
    table: Table,
    day: date,
    accepted: AcceptedBuilds,
    inputs: Mapping[str, Mapping[str, str]],
    delivery: Delivered,
) -> bool:
    last = accepted.get((table.name, day))
    return last is None or change(table, last, inputs, delivery) is not None
