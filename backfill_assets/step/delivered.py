"""What was delivered for each day, held against the delivery that its accepted build was made from.

A delivery may lack rows although every file of it can be read: a file has no lines, or one that was there before is not there
any more; or hold what nobody meant: a file that is cut short, or of another data set. Such a day is refused until other files
come, or whoever asks for the build accepts them by name.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from shlex import quote

from backfill_assets.calendar import Partition
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.record import Build
from backfill_assets.named import named
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.accept import is_accepted
from backfill_assets.step.asked_source import answer
from backfill_assets.tables.declaration import Table

NO_DELIVERY = Delivery()
Delivered = Delivery | SourceError
Deliveries = Mapping[date, Delivered]


def delivered_for(
    table: Table, days: Sequence[date], area: LandingArea, accepted: Mapping[Partition, Build], accept: str = ""
) -> Deliveries:
    """Each day's delivery, or the SourceError that says why it is not used; nothing for a table without a source.

    `accepted` holds the accepted builds; `accept` names files that may be empty, missing or doubtful, separated by commas.
    """
    return {
        day: each if isinstance(each, SourceError) else _complete(day, each, accepted.get((table.name, day)), accept)
        for day, each in deliveries(table, days, area).items()
    }


def deliveries(table: Table, days: Sequence[date], area: LandingArea) -> Deliveries:
    """The same, whatever earlier builds were made from."""
    source = table.source()
    if source is None:
        return {}
    answered = answer(source, lambda: dict(source.delivered(area, days)))
    if isinstance(answered, SourceError):
        return dict.fromkeys(days, answered)
    return {day: answered.get(day) or SourceError(f"the source {source.name} says nothing of {day}") for day in days}


def _complete(day: date, delivery: Delivery, before: Build | None, accept: str) -> Delivered:
    if before and before.delivered == delivery.fingerprint:
        return delivery
    files_before, hashes_before = (before.files, before.hashes) if before else ({}, {})
    # A file that was accepted stays accepted, whatever others come.
    same = {name for name, content in delivery.hashes.items() if hashes_before.get(name) == content}
    doubts = {name: why for name, why in delivery.doubts.items() if name not in same}
    lacking = {name: "has no lines" for name, lines in delivery.files.items() if not lines and files_before.get(name) != 0}
    lacking |= _gone(delivery, files_before) | _fewer(delivery, files_before)
    refused = {name: why for name, why in (lacking | doubts).items() if not is_accepted(name, accept)}
    if not refused:
        return delivery
    reasons, names = "; ".join(f"{name} {why}" for name, why in refused.items()), quote(",".join(refused))
    what, mend = ("may be incomplete", "Deliver what is lacking") if refused.keys() - doubts else ("cannot be used", "Mend it")
    return SourceError(
        f"the source for {day} {what}: {reasons}. The day stays as it was. {mend}, or accept it: "
        f"`backfill run --partitions {day} --accept {names} --reason 'why'`"
    )


def file_names(table: Table, days: Sequence[date], area: LandingArea, accepted: Mapping[Partition, Build]) -> set[str] | None:
    """The files that were delivered for these days, and those that their accepted builds were made from, by name.

    None if they are not all known: a delivery cannot be used.
    """
    names = {name for day in days if (build := accepted.get((table.name, day))) for name in build.files}
    for each in deliveries(table, days, area).values():
        if isinstance(each, Delivery):
            names.update(each.files)
        elif not isinstance(each, NotDelivered):
            return None
    return names


def _gone(delivery: Delivery, before: Mapping[str, int]) -> dict[str, str]:
    """The files that are gone, of a delivery that has fewer lines than the one that was accepted: others may hold them else."""
    if sum(delivery.files.values()) >= sum(before.values()):
        return {}
    kept = {*delivery.files, *delivery.set_aside}
    return {name: "is not there any more" for name in before if name not in kept}


def _fewer(delivery: Delivery, before: Mapping[str, int]) -> dict[str, str]:
    """The files that are why a delivery has far fewer lines than the one that was accepted; none if it has not."""
    lines, lines_before = sum(delivery.files.values()), sum(before.values())
    if lines >= delivery.fewest * lines_before:
        return {}
    shorter = [name for name, count in delivery.files.items() if count and count < before.get(name, lines_before)]
    return {name: f"has {delivery.files[name]:,} lines, and all files of the day had {lines_before:,}" for name in shorter}


def files_changed(last: Build, made_from: Build | Delivery) -> str:
    """Which files are other than those that a day was last built from, as far as that is recorded; else ""."""
    before, now, hashes = last.files, made_from.files, made_from.hashes
    changed = [f"{name} came" for name in now if name not in before]
    changed += [f"{name} is gone" for name in before if name not in now]
    changed += [f"{name} has {now[name]:,} lines, and had {n:,}" for name, n in before.items() if now.get(name, n) != n]
    other = [name for name, content in last.hashes.items() if hashes.get(name, content) != content]
    changed += [f"{name} has other contents" for name in other if now.get(name) == before.get(name)]
    return f"{len(changed)} file(s) changed: {named(changed)}" if before and changed else ""
