"""What a partition is computed from now, and what changed since its last build.

That is the code, the delivery of its source, and the fingerprints of its inputs.

A delivery is compared with the one that the accepted build was made from. It may lack rows although
every file can be read: a file is empty, cut short or gone, or of another data set. Such a day is
refused until other files come, or until someone accepts them by name. An error of a source concerns
its own days only.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cache, partial
from shlex import quote
from typing import NamedTuple, TypeVar

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.errors import (
    BackfillError,
    IncompleteDelivery,
    NotDelivered,
    ServiceUnavailable,
    SourceError,
    named,
)
from backfill_assets.lake.history import LATEST_COLUMNS, Latest
from backfill_assets.lake.ledger import Build
from backfill_assets.quality.rule import Rule
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery, Source
from backfill_assets.step.accept import is_accepted
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table, Window
from backfill_assets.workspace import Workspace

T = TypeVar("T")


def ask_source(source: Source, ask: Callable[[], T]) -> T | SourceError:
    """What `source` answers, or why it does not: a SourceError with the name of any other error
    that it raises.
    """
    try:
        return ask()
    except SourceError as error:
        return error
    except ServiceUnavailable as error:
        return IncompleteDelivery(str(error))
    except Exception as error:
        about = (
            str(error) if isinstance(error, BackfillError) else f"{type(error).__name__}: {error}"
        )
        what = f"the source {source.name} ({type(source).__name__}) cannot be asked"
        return SourceError(
            f"{what}: {about.rstrip('.')}. Its days stay as they are. Correct its declaration, or"
            " its code"
        )


NO_DELIVERY = Delivery()
Delivered = Delivery | SourceError
Deliveries = Mapping[date, Delivered]


def delivered_for(
    table: Table,
    days: Sequence[date],
    area: LandingArea,
    accepted: Mapping[Partition, Build],
    accept: str = "",
) -> Deliveries:
    """Each day's delivery, or the SourceError that says why it is not used; nothing for a table
    without a source.

    `accepted` holds the accepted builds; `accept` names files that may be empty, missing or
    doubtful, separated by commas.
    """
    return {
        day: (
            each
            if isinstance(each, SourceError)
            else _complete(day, each, accepted.get((table.name, day)), accept)
        )
        for day, each in deliveries(table, days, area).items()
    }


def deliveries(table: Table, days: Sequence[date], area: LandingArea) -> Deliveries:
    """The same, whatever earlier builds were made from."""
    source = table.source()
    if source is None:
        return {}
    answered = ask_source(source, lambda: dict(source.delivered(area, days)))
    if isinstance(answered, SourceError):
        return dict.fromkeys(days, answered)
    return {
        day: answered.get(day) or SourceError(f"the source {source.name} says nothing of {day}")
        for day in days
    }


def _complete(day: date, delivery: Delivery, before: Build | None, accept: str) -> Delivered:
    if before and before.delivered == delivery.fingerprint:
        return delivery
    files_before, hashes_before = (before.files, before.hashes) if before else ({}, {})
    # A file that was accepted stays accepted, whatever others come.
    same = {name for name, content in delivery.hashes.items() if hashes_before.get(name) == content}
    doubts = {name: why for name, why in delivery.doubts.items() if name not in same}
    lacking = {
        name: "has no lines"
        for name, lines in delivery.files.items()
        if not lines and files_before.get(name) != 0
    }
    lacking |= _missing_files(delivery, files_before) | _shortened_files(delivery, files_before)
    refused = {
        name: why for name, why in (lacking | doubts).items() if not is_accepted(name, accept)
    }
    if not refused:
        return delivery
    reasons = "; ".join(f"{name} {why}" for name, why in refused.items())
    names = quote(",".join(refused))
    what, mend = (
        ("may be incomplete", "Deliver what is lacking")
        if refused.keys() - doubts
        else ("cannot be used", "Mend it")
    )
    return SourceError(
        f"the source for {day} {what}: {reasons}. The day stays as it was. {mend}, or accept it: "
        f"`backfill run --partitions {day} --accept {names} --reason 'why'`"
    )


def file_names(
    table: Table, days: Sequence[date], area: LandingArea, accepted: Mapping[Partition, Build]
) -> set[str] | None:
    """The files that were delivered for these days, and those that their accepted builds were made
    from, by name.

    None if they are not all known: a delivery cannot be used.
    """
    names = {
        name for day in days if (build := accepted.get((table.name, day))) for name in build.files
    }
    for each in deliveries(table, days, area).values():
        if isinstance(each, Delivery):
            names.update(each.files)
        elif not isinstance(each, NotDelivered):
            return None
    return names


def _missing_files(delivery: Delivery, before: Mapping[str, int]) -> dict[str, str]:
    """The files that are gone, of a delivery that has fewer lines than the one that was accepted:
    others may hold them else.
    """
    if sum(delivery.files.values()) >= sum(before.values()):
        return {}
    kept = {*delivery.files, *delivery.set_aside}
    return {name: "is not there any more" for name in before if name not in kept}


def _shortened_files(delivery: Delivery, before: Mapping[str, int]) -> dict[str, str]:
    """The files that are why a delivery has far fewer lines than the one that was accepted; none if
    it has not.
    """
    lines = sum(delivery.files.values())
    lines_before = sum(before.values())
    if lines >= delivery.fewest * lines_before:
        return {}
    shorter = [
        name
        for name, count in delivery.files.items()
        if count and count < before.get(name, lines_before)
    ]
    return {
        name: f"has {delivery.files[name]:,} lines, and all files of the day had {lines_before:,}"
        for name in shorter
    }


def files_changed(last: Build, made_from: Build | Delivery) -> str:
    """Which files are other than those that a day was last built from, as far as that is recorded;
    else "".
    """
    before = last.files
    now = made_from.files
    hashes = made_from.hashes
    changed = [f"{name} came" for name in now if name not in before]
    changed += [f"{name} is gone" for name in before if name not in now]
    changed += [
        f"{name} has {now[name]:,} lines, and had {n:,}"
        for name, n in before.items()
        if now.get(name, n) != n
    ]
    other = [name for name, content in last.hashes.items() if hashes.get(name, content) != content]
    changed += [f"{name} has other contents" for name in other if now.get(name) == before.get(name)]
    return f"{len(changed)} file(s) changed: {named(changed)}" if before and changed else ""


AcceptedBuilds = Mapping[Partition, Build]


class Inputs(NamedTuple):
    """What a partition is computed from: of each table read, the days' fingerprints; and the
    delivery.
    """

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


def input_fingerprints(
    table: Table, day: date, accepted: AcceptedBuilds, calendar: Calendar
) -> dict[str, dict[str, str]]:
    """The fingerprints of what `day` is computed from. Of an input with another day column, only
    the rows about `day` count.
    """
    return InputReader(table, accepted, calendar).of(day)


def days_of_inputs(table: Table, days: Iterable[date], calendar: Calendar) -> dict[str, set[date]]:
    """By table, every day that `days` may read, whether it is there or not."""
    read: dict[str, set[date]] = {}
    wanted = list(days)
    for other, window in table.windows():
        clip = other.calendar_of(calendar).clip
        read.setdefault(other.name, set()).update(
            on for day in wanted for on in clip(window.days(day))
        )
    return read


class InputReader:
    """The same for many days of one table: the build of a day that several of them read is looked
    up once.
    """

    def __init__(self, table: Table, accepted: AcceptedBuilds, calendar: Calendar) -> None:
        # Whole days come last: where a day is read both ways, the fingerprint of all its rows
        # counts.
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
            inputs.setdefault(name, {}).update(
                (on, value) for on, value in fingerprints.items() if value
            )
        return inputs


def _build_of(accepted: AcceptedBuilds, table: str, ordinal: int) -> tuple[str, Build | None]:
    day = date.fromordinal(ordinal)
    return day.isoformat(), accepted.get((table, day))


def change_since(
    table: Table, last: Build, inputs: Mapping[str, Mapping[str, str]], delivery: Delivered
) -> Change | None:
    """What changed since `last`: a damaged delivery, the code, the delivery, or the first input;
    None if nothing did.

    Where nothing did, and the day keeps rows that were made before something had, it is `mixed`: no
    build would make them all. A delivery that was moved away since changes nothing: what was built
    from it stays right.
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
    if last.inputs != inputs and (changed := changed_inputs(last.inputs, inputs)):
        return Change(Cause.INPUT, *changed[0])
    return mixed


