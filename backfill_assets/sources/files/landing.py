"""A source of files: the deliveries in a folder of the landing area.

This module judges a day's delivery. `look.py` finds its files and their contents for the day, and
`rows.py` reads them with Spark.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from itertools import chain, permutations
from typing import Annotated, Literal

from annotated_types import Ge
from pydantic import AfterValidator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.calendar import Calendar
from backfill_assets.digest import digest
from backfill_assets.errors import IncompleteDelivery, NotDelivered, SourceError, named
from backfill_assets.quality.rule import Rule
from backfill_assets.sources.area import LandingArea, place_of_area
from backfill_assets.sources.files.duplicates import twins
from backfill_assets.sources.files.fields import (
    FEW,
    UNKNOWN_FIELDS,
    Field,
    Header,
    columns_of_rules,
    eras,
    header_of,
    missing_columns,
    parsing_rules,
    refuse_unusable_fields,
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
from backfill_assets.sources.files.listing import MONTHS, Pattern
from backfill_assets.sources.files.look import ContentsByFile, Look
from backfill_assets.sources.files.manifest import manifest_at
from backfill_assets.sources.files.rows import files_for_spark, read_lines, read_rows
from backfill_assets.sources.files.split import fault_of
from backfill_assets.sources.filesystem import Entry, delivered_file
from backfill_assets.sources.protocol import (
    HASH_DIGITS,
    HORIZON,
    Delivery,
    Expected,
    Several,
    Share,
    Source,
    Texts,
    refuse_no_folder,
    require_usable,
    uncompared,
    validate,
)

FileOfDay = tuple[date, Entry, FileContents]
Duplicates = Literal["refuse", "warn", "allow"]
_REPEATED_HEADER = (
    "has its header again in {:,} lines: rows may be there twice. If its parts are only joined,"
    " write Csv(repeated_header='skip')"
)
_OWN_HEADER = "has the names in header= in {:,} lines: if it begins with them, leave header= out"
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
             field `store`. Packs (.zip, .tar, .tar.gz, .tgz) are like folders:
             "%Y-%m.zip/%Y-%m-%d.csv"
    format   `JsonLines()`, `Csv()` or `Parquet()`. The first two may be packed with gzip or zstd
    fields   the columns to read, each a `field`. Without any, JSON lines are read as lines
    undeclared  what happens to columns of files that no field declares. "keep": they are in
             `unknown_fields`, and `backfill status` names them once. "ignore": they are left out.
             "refuse": a file that has some is refused until someone accepts it
    day      the column with the day of a row, if files have several days: a date or a time, ISO
             8601 unless `day_formats` are given. A time with an offset belongs to its day in the
             zone of the project. Patterns in `files` then have no day, or the first and the last
             one of a file: "{first}_{last}.csv". By default, all files below the folder are read
    day_formats  patterns of Python's strptime for that column, tried in order: "%m/%d/%Y %H:%M"
    overlap  what happens to a day that several of these files have. "refuse": the day is refused
             until someone accepts the file. "all": the rows of all files are read. "last": those of
             the last file by name, for files that repeat earlier days
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

    A file of several days is split when a day of it is asked for. Each of its days is delivered by
    it, and a new version of it changes the days whose rows changed. If a row has no day that can be
    read, or one that the file should not have by its name, all days of the file are refused until
    someone accepts it.

    Rows have `arrival_day DATE, source_file STRING`. Lines add `line STRING, is_utf8 BOOLEAN`:
    U+FFFD replaces bytes that are not UTF-8, and `is_utf8` is false. CSV, Parquet and `fields` add
    the columns of `read_rows`.

    A day fails with a SourceError that names the file if a file is missing, cannot be read to its
    end, or lacks a required column.

    Files without rows are not duplicates. A file is compared with all files that were read from
    this home and are still there, and with those of the seven days before. The later day is
    doubtful.

        Landing("sales", format=Csv(";"), fields=[field("cents BIGINT")])
        Landing("sales", format=Csv(), fields=[field("cents BIGINT")], undeclared="ignore")

    Raises ValueError for values of other types, patterns without a day or with two readings of one
    name, an area that is not an address or a whole path, fields of the same name, and Parquet
    without fields.
    """

    name: str
    files: Texts = _DAILY
    format: AnyFormat = JSON_LINES
    fields: Several[Field] = ()
    # Waiting for and judging a delivery decide on no row, so these are not part of the code
    # version.
    settled: Annotated[float, Ge(0)] = uncompared(0.0)
    marker: str = uncompared("")
    fewest: Share = uncompared(0.5)
    horizon: Annotated[int, Ge(0)] = uncompared(HORIZON)
    duplicates: Duplicates = uncompared("refuse")
    area: Annotated[str, AfterValidator(place_of_area)] = uncompared("")
    unparsed_at_most: Share = uncompared(FEW)
    malformed_at_most: Share = uncompared(FEW)
    expected: Expected | None = uncompared(None)
    may_be_empty: bool = uncompared(False)
    _: KW_ONLY
    month_names: Several[str] = MONTHS
    undeclared: Literal["keep", "ignore", "refuse"] = "keep"
    day: str = ""
    day_formats: Several[str] = ()
    overlap: Literal["refuse", "all", "last"] = "refuse"

    def __post_init__(self) -> None:
        validate(self)
        refuse_no_folder("Landing", self.name)
        refuse_unusable_fields(self._read_fields)
        if isinstance(self.format, Parquet) and not self.fields:
            raise ValueError(
                f"Landing({self.name!r}): Parquet needs the columns to read: write"
                " fields=[field('cents BIGINT')]"
            )
        if self.day and self.files == _DAILY:
            object.__setattr__(self, "files", ("**/*",))
        if problem := self._unclear_names():
            raise ValueError(f"Landing({self.name!r}): {problem}")
        if not self._patterns:
            raise ValueError(f"Landing({self.name!r}): files needs at least one pattern")
        if self.marker and (
            "/" in self.marker
            or not any(pattern.is_of_one_day(self.marker) for pattern in self._of_one_day)
        ):
            raise ValueError(
                f"Landing({self.name!r}): marker={self.marker!r} is not valid: it must be the name"
                " of a file, and contain the day if a folder holds several days: '%Y-%m-%d.done'"
            )

    def _unclear_names(self) -> str:
        """Return why the days of some names or rows are not clear, or ""."""
        if not self.day and (self.day_formats or self.overlap != "refuse"):
            return "day_formats and overlap need day"
        if self.day and any({*"{%"} & {*text} and "{first" not in text for text in self.files):
            return (
                f"with day={self.day!r}, rows say their day: write * for it in files, or {{first}}"
                " and {last}"
            )
        if any(pattern.is_of_several_days for pattern in self._of_one_day):
            return "a file of several days needs day=, the column with the day of each row"
        for one, other in permutations(self._of_one_day, 2):
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
        """Return the rules for rows. `row_fault` describes a malformed row; "" if there is none."""
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
        """Return `unparsed` and `malformed`, if a rule reads them."""
        return columns_of_rules(self.rules())

    @cached_property
    def _read_fields(self) -> list[Field]:
        """The fields, with the options of the format."""
        return [column.within(self.format) for column in self.fields]

    @cached_property
    def _patterns(self) -> dict[str, Pattern | None]:
        """The patterns by text; None for a pattern of names without a day."""
        return {
            text: Pattern(text, self.month_names) if not self.day or "{" in text else None
            for text in self.files
        }

    @property
    def _of_one_day(self) -> list[Pattern]:
        return [] if self.day else [*filter(None, self._patterns.values())]

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        """Return each day's fingerprint and files, or the SourceError that explains its refusal."""
        return {day: delivery for day, (_, delivery) in self.judged(area, days).items()}

    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe each file of the day: name, bytes, lines and the first digits of its hash.

        Files that are not read, undeclared columns and doubts follow. Raises SourceError if the
        delivery cannot be used.
        """
        area = area.elsewhere(self.area)
        files, delivery = self.judged(area, [day])[day]
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
        return sum(contents.size for *_, contents in self._usable(area, days))

    def read(self, area: LandingArea, spark: SparkSession, days: Sequence[date]) -> DataFrame:
        """Read the delivered rows of `days`. Raises SourceError if a delivery cannot be used."""
        return self.read_files(area, spark, self._usable(area, days))

    def read_files(
        self, area: LandingArea, spark: SparkSession, delivered: Sequence[FileOfDay]
    ) -> DataFrame:
        """Read the rows of these files."""
        area = area.elsewhere(self.area)
        files = files_for_spark(area, [file for file in delivered if file[2].lines], self.format)
        if isinstance(self.format, JsonLines) and not self.fields:
            return read_lines(spark, files)
        rows = read_rows(spark, files, self.format, self._read_fields)
        if self.undeclared != "ignore":
            return rows
        return rows.withColumn(UNKNOWN_FIELDS, F.create_map().cast("MAP<STRING, STRING>"))

    def unmatched(self, area: LandingArea) -> list[str]:
        """List the files in the source's folder that match no day."""
        markers = [
            pattern.marker_pattern(self.marker)
            for pattern in self._of_one_day
            if self.marker and pattern.is_of_one_day(self.marker)
        ]
        look = self._look(area)
        read = {look.area.name_of(file) for file in look.of_several_days}
        files = look.days_of_files(markers).items()
        return [name for name, days in files if not days and name not in read]

    def outside(self, area: LandingArea, calendar: Calendar) -> list[str]:
        """List the files in the source's folder whose days are all outside the calendar.

        Files with rows of such days are listed too, with the number of these rows. The day after a
        growing calendar is left out, because it arrives now.
        """
        look = self._look(area)
        first = calendar.first
        last = calendar.last + timedelta(days=0 if calendar.fixed_last else 1)
        whole = {
            name: name
            for name, days in look.days_of_files().items()
            if days and (days[1] < first or days[0] > last)
        }
        return [*(look.rows_outside(first, last) | whole).values()]

    def eras(self, days: Collection[date]) -> dict[tuple[str, ...], list[date]]:
        """Group the days by the declared columns that their files lack."""
        return eras(self.fields, days) if self.fields else {}

    def _usable(self, area: LandingArea, days: Sequence[date]) -> list[FileOfDay]:
        """Return the files of `days` with their days and contents.

        Raises the SourceError of the first day whose delivery cannot be used.
        """
        judged = self.judged(area, days)
        require_usable({day: delivery for day, (_, delivery) in judged.items()})
        return [(day, *file) for day, (files, _) in judged.items() for file in files.items()]

    def judged(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, tuple[ContentsByFile, Delivery | SourceError]]:
        """Return the files of each of `days` in order, and their delivery.

        A folder that cannot be listed counts as delivered.
        """
        look = self._look(area, days)
        listed = look.listed(days)
        read = look.read(listed)
        first = -1 if self.overlap == "last" else 0
        delivered = {day: dict([*files.items()][first:]) for day, files in read.items()}
        repeated = {} if self.duplicates == "allow" else twins(look, delivered)
        judged: dict[date, tuple[ContentsByFile, Delivery | SourceError]] = {}
        for day, files in delivered.items():
            others = [file for file in listed[day] if file not in look.contents]
            delivery = self._delivery(look.area, day, files, others, repeated)
            if isinstance(delivery, Delivery):
                earlier = read[day].keys() - files.keys()
                delivery = replace(delivery, set_aside=sorted(map(look.area.name_of, earlier)))
            judged[day] = files, delivery
        return judged

    def _look(self, area: LandingArea, days: Collection[date] | None = None) -> Look:
        area = area.elsewhere(self.area)
        manifest = manifest_at(area.manifest(self.name, self.format), self.format, area.files)
        return Look(
            area,
            manifest,
            self.name,
            self.format,
            self.day,
            self.day_formats,
            self.fields,
            self._patterns,
            days,
        )

    def _delivery(
        self,
        area: LandingArea,
        day: date,
        files: ContentsByFile,
        others: Sequence[Entry],
        repeated: Mapping[tuple[date, str], str],
    ) -> Delivery | SourceError:
        """Return the delivery of a day's `files`, or the error that explains its refusal.

        `others` are the day's files that are not read. `repeated` says which files repeat others.
        """
        marker = self._marker(day)
        unread = [area.name_of(file) for file in others if file.name != marker]
        if not files:
            why = f"no file in {self.name} like {' or '.join(self.files)}"
            return NotDelivered(
                f"no source for {day} in {area.place()}:"
                f" {self._unread_text(unread) if unread else why}"
            )
        first = delivered_file(next(iter(files)))
        if away := area.files.unavailable_reason(first):
            return IncompleteDelivery(f"no source for {day}: {area.name_of(first)} {away}")
        by_name = {area.name_of(file): contents for file, contents in files.items()}
        for file, contents in files.items():
            if why := self._unfinished(area, day, file, contents):
                return IncompleteDelivery(
                    f"the source for {day} is still being written: {area.name_of(file)} {why}"
                )
        faults = {
            area.name_of(file): why
            for file, contents in files.items()
            if (why := self._fault(area, file, contents))
        }
        delivery = self.delivery_of(day, by_name, unread)
        repeats = {name: repeated[day, name] for name in by_name if (day, name) in repeated}
        doubts = {**(repeats if self.duplicates == "refuse" else {}), **delivery.doubts}
        for file, contents in files.items():
            if likely := self._remedy(area, file, contents, day):
                doubts[area.name_of(file)] += f". If {likely}"
        if self.day and self.overlap == "refuse" and len(by_name) > 1:
            one, *_, other = by_name
            doubts[other] = (
                f"has a day that {one} has too: write overlap='all' to read both, or"
                " overlap='last' to read the last one by name"
            )
        if faults:
            whys = "; ".join(f"{name} {why}" for name, why in {**doubts, **faults}.items())
            return SourceError(f"the source for {day} cannot be used: {whys}")
        said = [f"{name} {why}" for name, why in repeats.items()]
        return replace(delivery, doubts=doubts, notes=[*said, *delivery.notes])

    def delivery_of(
        self, day: date, by_name: Mapping[str, FileContents], unread: Sequence[str] = ()
    ) -> Delivery:
        """Return the delivery of a day from the contents of its files, which must have no fault."""
        # The name of a part is a hash of its rows, and does not depend on their packing.
        lines = [
            f"{name} {contents.part or f'{contents.size} {contents.content}'}"
            for name, contents in by_name.items()
        ]
        headers = [self._header(contents) for contents in by_name.values()] if self.fields else []
        return Delivery(
            fingerprint=digest(*lines),
            files={name: contents.lines for name, contents in by_name.items()},
            stamp="\n".join(contents.stamp for contents in by_name.values()),
            hashes={name: contents.content[:HASH_DIGITS] for name, contents in by_name.items()},
            unread=unread,
            undeclared=sorted({*chain(*map(self._undeclared, headers))}),
            # Objects may lack a column without a change of the layout.
            columns=(
                []
                if self.format.named_in
                else sorted({name for header in headers for name in header.names})
            ),
            absent={} if self.format.named_in else self._absent(headers, day),
            fewest=self.fewest,
            doubts={
                name: why
                for name, contents in by_name.items()
                if (why := self._doubt(contents, day))
            },
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
        """Return the columns that no field declares. Columns without a name are in the notes."""
        if self.undeclared == "ignore":
            return []
        names = header.unknown.keys() - {self.day}
        return sorted(name for name in names if not NAMELESS.fullmatch(name))

    def _absent(self, headers: Sequence[Header], day: date) -> dict[str, str]:
        """Return the columns that all files of the day lack, although they should have them."""
        return {
            column.name: next(filter(None, (header.new_name_of(column) for header in headers)), "")
            for column in self.fields
            if column.in_files_of(day) and all(column.name in header.missing for header in headers)
        }

    def _unread_text(self, names: Sequence[str]) -> str:
        """Say that files with these names are not read, and name the endings that are."""
        verb = "is" if len(names) == 1 else "are"
        return f"{named(names)} {verb} not read, only {', '.join(self.format.endings)}"

    def _unfinished(self, area: LandingArea, day: date, file: Entry, contents: FileContents) -> str:
        """Return why a file may be incomplete, or ""."""
        if self.marker:
            within = area.name_of(file).removeprefix(f"{self.name}/")
            if not any(
                pattern.is_of_one_day(self.marker)
                for pattern in self._of_one_day
                if pattern.day_of(within)
            ):
                return (
                    f"is in a folder of several days: write the day into marker={self.marker!r},"
                    " as '%Y-%m-%d.done'"
                )
            marker = self._marker(day)
            if not area.files.has_sibling(delivered_file(file), marker):
                return f"has no {marker} in its folder yet"
        if not self.settled or not contents.stamp:
            return ""
        age = area.files.state(delivered_file(file)).age(area.clock())
        if age >= self.settled:
            return ""
        when = (
            f"was written {age:.0f} s ago"
            if age >= 0
            else f"has a time {-age:.0f} s ahead of this machine's clock"
        )
        return f"{when}, and is read once it has been unchanged for {self.settled:g} s"

    def _marker(self, day: date) -> str:
        written = (pattern.with_day(self.marker, day) for pattern in self._of_one_day)
        return next(written, self.marker)

    def _header(self, contents: FileContents) -> Header:
        names = self.format.names(contents.header)
        return header_of([*names, *contents.in_folders], self.fields)

    def _fault(self, area: LandingArea, file: Entry, contents: FileContents) -> str:
        """Return why a file cannot be read, or ""."""
        unreadable = area.files.unreadable_reason(os.fspath(file))
        if unreadable and not contents.part:
            return unreadable
        return fault_of(contents, self.format, area.max_line_bytes)

    def _doubt(self, contents: FileContents, day: date) -> str:
        """Return why a readable file should not be used, or ""."""
        why = contents.doubt or self._unclear(contents, day)
        if why or not contents.header:
            return why
        if self.undeclared == "refuse" and (names := self._undeclared(self._header(contents))):
            return f"has columns that are not declared: {named(names)}"
        if contents.open_quotes:
            return (
                f"has {contents.open_quotes:,} lines that end within a quoted value: if values have"
                " line breaks, write Csv(multiline=True)"
            )
        form = self.format
        if contents.repeated and isinstance(form, Csv) and form.repeated_header == "refuse":
            return (_OWN_HEADER if form.header else _REPEATED_HEADER).format(contents.repeated)
        return ""

    def _unclear(self, contents: FileContents, day: date) -> str:
        """Return why the form of a file may differ from the declared one, or ""."""
        if contents.cut or not (contents.header and self.fields):
            return contents.cut
        # The names in a file of one day come from all lines of the original.
        where = "" if contents.part else self.format.named_in
        return missing_columns(self._header(contents), self.fields, day, where)

    def _remedy(self, area: LandingArea, file: Entry, contents: FileContents, day: date) -> str:
        """Return the option to read an unclear file, or ""."""
        form = self.format
        if contents.part or not self.fields or isinstance(form, Parquet):
            return ""
        if not self._unclear(contents, day):
            return ""
        try:
            return remedy(area.files.cached(file, contents.content), form, self._names)
        except OSError:  # the next look reads it again
            return ""
