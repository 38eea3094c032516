"""A source of files: the deliveries in a folder of the landing area.

Read here how a day's delivery is found and judged. `listing.py` finds the day's files,
`manifest.py` reads each file once, and `rows.py` reads them with Spark.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cached_property
from itertools import permutations
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import AfterValidator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.calendar import Calendar
from backfill_assets.digest import digest
from backfill_assets.errors import IncompleteDelivery, NotDelivered, SourceError, named
from backfill_assets.quality.rule import Rule
from backfill_assets.sources.area import LandingArea, place_of_area
from backfill_assets.sources.files.fields import (
    FEW,
    UNKNOWN_FIELDS,
    Field,
    Header,
    Share,
    columns_of_rules,
    eras,
    folder_values,
    header_of,
    missing_columns,
    parsing_rules,
    refuse_unusable_fields,
    repeated_columns,
    row_columns,
)
from backfill_assets.sources.files.formats import (
    JSON_LINES,
    NAMELESS,
    AnyFormat,
    Csv,
    FileContents,
    JsonLines,
    Parquet,
)
from backfill_assets.sources.files.guess import remedy
from backfill_assets.sources.files.listing import (
    MONTHS,
    Pattern,
    Span,
    days_of_files,
    files_by_day,
    folders_to_list,
    is_unlistable,
)
from backfill_assets.sources.files.manifest import manifest_at
from backfill_assets.sources.files.rows import files_for_spark, read_json, read_lines, read_rows
from backfill_assets.sources.filesystem import Entry, Tree
from backfill_assets.sources.protocol import (
    HASH_DIGITS,
    HORIZON,
    Delivery,
    Expected,
    Source,
    refuse_mistyped,
    refuse_no_folder,
    require_usable,
)

ContentsByFile = Mapping[Entry, FileContents]
Duplicates = Literal["refuse", "warn", "allow"]
# A file is compared with those of this many days before, even if they were never read. It is not
# likely that a file of last year is sent for today.
_DAYS_COMPARED = 7
_PACKED = r"\.(gz|zst)$"
_REPEATED_HEADER = (
    "has its header again in {:,} lines: rows may be there twice. If its parts are only joined,"
    " write Csv(repeated_header='skip')"
)
_DAILY = (
    "year={year}/month={month}/day={day}/**",
    "{year}-{month}-{day}/**",
    "{year}-{month}-{day}*",
)


@dataclass(frozen=True)
class Landing(Source):
    """The deliveries in the folder `name` of the landing area.

    By default, the files of a day are `<name>/year=YYYY/month=MM/day=DD/**`, `<name>/YYYY-MM-DD/**`
    and `<name>/YYYY-MM-DD*`, all together. Names that begin with _ or . are uploads in progress or
    markers and are ignored.

    name     the folder below the landing area
    files    where a day's files are, one pattern or several: "{year}/{month}/{day}/*.jsonl.gz",
             "%m-%d-%Y.csv", "%-d %B %Y.csv", "%Y%j.csv". `*` matches any characters of a name, `**`
             at the end all files below a folder. Folders like `store=north` have the value of the
             field `store`
    format   `JsonLines()`, `Csv()` or `Parquet()`. The first two may be packed with gzip or zstd
    fields   the columns to read, each a `field`. Without any, JSON lines are read as lines
    undeclared  what happens to columns of files that no field declares. "keep": they are in
             `unknown_fields`, and `backfill status` names them once. "ignore": they are left out.
             "refuse": a file that has some is refused until someone accepts it
    settled  seconds for which a day's files must be unchanged. Until then the day is not read
    marker   the name of a file next to a day's files that is written when they are complete:
             "_SUCCESS". If a folder holds several days, the name contains the day: "%Y-%m-%d.done"
    fewest   the smallest share (0 to 1) of the lines of the last accepted delivery of a day. A
             delivery with fewer lines is refused
    horizon  for how many days after a day a change of its files starts a rebuild (sensor
             `source_changes`)
    month_names  the names of the twelve months that %B stands for. Default: in English
    duplicates   what happens to a file with the same contents as another file of its day, or as one
             of an earlier day: "refuse" it until someone accepts it, "warn", or "allow" it
    area     another place of the folder than BACKFILL_LANDING: "s3://bucket/prefix", "/data/other"
    unparsed_at_most   the largest share (0 to 1) of a day's values of a column that may not fit its
             type. They are null. A day with more is refused. `field` has one too
    malformed_at_most  the largest share of a day's rows that may be malformed. A day with more is
             refused. With 1, nothing is refused
    expected           the days on which files are due, such as `expected.weekdays("mon-fri")`, or a
             function of the day. By default every day
    may_be_empty       whether a file without rows is fine for a day that had no rows before

    Rows have `arrival_day DATE, source_file STRING`. Lines add `line STRING, is_utf8 BOOLEAN`:
    U+FFFD replaces bytes that are not UTF-8, and `is_utf8` is false. CSV, Parquet and `fields` add
    the columns of `read_rows`.

    A day fails with a SourceError that names the file if a file is missing, cannot be read to its
    end, or lacks a required column.

    Files without rows are no duplicates. A file is compared with all files that were read from this
    home and are still there, and with those of the seven days before. The later day is doubtful.

        Landing("sales", format=Csv(";"), fields=[field("cents BIGINT")])
        Landing("sales", format=Csv(), fields=[field("cents BIGINT")], undeclared="ignore")

    Raises ValueError for values of other types, patterns without a day or with two readings of one
    name, an area that is not an address or a whole path, fields of the same name, and Parquet
    without fields.
    """

    name: str
    files: str | Sequence[str] = _DAILY
    format: AnyFormat = JSON_LINES
    fields: Sequence[Field] = ()
    # How a delivery is waited for and judged decides on no row: it is no part of the code version.
    settled: Annotated[float, Ge(0)] = field(default=0.0, compare=False)
    marker: str = field(default="", compare=False)
    fewest: Annotated[float, Ge(0), Le(1)] = field(default=0.5, compare=False)
    horizon: Annotated[int, Ge(0)] = field(default=HORIZON, compare=False)
    month_names: Sequence[str] = field(default=MONTHS, kw_only=True)
    duplicates: Duplicates = field(default="refuse", compare=False)
    area: Annotated[str, AfterValidator(place_of_area)] = field(default="", compare=False)
    unparsed_at_most: Share = field(default=FEW, compare=False)
    malformed_at_most: Share = field(default=FEW, compare=False)
    expected: Expected | None = field(default=None, compare=False)
    may_be_empty: bool = field(default=False, compare=False)
    undeclared: Literal["keep", "ignore", "refuse"] = field(default="keep", kw_only=True)

    def __post_init__(self) -> None:
        refuse_mistyped(self)
        refuse_no_folder("Landing", self.name)
        object.__setattr__(
            self, "files", (self.files,) if isinstance(self.files, str) else tuple(self.files)
        )
        object.__setattr__(self, "fields", tuple(self.fields))
        object.__setattr__(self, "month_names", tuple(self.month_names))
        refuse_unusable_fields(self._read_fields)
        if isinstance(self.format, Parquet) and not self.fields:
            raise ValueError(
                f"Landing({self.name!r}): Parquet needs the columns to read: write"
                " fields=[field('cents BIGINT')]"
            )
        if not self._patterns:
            raise ValueError(f"Landing({self.name!r}): files needs at least one pattern")
        if problem := self._unclear_names():
            raise ValueError(f"Landing({self.name!r}): {problem}")
        if self.marker and (
            "/" in self.marker
            or not any(pattern.is_of_one_day(self.marker) for pattern in self._patterns)
        ):
            raise ValueError(
                f"Landing({self.name!r}): marker={self.marker!r} is not valid: it must be the name"
                " of a file, and contain the day if a folder holds several days: '%Y-%m-%d.done'"
            )

    def _unclear_names(self) -> str:
        """Return why the days of some names cannot be told, or ""."""
        if any(pattern.is_of_several_days for pattern in self._patterns):
            return "a file of several days needs a source that knows the day of each row"
        for one, other in permutations(self._patterns, 2):
            if name := one.other_reading(other):
                return f"{one.text!r} and {other.text!r} read different days from {name!r}"
        return ""

    @property
    def columns(self) -> str:
        """The declared columns with their types as SQL, for the table that reads them."""
        return ", ".join(f"{column.name} {column.type}" for column in self.fields)

    @property
    def row_columns(self) -> str:
        """All columns of the rows that are read, with their types as SQL.

        A table may declare them as they are, with `partition_by="arrival_day"`.
        """
        if isinstance(self.format, JsonLines) and not self.fields:
            return "arrival_day DATE, source_file STRING, line STRING, is_utf8 BOOLEAN"
        return row_columns(self.fields)

    def rules(self) -> list[Rule]:
        """Return the rules about values and rows that cannot be parsed."""
        return self.rules_for(self.format.row_fault)

    def rules_for(self, row_fault: str) -> list[Rule]:
        """Return the rules for rows, with the words for a malformed one; "" if there is none."""
        if not self.fields:
            return []
        return parsing_rules(
            self._read_fields,
            row_fault,
            self.unparsed_at_most,
            self.malformed_at_most,
            has_bytes=isinstance(self.format, Parquet),
        )

    def kept_columns(self) -> dict[str, str]:
        """Return `unparsed` and `malformed`, if a rule looks at them."""
        return columns_of_rules(self.rules())

    @cached_property
    def _read_fields(self) -> list[Field]:
        """The fields, with the options of the format."""
        return [column.within(self.format) for column in self.fields]

    @cached_property
    def _patterns(self) -> list[Pattern]:
        return [Pattern(text, self.month_names) for text in self.files]

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return each day's fingerprint and files, or the SourceError that explains its refusal."""
        judged = self._judged(area.elsewhere(self.area), days)
        return {day: delivery for day, (_, delivery) in judged.items()}

    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe each file of the day: name, bytes, lines and the first digits of its hash.

        Files that are not read, undeclared columns and doubts follow. Raises SourceError if the
        delivery cannot be used.
        """
        area = area.elsewhere(self.area)
        files, delivery = self._judged(area, [day])[day]
        if isinstance(delivery, SourceError):
            raise delivery
        return [
            *(
                f"{area.name_of(file)}, {contents.size} bytes, {contents.lines} lines,"
                f" {contents.content[:HASH_DIGITS]}"
                for file, contents in files.items()
            ),
            *([self._unread_text(delivery.unread)] if delivery.unread else []),
            *([f"not declared: {', '.join(delivery.undeclared)}"] if delivery.undeclared else []),
            *delivery.notes,
            *(f"{name} {why}" for name, why in delivery.doubts.items()),
        ]

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """Sum the bytes of the files of `days`, as they are stored."""
        usable = self._usable(area.elsewhere(self.area), days)
        return sum(contents.size for *_, contents in usable)

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """Read the delivered rows of `days`. Raises SourceError if a delivery cannot be used."""
        area = area.elsewhere(self.area)
        usable = [file for file in self._usable(area, days) if file[2].lines]
        files = files_for_spark(area, usable, self.format)
        if isinstance(self.format, JsonLines):
            lines = read_lines(spark, files, self._read_fields)
            if not self.fields:
                return lines
            rows = read_json(lines, self._read_fields)
        else:
            rows = read_rows(spark, files, self.format, self._read_fields)
        if self.undeclared != "ignore":
            return rows
        return rows.withColumn(UNKNOWN_FIELDS, F.create_map().cast("MAP<STRING, STRING>"))

    def unmatched(self, area: LandingArea) -> list[str]:
        """List the files in the source's folder that match no day."""
        markers = [
            pattern.marker_pattern(self.marker)
            for pattern in self._patterns
            if self.marker and pattern.is_of_one_day(self.marker)
        ]
        days = self._days_of_files(area, [*self._patterns, *markers])
        return [f"{self.name}/{path}" for path, days_of_file in days.items() if not days_of_file]

    def outside(self, area: LandingArea, calendar: Calendar) -> list[str]:
        """List the files in the source's folder whose days are all outside the calendar.

        Files of the day after a growing calendar are left out: it arrives now.
        """
        arriving = timedelta(days=0 if calendar.fixed_last else 1)
        return [
            f"{self.name}/{path}"
            for path, days in self._days_of_files(area, self._patterns).items()
            if days and (days[1] < calendar.first or days[0] > calendar.last + arriving)
        ]

    def _days_of_files(
        self, area: LandingArea, patterns: Sequence[Pattern]
    ) -> dict[str, Span | None]:
        return days_of_files(area.elsewhere(self.area).tree(self.name), patterns)

    def eras(self, days: Collection[date]) -> dict[tuple[str, ...], list[date]]:
        """Group the days by the declared columns that their files lack."""
        return eras(self.fields, days) if self.fields else {}

    def _usable(
        self, area: LandingArea, days: Sequence[date]
    ) -> list[tuple[date, Entry, FileContents]]:
        """Return the files of `days` with their days and contents.

        Raises the SourceError of the first day whose delivery cannot be used.
        """
        judged = self._judged(area, days)
        require_usable({day: delivery for day, (_, delivery) in judged.items()})
        return [(day, *file) for day, (files, _) in judged.items() for file in files.items()]

    def _judged(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, tuple[ContentsByFile, Delivery | SourceError]]:
        """Return the files of each of `days` in order, and what they are as a delivery.

        Files with an ending that the format does not have, and links to folders, are not read. A
        folder that cannot be listed counts as delivered.
        """
        tree = self._tree(area, days)
        listed = files_by_day(tree, days, self._patterns)
        delivered = self._read_once(area, tree, listed)
        twins = {} if self.duplicates == "allow" else self._twins(area, tree, delivered)
        judged: dict[date, tuple[ContentsByFile, Delivery | SourceError]] = {}
        for day, of_files in delivered.items():
            others = [file for file in listed[day] if file not in of_files]
            judged[day] = of_files, self._delivery(area, day, of_files, others, twins)
        return judged

    def _tree(self, area: LandingArea, days: Collection[date]) -> Tree:
        return area.tree(self.name, lambda: folders_to_list(self._patterns, days))

    def _read_once(
        self, area: LandingArea, tree: Tree, listed: Mapping[date, Sequence[Entry]]
    ) -> dict[date, ContentsByFile]:
        """Return the contents of the listed files that are read."""
        delivered = {
            day: [file for file in files if self._is_delivery(tree, file)]
            for day, files in listed.items()
        }
        manifest = manifest_at(area.manifest(self.name, self.format), self.format, area.files)
        contents = manifest.contents(file for files in delivered.values() for file in files)
        manifest.save()
        for file, found in contents.items():
            if values := folder_values(area.name_of(file), self.fields):
                contents[file] = replace(found, in_folders=values)
        return {day: {file: contents[file] for file in files} for day, files in delivered.items()}

    def _twins(
        self, area: LandingArea, tree: Tree, delivered: Mapping[date, ContentsByFile]
    ) -> dict[str, str]:
        """Say of files, by name, which other file of their day or of an earlier day they repeat.

        Days that were read before are listed again only if a file had the same contents.
        """
        contents = [file for files in delivered.values() for file in files.values() if file.lines]
        above = f"{os.fspath(tree.top)}{os.sep}"
        manifest = manifest_at(area.manifest(self.name, self.format), self.format, area.files)
        paths = manifest.paths_of({file.unpacked for file in contents}).difference(
            os.fspath(file) for files in delivered.values() for file in files
        )
        days_read = {
            day
            for pattern in self._patterns
            for path in paths
            if (day := pattern.day_of(path.removeprefix(above))) and day not in delivered
        }
        days_before = {
            day - timedelta(days=n) for day in delivered for n in range(1, _DAYS_COMPARED + 1)
        }
        before = files_by_day(tree, days_before - delivered.keys(), self._patterns)
        sizes = {file.size for file in contents}
        same_size = {
            day: [file for file in files if area.files.size(file) in sizes]
            for day, files in before.items()
        }
        listed = files_by_day(self._tree(area, days_read), days_read, self._patterns)
        others = self._read_once(area, tree, same_size | listed)
        groups: dict[tuple[object, ...], list[tuple[date, str]]] = {}
        for day, files in sorted((others | {**delivered}).items()):
            for file, its in files.items():
                name = area.name_of(file)
                unpacked = re.sub(_PACKED, "", name)
                groups.setdefault(("may repeat the rows of", day, unpacked), []).append((day, name))
                if its.lines:
                    rows = ("has the same contents as", its.unpacked, *its.in_folders.items())
                    groups.setdefault(rows, []).append((day, name))
        twins = dict[str, str]()
        for (why, *_), group in groups.items():
            for day, name in group:
                names = (other for on, other in group if on <= day and other != name)
                if twin := next(names, ""):
                    twins.setdefault(name, f"{why} {twin}")
        return twins

    def _is_delivery(self, tree: Tree, file: Entry) -> bool:
        if file.name.endswith(self.format.endings):
            return True
        within = os.fspath(file).removeprefix(f"{os.fspath(tree.top)}{os.sep}")
        # A pattern that names an ending means it, whatever the format.
        return is_unlistable(tree, file) or any(
            pattern.day_of(within) for pattern in self._patterns if not pattern.any_ending
        )

    def _delivery(
        self,
        area: LandingArea,
        day: date,
        files: ContentsByFile,
        others: Sequence[Entry],
        twins: Mapping[str, str],
    ) -> Delivery | SourceError:
        """Return the delivery of a day's `files`, or the error that explains its refusal.

        `others` are the day's files that are not read. `twins` says which files repeat others.
        """
        marker = self._patterns[0].with_day(self.marker, day)
        unread = [area.name_of(file) for file in others if file.name != marker]
        if not files:
            why = f"no file in {self.name} like {' or '.join(self.files)}"
            return NotDelivered(
                f"no source for {day} in {area.place()}:"
                f" {self._unread_text(unread) if unread else why}"
            )
        first = next(iter(files))
        if away := area.files.unavailable_reason(first):
            return IncompleteDelivery(f"no source for {day}: {area.name_of(first)} {away}")
        by_name = {area.name_of(file): contents for file, contents in files.items()}
        for file, contents in files.items():
            if why := self._unfinished(area, day, file, contents):
                return IncompleteDelivery(
                    f"the source for {day} is still being written: {area.name_of(file)} {why}"
                )
        repeated = {name: twins[name] for name in by_name if name in twins}
        doubts = (repeated if self.duplicates == "refuse" else {}) | {
            area.name_of(file): why
            for file, contents in files.items()
            if (why := self._doubt(area, file, contents, day))
        }
        faults = {
            area.name_of(file): why
            for file, contents in files.items()
            if (why := self._fault(area, file, contents))
        }
        if faults:
            whys = "; ".join(f"{name} {why}" for name, why in (doubts | faults).items())
            return SourceError(f"the source for {day} cannot be used: {whys}")
        lines = [f"{name} {contents.size} {contents.content}" for name, contents in by_name.items()]
        headers = [self._header(contents) for contents in files.values()] if self.fields else []
        return Delivery(
            fingerprint=digest(*lines),
            files={name: contents.lines for name, contents in by_name.items()},
            stamp="\n".join(contents.stamp for contents in files.values()),
            hashes={name: contents.content[:HASH_DIGITS] for name, contents in by_name.items()},
            unread=unread,
            undeclared=sorted({name for header in headers for name in self._undeclared(header)}),
            # Objects may lack a column without a change of the layout.
            columns=(
                []
                if self.format.named_in
                else sorted({name for header in headers for name in header.names})
            ),
            absent={} if self.format.named_in else self._absent(headers, day),
            fewest=self.fewest,
            doubts=doubts,
            overlap="; ".join(f"{name} {why}" for name, why in repeated.items()),
            notes=[
                f"{name}: {note}"
                for name, contents in by_name.items()
                for note in contents.notes
                # A column may be declared by its position.
                if not any(note.startswith(f"{own} has") for own in self._names)
            ],
        )

    @cached_property
    def _names(self) -> list[str]:
        return [name for column in self.fields for name in column.names]

    def _undeclared(self, header: Header) -> list[str]:
        """Return the columns that no field declares. Notes tell of those without a name."""
        if self.undeclared == "ignore":
            return []
        return [name for name in header.unknown if not NAMELESS.fullmatch(name)]

    def _absent(self, headers: Sequence[Header], day: date) -> dict[str, str]:
        """Return the columns that the files of the day should have, and none has."""
        return {
            column.name: next(filter(None, (header.new_name_of(column) for header in headers)), "")
            for column in self.fields
            if column.in_files_of(day) and all(column.name in header.missing for header in headers)
        }

    def _unread_text(self, names: Sequence[str]) -> str:
        """Say that files of these names are not read, and which endings are."""
        verb = "is" if len(names) == 1 else "are"
        return f"{named(names)} {verb} not read, only {', '.join(self.format.endings)}"

    def _unfinished(self, area: LandingArea, day: date, file: Entry, contents: FileContents) -> str:
        """Return why a file may be incomplete, or ""."""
        if self.marker:
            within = area.name_of(file).removeprefix(f"{self.name}/")
            if not any(
                pattern.is_of_one_day(self.marker)
                for pattern in self._patterns
                if pattern.day_of(within)
            ):
                return (
                    f"is in a folder of several days: write the day into marker={self.marker!r},"
                    " as '%Y-%m-%d.done'"
                )
            marker = self._patterns[0].with_day(self.marker, day)
            if not area.files.has_sibling(file, marker):
                return f"has no {marker} in its folder yet"
        if not self.settled or not contents.stamp:
            return ""
        age = area.files.state(file).age(area.clock())
        if age >= self.settled:
            return ""
        when = (
            f"was written {age:.0f} s ago"
            if age >= 0
            else f"has a time {-age:.0f} s ahead of this machine's clock"
        )
        return f"{when}, and is read once it has been unchanged for {self.settled:g} s"

    def _header(self, contents: FileContents) -> Header:
        names = self.format.names(contents.header)
        return header_of([*names, *contents.in_folders], self.fields)

    def _fault(self, area: LandingArea, file: Entry, contents: FileContents) -> str:
        """Return why a file cannot be read, or ""."""
        if unreadable := area.files.unreadable_reason(os.fspath(file)):
            return unreadable
        if contents.longest_line > area.max_line_bytes:
            return (
                f"has a line of {contents.longest_line} bytes, more than"
                f" BACKFILL_MAX_LINE_BYTES={area.max_line_bytes}"
            )
        # Names in objects are not repeated; and reading the header takes most of the time of a look
        # at many files.
        is_clear = self.format.named_in and not contents.in_folders
        if contents.fault or not contents.header or is_clear:
            return contents.fault
        return repeated_columns(self._header(contents))

    def _doubt(self, area: LandingArea, file: Entry, contents: FileContents, day: date) -> str:
        """Return why a readable file should not be used, or ""."""
        why = contents.cut or (self._lacking(contents, day) if contents.header else "")
        if why and self.fields and not isinstance(self.format, Parquet):
            try:
                path = area.files.cached(file, contents.content)
                likely = remedy(path, self.format, self._names)
            except OSError:  # The next look reads it again.
                likely = ""
            return f"{why}. If {likely}" if likely else why
        if why or not contents.header:
            return why
        if self.undeclared == "refuse" and (names := self._undeclared(self._header(contents))):
            return f"has columns that are not declared: {named(names)}"
        if contents.open_quotes:
            return (
                f"has {contents.open_quotes:,} lines that end within a quoted value: if values have"
                " line breaks, write Csv(multiline=True)"
            )
        if contents.repeated and isinstance(self.format, Csv):
            is_refused = self.format.repeated_header == "refuse"
            return _REPEATED_HEADER.format(contents.repeated) if is_refused else ""
        return ""

    def _lacking(self, contents: FileContents, day: date) -> str:
        """Return which required columns a file lacks, and why that may be."""
        if not self.fields:
            return ""
        return missing_columns(self._header(contents), self.fields, day, self.format.named_in)
