"""What the files of one day come to: a delivery, or why it cannot be used."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.errors import NotDelivered, SourceError, StillWritten
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.contents import FileContents
from backfill_assets.sources.fields import Field, Header, fault_of, header_of
from backfill_assets.sources.files import Entry, Files
from backfill_assets.sources.formats import Format
from backfill_assets.sources.protocol import Delivery

# Of files that are not deliveries.
NAMED = 3
# Of the hash of a file: enough to see that it is another than it was.
DIGITS = 12
Contents = Mapping[Entry, FileContents]


@dataclass(frozen=True)
class Waits:
    """What is waited for before a day is read: that its files lie unchanged for `settled` seconds, a file called `marker`
    beside them."""

    settled: float = 0.0
    marker: str = ""

    def unfinished(self, files: Contents, now: float, lying: Files) -> tuple[Entry, str] | None:
        """A file that may not be complete, and why; None if all are."""
        for file, contents in files.items():
            if self.marker and not lying.has_beside(file, self.marker):
                return file, f"has no {self.marker} beside it yet"
            age = now - int(contents.stamp.split()[1]) / 1e9 if contents.stamp else self.settled
            if 0 <= age < self.settled:
                return file, f"was written {age:.0f} s ago, and is read once it has been unchanged for {self.settled:g} s"
        return None


def delivery_of(
    area: LandingArea,
    day: date,
    files: Contents,
    others: Sequence[Entry],
    *,
    form: Format,
    fields: Sequence[Field],
    waits: Waits,
    fewest: float,
) -> Delivery | SourceError:
    """The delivery of a day's `files`; `others` are the day's files that are not read."""
    unread = [name_in(area, path) for path in others]
    if not files:
        return NotDelivered(f"no source for {day} in {area.place()}{f': {not_read(unread, form)}' if unread else ''}")
    first = next(iter(files))
    if away := area.files.away(first):
        return StillWritten(f"no source for {day}: {name_in(area, first)} {away}")
    if unfinished := waits.unfinished(files, area.clock(), area.files):
        file, why = unfinished
        return StillWritten(f"the source for {day} is still being written: {name_in(area, file)} {why}")
    names = {name_in(area, file): each for file, each in files.items()}
    faults = [f"{name_in(area, file)} {why}" for file, each in files.items() if (why := _fault(area, file, each, form, fields))]
    if faults:
        return SourceError(f"the source for {day} cannot be used: {'; '.join(faults)}")
    lines = [f"{name} {each.size} {each.content}" for name, each in names.items()]
    fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
    stamp = "\n".join(each.stamp for each in files.values())
    undeclared = sorted({name for each in files.values() if fields for name in _header(each, form, fields).unknown})
    counts = {name: each.lines for name, each in names.items()}
    hashes = {name: each.content[:DIGITS] for name, each in names.items()}
    return Delivery(fingerprint, counts, stamp, hashes, unread, undeclared, fewest)


def name_in(area: LandingArea, path: Entry) -> str:
    """A file's name in messages and in `source_file`: relative to the landing area. Bytes that are not UTF-8 are escaped."""
    name = os.fspath(path).removeprefix(f"{area.root}{os.sep}")  # `relative_to` takes most of the time of a look at many files
    return name if name.isascii() else os.fsencode(name).decode(errors="backslashreplace")


def not_read(names: Sequence[str], form: Format) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more} {'is' if len(names) == 1 else 'are'} not read, only {', '.join(form.endings)}"


def _header(contents: FileContents, form: Format, fields: Sequence[Field]) -> Header:
    return header_of(form.names(contents.header), fields)


def _fault(area: LandingArea, file: Entry, contents: FileContents, form: Format, fields: Sequence[Field]) -> str:
    """Why a file cannot be used; "" if it can."""
    if unreadable := area.files.unreadable(os.fspath(file)):
        return unreadable
    if contents.longest_line > area.max_line_bytes:
        return f"has a line of {contents.longest_line} bytes, more than BACKFILL_MAX_LINE_BYTES={area.max_line_bytes}"
    return contents.fault or (fault_of(_header(contents, form, fields), fields) if contents.header else "")
