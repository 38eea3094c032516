"""Judge the files of one day: a delivery, or the reason why it cannot be used."""

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.errors import IncompleteDelivery, NotDelivered, SourceError, named
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import (
    Field,
    Header,
    header_of,
    missing_columns,
    repeated_columns,
)
from backfill_assets.sources.files.formats import PACKED, FileContents, Format
from backfill_assets.sources.files.listing import Pattern, with_day
from backfill_assets.sources.filesystem import Entry
from backfill_assets.sources.protocol import Delivery

# Of the hash of a file: enough to see that it is another than it was.
HASH_DIGITS = 12
ContentsByFile = Mapping[Entry, FileContents]


@dataclass(frozen=True)
class DeliverySpec:
    """What a source requires of the files in its folder `name`.

    `patterns` say where a day's files are, `format` and `fields` what they contain. A day is read
    once its files are unchanged for `settled` seconds and `marker` is beside them.
    """

    name: str
    patterns: Sequence[Pattern]
    format: Format
    fields: Sequence[Field]
    settled: float
    marker: str
    fewest: float


def delivery_of(
    area: LandingArea,
    day: date,
    files: ContentsByFile,
    others: Sequence[Entry],
    spec: DeliverySpec,
) -> Delivery | SourceError:
    """Return the delivery of a day's `files`, or the error that explains its refusal.

    `others` are the day's files that are not read.
    """
    unread = [
        name_of_file(area, path) for path in others if path.name != with_day(spec.marker, day)
    ]
    if not files:
        like = " or ".join(pattern.text for pattern in spec.patterns)
        why = unread_text(unread, spec.format) if unread else f"no file in {spec.name} like {like}"
        return NotDelivered(f"no source for {day} in {area.place()}: {why}")
    first = next(iter(files))
    if away := area.files.unavailable_reason(first):
        return IncompleteDelivery(f"no source for {day}: {name_of_file(area, first)} {away}")
    for file, contents in files.items():
        if why := _unfinished(area, day, file, contents, spec):
            return IncompleteDelivery(
                f"the source for {day} is still being written: {name_of_file(area, file)} {why}"
            )
    names = {name_of_file(area, file): each for file, each in files.items()}
    doubts = _packed_twice(names) | {
        name: why for name, each in names.items() if (why := _doubt(each, day, spec))
    }
    faults = {
        name_of_file(area, file): why
        for file, each in files.items()
        if (why := _fault(area, file, each, spec))
    }
    if faults:
        whys = "; ".join(f"{name} {why}" for name, why in (doubts | faults).items())
        return SourceError(f"the source for {day} cannot be used: {whys}")
    lines = [f"{name} {each.size} {each.content}" for name, each in names.items()]
    return Delivery(
        hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32],
        {name: each.lines for name, each in names.items()},
        "\n".join(each.stamp for each in files.values()),
        {name: each.content[:HASH_DIGITS] for name, each in names.items()},
        unread,
        sorted(
            {name for each in files.values() if spec.fields for name in _header(each, spec).unknown}
        ),
        spec.fewest,
        doubts,
    )


def name_of_file(area: LandingArea, path: Entry) -> str:
    """Return a file's name relative to the landing area, for messages and `source_file`.

    Bytes that are not UTF-8 are escaped.
    """
    # `relative_to` takes most of the time of a look at many files.
    name = os.fspath(path).removeprefix(f"{area.root}{os.sep}")
    return name if name.isascii() else os.fsencode(name).decode(errors="backslashreplace")


def unread_text(names: Sequence[str], form: Format) -> str:
    """Say that files of these names are not read, and which endings are."""
    return (
        f"{named(names)} {'is' if len(names) == 1 else 'are'} not read, only"
        f" {', '.join(form.endings)}"
    )


def _unfinished(
    area: LandingArea, day: date, file: Entry, contents: FileContents, spec: DeliverySpec
) -> str:
    """Return why a file may be incomplete, or ""."""
    if spec.marker:
        if not _has_own_marker(area, file, spec):
            return (
                f"is in a folder of several days: write the day into marker={spec.marker!r}, as"
                " '%Y-%m-%d.done'"
            )
        if not area.files.has_sibling(file, marker := with_day(spec.marker, day)):
            return f"has no {marker} beside it yet"
    if not spec.settled or not contents.stamp:
        return ""
    age = area.files.state(file).age(area.clock())
    if age >= spec.settled:
        return ""
    when = (
        f"was written {age:.0f} s ago"
        if age >= 0
        else f"has a time {-age:.0f} s ahead of this machine's clock"
    )
    return f"{when}, and is read once it has been unchanged for {spec.settled:g} s"


def _has_own_marker(area: LandingArea, file: Entry, spec: DeliverySpec) -> bool:
    """Tell whether the marker beside a file belongs to its day alone."""
    within = name_of_file(area, file).removeprefix(f"{spec.name}/")
    return any(
        pattern.is_of_one_day(spec.marker) for pattern in spec.patterns if pattern.day_of(within)
    )


def _header(contents: FileContents, spec: DeliverySpec) -> Header:
    return header_of(spec.format.names(contents.header), spec.fields)


def _fault(area: LandingArea, file: Entry, contents: FileContents, spec: DeliverySpec) -> str:
    """Return why a file cannot be read, or ""."""
    if unreadable := area.files.unreadable_reason(os.fspath(file)):
        return unreadable
    if contents.longest_line > area.max_line_bytes:
        return (
            f"has a line of {contents.longest_line} bytes, more than"
            f" BACKFILL_MAX_LINE_BYTES={area.max_line_bytes}"
        )
    # Names in objects are not repeated; and reading the header takes most of the time of a look at
    # many files.
    has_header = contents.header and not spec.format.named_in
    return contents.fault or (repeated_columns(_header(contents, spec)) if has_header else "")


def _doubt(contents: FileContents, day: date, spec: DeliverySpec) -> str:
    """Return why a readable file should not be used, or ""."""
    if contents.cut or not contents.header or not spec.fields:
        return contents.cut
    return missing_columns(_header(contents, spec), spec.fields, day, spec.format.named_in)


def _packed_twice(names: Collection[str]) -> dict[str, str]:
    """Find files of a day that differ only in how they are packed.

    One delivery may be there twice.
    """
    alike: dict[str, list[str]] = {}
    for name in names if any(name.endswith(PACKED[1:]) for name in names) else ():
        packed = next(ending for ending in PACKED[::-1] if name.endswith(ending))
        alike.setdefault(name.removesuffix(packed), []).append(name)
    pairs = ((name, same) for same in alike.values() if len(same) > 1 for name in same)
    return {
        name: f"may repeat the rows of {next(twin for twin in same if twin != name)}"
        for name, same in pairs
    }
