"""The inputs of a partition, and the changes since its last build.

The inputs are the code, the delivery of the source, and the fingerprints of the tables read.

A delivery is compared with the delivery of the accepted build. It may lack rows although every file
can be read: a file is empty, cut short, missing or from another data set. Such a day is refused
until other files arrive, or until someone accepts the files by name. An error of a source concerns
only the days of that source.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from functools import cache, partial
from shlex import quote
from typing import NamedTuple, TypeVar

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.digest import digest
from backfill_assets.errors import (
    NOTHING_CHANGED,
    BackfillError,
    IncompleteDelivery,
    NotDelivered,
    ServiceUnavailable,
    SourceError,
    counted,
    named,
)
from backfill_assets.lake.history import LATEST_COLUMNS
from backfill_assets.lake.ledger import CLOSED_DAY, Build
from backfill_assets.quality.rule import Rule
from backfill_assets.quality.rules import with_trailing_days
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery, Source
from backfill_assets.step.accept import is_accepted
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import is_closed
from backfill_assets.workspace import Workspace

T = TypeVar("T")


NO_DELIVERY = Delivery()
# The delivery of a closed day on which nothing came.
CLOSED = Delivery(CLOSED_DAY)


Delivered = Delivery | SourceError


Deliveries = Mapping[date, Delivered]


AcceptedBuilds = Mapping[Partition, Build]


# A column that was filled in a smaller share of rows may be empty in a good delivery.
_FILLED = 0.5


_FIGURES = (*LATEST_COLUMNS, "nulls", "samples")
# The names of a delivery's samples. Dagster shows them, and the log of the run warns about them.
UNREAD = "files not read"
UNDECLARED = "columns not declared"
UNEXPECTED = "files of a closed day"
NOTES = "rows delivered twice, left out or malformed"


class Inputs(NamedTuple):
    """The inputs of one partition: its delivery, and fingerprints by table and day."""

    tables: Mapping[str, Mapping[str, str]] = {}
    delivery: Delivery = NO_DELIVERY


class ChangeCause(StrEnum):
    """The causes of an outdated partition."""

    CODE = "code"
    SOURCE = "source"
    INPUT = "input"
    MIXED = "mixed"


class Change(NamedTuple):
    """What changed since a build. For an input, `table` and `day` name the partition."""

    cause: ChangeCause
    table: str = ""
    day: str = ""


def change_since(
    table: Table, last: Build, inputs: Mapping[str, Mapping[str, str]], delivery: Delivered
) -> Change | None:
    """The first change since the build `last`, or None.

    The order is: an unusable delivery, the code, the delivery, an input. If nothing changed, but
    the day keeps rows of older code or inputs (merge), the cause is MIXED. A delivery that was
    moved away is not a change: days built from it stay valid. A closed day is built from nothing,
    so it changes only if it has rows, or is not closed any more. Nothing is known to have changed
    since an adopted day was made.
    """
    if last.is_adopted:
        return None
    if isinstance(delivery, SourceError) and not isinstance(delivery, NotDelivered):
        return Change(ChangeCause.SOURCE)
    if delivery == CLOSED:
        return Change(ChangeCause.SOURCE) if last.rows else None
    if last.is_closed:
        return Change(ChangeCause.SOURCE)
    if not last.is_of_code(table.version):
        return Change(ChangeCause.CODE)
    mixed = Change(ChangeCause.MIXED) if last.mixed else None
    if isinstance(delivery, NotDelivered):
        return mixed
    if last.delivered != delivery.fingerprint:
        return Change(ChangeCause.SOURCE)
    if last.inputs != inputs and (changed := changed_inputs(last.inputs, inputs)):
        return Change(ChangeCause.INPUT, *changed[0])
    return mixed


def newer_code(table: Table, last: Build | None) -> str:
    """The version of the newer code that made the build `last`; "" if the code was not newer."""
    is_newer = (
        last is not None
        and not last.is_of_code(table.version)
        and last.code_loaded_at > table.loaded_at
    )
    return last.code_version if last and is_newer else ""


def changed_inputs(
    before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, str]]:
    """The (table, day) of every input that was added, removed or changed, in order."""
    flat = _flat(before)
    flat_now = _flat(now)
    return sorted(key for key in {*flat, *flat_now} if flat.get(key) != flat_now.get(key))


def _flat(inputs: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], str]:
    return {
        (name, day): fingerprint
        for name, days in inputs.items()
        for day, fingerprint in days.items()
    }


def held_on(day: str, fingerprints: Mapping[str, str]) -> str:
    """A fingerprint of the rows that hold on a day, from those of each day from which rows hold.

    Rows without such a day always hold. The text is empty if no row holds.
    """
    held = [since for since in sorted(fingerprints) if since <= day]
    return digest(*held, *map(fingerprints.__getitem__, held)) if held else ""


class InputReader:
    """The fingerprints of the inputs of many days of one table. Each build is looked up once.

    A closed day is not an input. If an input has another day column, only its rows about the
    requested day count. Of a table without days, only the rows that hold on that day count.
    """

    def __init__(self, table: Table, accepted: AcceptedBuilds, calendar: Calendar) -> None:
        # Whole days come last: if a day is read in both ways, the fingerprint of all its rows
        # counts.
        windows = sorted(table.windows(), key=lambda read: not table.reads_by_day(*read))
        self._reads = [
            (
                other.name,
                other.calendar_of(calendar).window(window.first, window.last),
                cache(partial(_build_of, accepted, other.name)),
                table.reads_by_day(other, window),
                other.without_days and other.fingerprint_by is not None,
            )
            for other, window in windows
        ]

    def fingerprints(self, day: date) -> dict[str, dict[str, str]]:
        """The fingerprints of the inputs of `day`, by table and day."""
        inputs: dict[str, dict[str, str]] = {}
        about = day.isoformat()
        for name, around, build_of, by_day, since in self._reads:
            builds = [(on, build) for on, build in map(build_of, around(day)) if build]
            if since:
                fingerprints = {on: held_on(about, build.day_fingerprints) for on, build in builds}
            elif by_day:
                # Files whose rows were never read may have rows about any day.
                fingerprints = {
                    on: build.fingerprint
                    if build.is_known_by_files
                    else build.day_fingerprints.get(about, "")
                    for on, build in builds
                }
            else:
                fingerprints = {on: build.fingerprint for on, build in builds}
            inputs.setdefault(name, {}).update(
                (on, value) for on, value in fingerprints.items() if value
            )
        return inputs


def _build_of(accepted: AcceptedBuilds, table: str, ordinal: int) -> tuple[str, Build | None]:
    day = date.fromordinal(ordinal)
    build = accepted.get((table, day))
    return day.isoformat(), None if build and build.is_closed else build


def days_of_inputs(table: Table, days: Iterable[date], calendar: Calendar) -> dict[str, set[date]]:
    """Every day that `days` may read, by table, even if it does not exist."""
    read: dict[str, set[date]] = {}
    wanted = list(days)
    for other, window in table.windows():
        clip = other.calendar_of(calendar).clip
        read.setdefault(other.name, set()).update(
            on for day in wanted for on in clip(window.days(day))
        )
    return read


def own_days(table: Table, day: date) -> list[date]:
    """The days of the same table that `day` may read."""
    return [d for other, window in table.windows() if other is table for d in window.days(day)]


def with_own(
    inputs: Inputs, table: Table, days: Iterable[date], fingerprints: Mapping[date, str]
) -> Inputs:
    """`inputs` with these fingerprints of days of the same table."""
    own = {day.isoformat(): fingerprints[day] for day in days if day in fingerprints}
    if not own:
        return inputs
    return Inputs(
        {**inputs.tables, table.name: {**inputs.tables.get(table.name, {}), **own}}, inputs.delivery
    )


def deliveries(table: Table, days: Sequence[date], area: LandingArea) -> Deliveries:
    """Each day's delivery as the source reports it, not compared with earlier builds.

    A closed day without a delivery, or with a delivery without lines, is `CLOSED`.
    """
    source = table.source()
    if source is None:
        return {}
    answered = ask_source(source, lambda: dict(source.delivered(area, days)))
    if isinstance(answered, SourceError):
        return dict.fromkeys(days, answered)
    found: dict[date, Delivered] = {
        day: answered.get(day) or SourceError(f"the source {source.name} did not answer for {day}")
        for day in days
    }
    expected = table.expected
    closed = [day for day in days if not expected(day)] if expected else []
    return found | {day: _on_closed_day(found[day]) for day in closed}


def _on_closed_day(delivery: Delivered) -> Delivered:
    if isinstance(delivery, Delivery):
        is_empty = delivery.files and not any(delivery.files.values())
        return CLOSED if is_empty else replace(delivery, unexpected=True)
    # A server that does not answer may have a delivery.
    is_known = isinstance(delivery, NotDelivered) and not isinstance(delivery, IncompleteDelivery)
    return CLOSED if is_known else delivery


def _closed_days(
    table: Table, days: Iterable[date], accepted: AcceptedBuilds, calendar: Calendar
) -> Deliveries:
    """`CLOSED` for each closed day of a table without a source.

    A closed day is still computed if rows came on a closed day that it reads.
    """

    def has_rows(day: date) -> bool:
        return any(
            (build := accepted.get((other.name, on))) and build.rows
            for other, window in table.windows()
            for on in other.calendar_of(calendar).clip(window.days(day))
            if is_closed(other, on, calendar)
        )

    closed = [day for day in days if is_closed(table, day, calendar)]
    return {day: CLOSED for day in closed if not has_rows(day)}


def delivered_for(
    table: Table,
    days: Sequence[date],
    area: LandingArea,
    accepted: Mapping[Partition, Build],
    accept: str = "",
    calendar: Calendar | None = None,
) -> Deliveries:
    """Each day's delivery, or the SourceError that says why it is not used.

    A table without a source has only the closed days of the `calendar`. `accepted` are the accepted
    builds. `accept` names files that may be empty, missing or doubtful, separated by commas.
    """
    if table.source() is None:
        return _closed_days(table, days, accepted, calendar) if calendar else {}
    return {
        day: (
            delivery
            if isinstance(delivery, SourceError)
            else _complete(table, day, delivery, accepted.get((table.name, day)), accept)
        )
        for day, delivery in deliveries(table, days, area).items()
    }


def _complete(
    table: Table, day: date, delivery: Delivery, before: Build | None, accept: str
) -> Delivered:
    doubts = {
        name: why
        for name, why in delivery.doubts.items()
        if not _is_settled(name, delivery, table, before)
    }
    if before and before.delivered == delivery.fingerprint and not doubts:
        return delivery
    if delivery == CLOSED:
        has_rows = before and before.rows
        return NotDelivered(f"nothing is delivered for {day}") if has_rows else delivery
    files_before = before.files if before else {}
    lacking = {
        name: "has no lines"
        for name, lines in delivery.files.items()
        if not lines and files_before.get(name) != 0
        if sum(files_before.values()) or not table.may_be_empty
    }
    lacking |= _missing_files(delivery, files_before) | _shortened_files(delivery, files_before)
    refused = {
        name: why for name, why in (lacking | doubts).items() if not is_accepted(name, accept)
    }
    if not refused:
        return delivery
    reasons = "; ".join(f"{name} {why}" for name, why in refused.items())
    names = quote(",".join(refused))
    what, fix = (
        ("may be incomplete", "Deliver the missing rows")
        if refused.keys() - doubts
        else ("cannot be used", "Fix the file")
    )
    return SourceError(
        f"the source for {day} {what}: {reasons}.",
        unchanged=NOTHING_CHANGED,
        next_step=f"{fix}, or accept it as is: "
        f"`backfill run --partitions {day} --accept {names} --reason 'why'`",
    )


def _is_settled(name: str, delivery: Delivery, table: Table, before: Build | None) -> bool:
    """True if the build `before` used this file with these contents, and its doubt is not new.

    Other code may declare more about the file. Then only a file that was accepted by name stays
    accepted.
    """
    if before is None or not _is_same(name, delivery, before):
        return False
    return before.is_of_code(table.version) or is_accepted(name, before.accept)


def _is_same(name: str, delivery: Delivery, before: Build) -> bool:
    """True if a delivered file has the same contents as for the build `before`."""
    content = delivery.hashes.get(name)
    return before.delivered == delivery.fingerprint or bool(
        content and before.hashes.get(name) == content
    )


def _missing_files(delivery: Delivery, before: Mapping[str, int]) -> dict[str, str]:
    """Files of the accepted build that are missing, if the delivery has fewer lines.

    With at least as many lines, their rows may be in other files.
    """
    if sum(delivery.files.values()) >= sum(before.values()):
        return {}
    present = {*delivery.files, *delivery.set_aside}
    return {name: "is missing" for name in before if name not in present}


def _shortened_files(delivery: Delivery, before: Mapping[str, int]) -> dict[str, str]:
    """The shorter files, if the delivery has far fewer lines than the accepted build."""
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


def file_names(
    table: Table, days: Sequence[date], area: LandingArea, accepted: Mapping[Partition, Build]
) -> set[str] | None:
    """The names of the files delivered for these days, and of the files of their builds.

    None if a delivery cannot be used, because then its files are unknown.
    """
    names = {
        name for day in days if (build := accepted.get((table.name, day))) for name in build.files
    }
    for delivery in deliveries(table, days, area).values():
        if isinstance(delivery, Delivery):
            names.update(delivery.files)
        elif not isinstance(delivery, NotDelivered):
            return None
    return names


def files_changed(last: Build, made_from: Build | Delivery) -> str:
    """Name the files that differ from the build `last`; "" without changes or recorded files."""
    before = last.files
    now = made_from.files
    hashes = made_from.hashes
    changed = [f"{name} was added" for name in now if name not in before]
    changed += [f"{name} was removed" for name in before if name not in now]
    changed += [
        f"{name} has {now[name]:,} lines, had {n:,}"
        for name, n in before.items()
        if now.get(name, n) != n
    ]
    other = [name for name, content in last.hashes.items() if hashes.get(name, content) != content]
    changed += [
        f"{name} has different contents" for name in other if now.get(name) == before.get(name)
    ]
    if not before or not changed:
        return ""
    return f"{counted(len(changed), 'file')} changed: {named(changed)}"


def ask_source(source: Source, ask: Callable[[], T]) -> T | SourceError:
    """The answer of `source`, or a SourceError with the reason.

    Any other error that the source raises becomes a SourceError with the name of that error.
    """
    try:
        return ask()
    except SourceError as error:
        return error
    except ServiceUnavailable as error:
        return IncompleteDelivery(**error.sentences_by_name())
    except Exception as error:
        about = (
            str(error) if isinstance(error, BackfillError) else f"{type(error).__name__}: {error}"
        )
        return SourceError(
            f"the source {source.name} ({type(source).__name__}) failed: {about.rstrip('.')}.",
            unchanged=NOTHING_CHANGED,
            next_step="Correct its declaration or its code.",
        )


@dataclass(frozen=True)
class Baseline:
    """The comparison for a new delivery of a day.

    `filled` are the columns that had a value in at least half of the accepted rows, without the
    columns that are accepted as empty. `accept` are the accepted names, separated by commas.
    `before` are the accepted builds of the 28 days before. `optional` are the columns that files of
    the day need not have. `may_be_empty`: no rule judges a day without lines and rows.
    """

    filled: Sequence[str] = ()
    accept: str = ""
    delivery: Delivery = NO_DELIVERY
    before: Mapping[date, Build] = field(default_factory=dict)
    optional: Collection[str] = ()
    may_be_empty: bool = False


def baselines(
    table: Table,
    days: Sequence[date],
    inputs: Mapping[date, Inputs],
    accept: str,
    workspace: Workspace,
) -> dict[date, Baseline]:
    """The baseline of each day. Accepted names stay accepted while the delivery is the same.

    Accepted files stay accepted while their contents are the same.

    A table without a source has no `filled` columns: its inputs were judged before.
    """
    source = table.source()
    calendar = workspace.calendar
    may_be_empty = {day for day in days if table.may_be_empty or is_closed(table, day, calendar)}
    if source is None:
        return {day: Baseline((), accept, may_be_empty=day in may_be_empty) for day in days}
    eras = ask_source(source, lambda: dict(source.eras(days)))
    optional = {
        day: lacking
        for lacking, of_era in ({} if isinstance(eras, SourceError) else eras).items()
        for day in of_era
    }
    accepted = workspace.lake.latest({table.name: with_trailing_days(days)}, _FIGURES).accepted
    before = {day: build for (_, day), build in accepted.items()}
    judged = sorted(types_of(table.columns))

    def baseline(day: date) -> Baseline:
        delivery = inputs[day].delivery
        last = before.get(day)
        of_day = (delivery, before, optional.get(day, ()), day in may_be_empty)
        if last is None:
            return Baseline((), accept, *of_day)
        names = ",".join(dict.fromkeys(filter(None, (accept, *still_accepted(last, delivery)))))
        return Baseline(
            [
                name
                for name in judged
                if is_filled(last.rows, last.nulls, name) and not is_accepted(name, names)
            ],
            names,
            *of_day,
        )

    return {day: baseline(day) for day in days}


def still_accepted(last: Build, delivery: Delivery) -> list[str]:
    """The accepted names of `last` that still count.

    For the same delivery, all names count. For another delivery, the names of unchanged files
    count.
    """
    if last.delivered and last.delivered == delivery.fingerprint:
        return [last.accept]
    files = delivery.files if last.accept else ()
    return [
        name for name in files if _is_same(name, delivery, last) and is_accepted(name, last.accept)
    ]


def is_filled(rows: int, nulls: Mapping[str, int], column: str) -> bool:
    """True if the column had a value in at least half of the rows."""
    return rows > 0 and column in nulls and nulls[column] <= (1 - _FILLED) * rows


def acceptable_rules(table: Table) -> list[Rule]:
    """The rules that a delivery may break, if they are accepted by name.

    Only tables with a source have such rules. Rules about columns and keys are excluded, because
    other tables rely on them.
    """
    return [rule for rule in table.rules[1:] if not rule.counts_keys] if table.source() else []


def with_accepted(table: Table, accept: str) -> list[Rule]:
    """The rules of a table, with the accepted ones as warnings."""
    names = {rule.name for rule in acceptable_rules(table) if is_accepted(rule.name, accept)}
    return [rule.as_warning() if rule.name in names else rule for rule in table.rules]
