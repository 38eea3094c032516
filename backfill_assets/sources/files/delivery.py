"""What the files of one day come to: a delivery, or why it cannot be used."""

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.errors import IncompleteDelivery, NotDelivered, SourceError, named
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import Field, Header, fault_of, header_of, lacking
from backfill_assets.sources.files.filesystem import Entry
from backfill_assets.sources.files.formats import PACKED, FileContents, Format
from backfill_assets.sources.files.listing import Pattern, with_day
from backfill_assets.sources.protocol import Delivery

# Of the hash of a file: enough to see that it is another than it was.
DIGITS = 12
Contents = Mapping[Entry, FileContents]


@dataclass(frozen=True)
class Asked:
    """What a source asks of the files of its folder `name`: where a day's are, how they are
    written, with which columns, and what is waited for before a day is read: that they lie
    unchanged for `settled` seconds, `marker` beside them.
    """

    name: str
    patterns: Sequence[Pattern]
    format: Format
    fields: Sequence[Field]
    settled: float
    marker: str
    fewest: float


def delivery_of(
    area: LandingArea, day: date, files: Contents, others: Sequence[Entry], asked: Asked
) -> Delivery | SourceError:
    """The delivery of a day's `files`; `others` are the day's files that are not read."""
    unread = [name_in(area, path) for path in others if path.name != with_day(asked.marker, day)]
    if not files:
        like = " or ".join(pattern.text for pattern in asked.patterns)
        why = not_read(unread, asked.format) if unread else f"no file in {asked.name} like {like}"
        return NotDelivered(f"no source for {day} in {area.place()}: {why}")
    first = next(iter(files))
    if away := area.files.away(first):
        return IncompleteDelivery(f"no source for {day}: {name_in(area, first)} {away}")
    for file, contents in files.items():
        if why := _unfinished(area, day, file, contents, asked):
            return IncompleteDelivery(
                f"the source for {day} is still being written: {name_in(area, file)} {why}"
            )
    names = {name_in(area, file): each for file, each in files.items()}
    doubts = _twins(names) | {
        name: why for name, each in names.items() if (why := _doubt(each, day, asked))
    }
    faults = {
        name_in(area, file): why
        for file, each in files.items()
        if (why := _fault(area, file, each, asked))
    }
    if faults:
        whys = "; ".join(f"{name} {why}" for name, why in (doubts | faults).items())
        return SourceError(f"the source for {day} cannot be used: {whys}")
    lines = [f"{name} {each.size} {each.content}" for name, each in names.items()]
    return Delivery(
        hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32],
        {name: each.lines for name, each in names.items()},
        "\n".join(each.stamp for each in files.values()),
        {name: each.content[:DIGITS] for name, each in names.items()},
        unread,
        sorted(
            {
                name
                for each in files.values()
                if asked.fields
                for name in _header(each, asked).unknown
            }
        ),
        asked.fewest,
        doubts,
    )


def name_in(area: LandingArea, path: Entry) -> str:
    """A file's name in messages and in `source_file`: relative to the landing area. Bytes that are
    not UTF-8 are escaped.
    """
    # `relative_to` takes most of the time of a look at many files.
    name = os.fspath(path).removeprefix(f"{area.root}{os.sep}")
    return name if name.isascii() else os.fsencode(name).decode(errors="backslashreplace")


def not_read(names: Sequence[str], form: Format) -> str:
    return (
        f"{named(names)} {'is' if len(names) == 1 else 'are'} not read, only"
        f" {', '.join(form.endings)}"
    )


def _unfinished(
    area: LandingArea, day: date, file: Entry, contents: FileContents, asked: Asked
) -> str:
    """Why a file may not be complete; "" if it is."""
    if asked.marker:
        if not _own_marker(area, file, asked):
            return (
                f"lies in a folder of several days: write the day into marker={asked.marker!r}, as"
                " '%Y-%m-%d.done'"
            )
        if not area.files.has_beside(file, marker := with_day(asked.marker, day)):
            return f"has no {marker} beside it yet"
    if not asked.settled or not contents.stamp:
        return ""
    age = area.files.state(file).age(area.clock())
    if age >= asked.settled:
        return ""
    when = (
        f"was written {age:.0f} s ago"
        if age >= 0
        else f"is of a time {-age:.0f} s ahead of this machine's clock"
    )
    return f"{when}, and is read once it has been unchanged for {asked.settled:g} s"


def _own_marker(area: LandingArea, file: Entry, asked: Asked) -> bool:
    """Whether the marker beside a file is that of its day alone."""
    within = name_in(area, file).removeprefix(f"{asked.name}/")
    return any(
        pattern.is_of_one_day(asked.marker) for pattern in asked.patterns if pattern.day_of(within)
    )


def _header(contents: FileContents, asked: Asked) -> Header:
    return header_of(asked.format.names(contents.header), asked.fields)


def _fault(area: LandingArea, file: Entry, contents: FileContents, asked: Asked) -> str:
    """Why a file cannot be read; "" if it can."""
    if unreadable := area.files.unreadable(os.fspath(file)):
        return unreadable
    if contents.longest_line > area.max_line_bytes:
        return (
            f"has a line of {contents.longest_line} bytes, more than"
            f" BACKFILL_MAX_LINE_BYTES={area.max_line_bytes}"
        )
    # Names in objects are not repeated; and reading the header takes most of the time of a look at
    # many files.
    has_header = contents.header and not asked.format.named_in
    return contents.fault or (fault_of(_header(contents, asked)) if has_header else "")


def _doubt(contents: FileContents, day: date, asked: Asked) -> str:
    """Why a file that can be read should not be; "" if it should."""
    if contents.cut or not contents.header or not asked.fields:
        return contents.cut
    return lacking(_header(contents, asked), asked.fields, day, asked.format.named_in)


def _twins(names: Collection[str]) -> dict[str, str]:
    """Of the files that another one of a day is called like, but for how it is packed: that they
    may be one delivery, twice.
    """
    alike: dict[str, list[str]] = {}
    for name in names if any(name.endswith(PACKED[1:]) for name in names) else ():
        packed = next(ending for ending in PACKED[::-1] if name.endswith(ending))
        alike.setdefault(name.removesuffix(packed), []).append(name)
    pairs = ((name, same) for same in alike.values() if len(same) > 1 for name in same)
    return {
        name: f"may hold the rows of {next(each for each in same if each != name)} once more"
        for name, same in pairs
    }
