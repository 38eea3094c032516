"""What was delivered for each day, held against the delivery that its accepted build was made from.

A delivery may lack rows although every file of it can be read: a file has no lines, or one that was there before is not there
any more. Such a day is refused until the files come, or whoever asks for the build accepts them by name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from shlex import quote

from backfill_assets.calendar import Partition
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.record import Build
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery
from backfill_assets.tables.declaration import Table

NO_DELIVERY = Delivery()
# Of the files that changed.
NAMED = 3
COMMA = re.compile(r"\s*,\s*")
Delivered = Delivery | SourceError
Deliveries = Mapping[date, Delivered]


def delivered_for(
    table: Table, days: Sequence[date], area: LandingArea, accepted: Mapping[Partition, Build], accept: str = ""
) -> Deliveries:
    """Each day's delivery, or the SourceError that says why it is not used; nothing for a table without a source.

    `accepted` holds the accepted builds; `accept` names files that may be empty or missing, separated by commas.
    """
    return {
        day: each if isinstance(each, SourceError) else _complete(day, each, accepted.get((table.name, day)), accept)
        for day, each in deliveries(table, days, area).items()
    }


def deliveries(table: Table, days: Sequence[date], area: LandingArea) -> Deliveries:
    """The same, whatever earlier builds were made from."""
    source = table.source()
    return source.delivered(area, days) if source else {}


def _complete(day: date, delivery: Delivery, before: Build | None, accept: str) -> Delivered:
    if before and before.delivered == delivery.fingerprint:
        return delivery
    files_before = before.files if before else {}
    # A file that was accepted without lines stays accepted.
    lacking = {name: "has no lines" for name, lines in delivery.files.items() if not lines and files_before.get(name) != 0}
    lacking |= {name: "is not there any more" for name in files_before if name not in {*delivery.files, *delivery.set_aside}}
    lacking |= _fewer(delivery, files_before)
    lacking = {name: why for name, why in lacking.items() if _listed(name) not in _listed(accept)}
    if not lacking:
        return delivery
    reasons, names = "; ".join(f"{name} {why}" for name, why in lacking.items()), quote(",".join(lacking))
    return SourceError(
        f"the source for {day} may be incomplete: {reasons}. The day stays as it was. Deliver what is lacking, or accept it: "
        f"`backfill run --partitions {day} --accept {names}`"
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


def unknown_names(accept: str, known: Iterable[str]) -> list[str]:
    """The names in the list `accept` that are none of those `known`."""
    rest = _listed(accept)
    for name in sorted(known, key=len, reverse=True):  # a name with commas before those that are a part of it
        rest = rest.replace(_listed(name), ",")
    return [name for name in rest.split(",") if name]


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
    more = f", and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
    return f"{len(changed)} file(s) changed: {', '.join(changed[:NAMED])}{more}" if before and changed else ""


def _listed(names: str) -> str:
    """Names in a list as it is compared: a name may itself hold commas."""
    return f",{COMMA.sub(',', names.strip())},"