def changed_inputs(
    before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, str]]:
    """The table and the day of every input that has another fingerprint, came in, or went; in
    order.
    """
    flat = _flat(before)
    flat_now = _flat(now)
    return sorted(key for key in {*flat, *flat_now} if flat.get(key) != flat_now.get(key))


def _flat(inputs: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], str]:
    return {
        (name, day): fingerprint
        for name, days in inputs.items()
        for day, fingerprint in days.items()
    }


def days_up_to_date(
    table: Table, days: Collection[date], builds: Latest, workspace: Workspace
) -> list[date]:
    """Those of `days` whose accepted build is of the code, the inputs and the delivery as they are
    now.
    """
    delivered = delivered_for(table, sorted(days), workspace.area, builds.accepted)
    reader = InputReader(table, builds.accepted, workspace.calendar)

    def stands(day: date) -> bool:
        last = builds.accepted.get((table.name, day))
        if last is None or (table.name, day) in builds.damaged:
            return False
        return change_since(table, last, reader.of(day), delivered.get(day, NO_DELIVERY)) is None

    return [day for day in days if stands(day)]


def own_days(table: Table, day: date) -> list[date]:
    """The days of the table itself that `day` may read."""
    return [
        d
        for read in table.reads.values()
        if isinstance(read, Window) and read.table is None
        for d in read.days(day)
    ]


# A column that fewer of the rows had a value of may well come without any.
_FILLED = 0.5
_FIGURES = (*LATEST_COLUMNS, "nulls", "accept")


@dataclass(frozen=True)
class Baseline:
    """Of a day, the columns of which at least half the accepted rows had a value, without those
    that are accepted without; and the names that are accepted.
    """

    filled: Sequence[str] = ()
    accept: str = ""


NO_BASELINE = Baseline()


def baselines(
    table: Table,
    days: Sequence[date],
    inputs: Mapping[date, Inputs],
    accept: str,
    workspace: Workspace,
) -> dict[date, Baseline]:
    """Of each of `days` what it is held against. What was accepted with a delivery stays accepted
    while that is the same.

    Of a table without a source only what is accepted: what its rows are made from was judged
    before.
    """
    if table.source() is None:
        return dict.fromkeys(days, Baseline((), accept))
    accepted = workspace.lake.latest({table.name: days}, _FIGURES).accepted
    judged = sorted(types_of(table.columns))

    def baseline(day: date) -> Baseline:
        last = accepted.get((table.name, day))
        if last is None:
            return Baseline((), accept)
        kept = (
            last.accept
            if last.delivered and last.delivered == inputs[day].delivery.fingerprint
            else ""
        )
        names = ",".join(dict.fromkeys(name for name in (accept, kept) if name))
        return Baseline(
            [name for name in judged if _is_filled(last, name) and not is_accepted(name, names)],
            names,
        )

    return {day: baseline(day) for day in days}


def acceptable_rules(table: Table) -> list[Rule]:
    """The rules that a delivery may break once that is accepted by name: those of a table with a
    source, which judge what was delivered; but for columns and keys, which other tables are built
    on.
    """
    return [rule for rule in table.rules[1:] if not rule.counts_keys] if table.source() else []


def with_accepted(table: Table, accept: str) -> list[Rule]:
    """The rules of a table, those that are accepted as warnings."""
    names = {rule.name for rule in acceptable_rules(table) if is_accepted(rule.name, accept)}
    return [rule.as_warning() if rule.name in names else rule for rule in table.rules]


def _is_filled(build: Build, column: str) -> bool:
    return (
        build.rows > 0
        and column in build.nulls
        and build.nulls[column] <= (1 - _FILLED) * build.rows
    )
