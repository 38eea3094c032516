"""The declared columns of a source of files, and their match with a file's header.

An era of a source begins where a column appeared or disappeared. Files are read by the names in
their own header, not by their day, because sources publish old days again in the new layout.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from dataclasses import fields as options_in
from datetime import date
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import unquote

from backfill_assets.errors import named, nearest
from backfill_assets.grouping import grouped
from backfill_assets.lake.columns import delta_type
from backfill_assets.quality.rule import Rule
from backfill_assets.quality.rules import MALFORMED, rows_well_formed, values_parsed
from backfill_assets.sources.protocol import Several, Share, Texts, TimeZone, uncompared, validate

# Columns of the rows, in addition to the declared ones.
UNPARSED = "unparsed"
UNKNOWN_FIELDS = "unknown_fields"
_COMMON_COLUMNS = {
    "arrival_day": "DATE",
    "source_file": "STRING",
    UNPARSED: "MAP<STRING, STRING>",
    UNKNOWN_FIELDS: "MAP<STRING, STRING>",
    MALFORMED: "STRING",
}
# The largest share of values, and of rows, that may be unreadable without a decision.
FEW = 0.001
_NAMES_SHOWN = 20
_NULL_IN_HIVE = "__HIVE_DEFAULT_PARTITION__"
_QUOTED = re.compile(r"'[^']*'")
_ZONE_LETTERS = re.compile("[VzOXxZ]")
# Patterns of texts that cannot be parsed, with the option to write then.
_BLANKS = {r"\s.*|.*\s": "blanks around values: write trim=True"}
_NO_VALUES = {
    r"(?i)n[/.]?a\.?|null|none|nan|\?|-+": "texts that mean no value: list them, as nulls=['NA']"
}
_COMMAS = {r"[+-]?\d+,\d+": "numbers with a comma as decimal sign: write decimal=','"}


Ambiguous = Literal["", "first", "second", "by order"]
DecimalSign = Literal[".", ","]
ThousandsSign = Literal[".", ",", " ", "'", "\u2019", "\u00a0", "\u202f"]


@dataclass(frozen=True, kw_only=True)
class Convention:
    """How values are written as text.

    An option with None has its default: for a field, the option of its format.

    Raises ValueError for values of other types, and if `decimal` and `thousands` are the same.
    """

    nulls: Several[str] | None = None
    decimal: DecimalSign | None = None
    thousands: ThousandsSign | None = None
    trim: bool | None = None

    def __post_init__(self) -> None:
        validate(self)
        if self.thousands == (self.decimal or "."):
            raise ValueError(
                f"thousands={self.thousands!r} is the decimal sign too: write"
                " decimal=',', thousands='.', or other signs"
            )

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not the default, by name."""
        options = {option.name: getattr(self, option.name) for option in options_in(Convention)}
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True)
class Field(Convention):
    """One declared column, as `field` makes it."""

    name: str
    type: str
    names: tuple[str, ...]
    required: bool = False
    since: date | None = None
    until: date | None = None
    formats: Texts = ()
    zone: TimeZone = ""
    # Decides on no value, so it is not part of the code version.
    unparsed_at_most: Share | None = uncompared(None)
    _: KW_ONLY
    ambiguous: Ambiguous = ""
    booleans: tuple[str, str] = ("true", "false")
    not_finite: bool = False

    @property
    def kind(self) -> str:
        """Delta's name of the type."""
        return delta_type(self.type)

    @property
    def is_floating(self) -> bool:
        return self.kind in ("float", "double")

    @property
    def scale(self) -> str:
        """The number of digits after the point of a decimal; "" for other types."""
        return self.kind.partition(",")[2].rstrip(")")

    @property
    def is_number(self) -> bool:
        """Tell whether the column has numbers."""
        is_whole = self.kind in ("byte", "short", "integer", "long")
        return is_whole or self.is_floating or bool(self.scale)

    def within(self, form: object) -> "Field":
        """Return the column with the options of its format, where the column has none."""
        return replace(self, **form.given | self.given) if isinstance(form, Convention) else self

    def hints(self) -> dict[str, str]:
        """Return the option to write if texts that cannot be parsed match a regular expression."""
        hints = _NO_VALUES | ({} if self.trim else _BLANKS)
        if self.is_number and self.decimal is None:
            hints |= _COMMAS
        if self.zone and not self.ambiguous:
            hints["(?s).*"] = (
                f"if the clock of {self.zone} repeats these times, write ambiguous='by order',"
                " 'first' or 'second'"
            )
        return hints

    def in_files_of(self, day: date) -> bool:
        """Tell whether files of the day are declared to have the column."""
        return (self.since is None or day >= self.since) and (
            self.until is None or day <= self.until
        )


class FieldOptions(TypedDict, total=False):
    """The options of `field`, which explains them. `Field` has their defaults."""

    required: bool
    since: date | None
    until: date | None
    formats: Texts
    zone: str
    ambiguous: Ambiguous
    nulls: Sequence[str] | None
    decimal: DecimalSign | None
    thousands: ThousandsSign | None
    trim: bool | None
    booleans: tuple[str, str]
    not_finite: bool
    unparsed_at_most: float | None


def field(column: str, *names: str, **options: Unpack[FieldOptions]) -> Field:
    """Declare a column of a source.

    column        its name in the table and its SQL type: "confirmed BIGINT". Old and new values get
                  the same type
    names         the names that files have used, the current one first. Default: the column's name.
                  A folder may have the column instead: `store=north/`
    required      refuse a file that lacks the column on a day whose files should have it. Otherwise
                  its values are null. For JSON lines, the first 20 lines of a file decide, and each
                  line without the column is `malformed`
    since, until  the first and last day whose files have the column. A plan says which days lack it
    formats       for DATE and TIMESTAMP: Spark's datetime patterns, tried in order
                  ("M/d/yyyy H:mm"). A pattern may contain a zone ("yyyy-MM-dd HH:mm:ssXXX").
                  Default: ISO 8601 only
    zone          for TIMESTAMP: the time zone of times that are written without one, such as
                  "Europe/Berlin". Default: UTC. A local time that the clock skips is not parsed
    ambiguous     which moment a local time of a repeated hour is. "first" and "second" hold for
                  all. "by order": where the times of consecutive lines of a file stop to increase
                  once, the second hour begins, as pandas infers it. Default: not parsed
    nulls         texts that mean null: ["NA", "-", "<5"]. Default: an empty value
    decimal       the decimal sign of numbers: decimal="," reads "1,5". Default: "."
    thousands     the sign between groups of three digits: thousands="'" reads "1'000". Default:
                  none
    trim          trim=True removes blanks around values. Default: they stay in a STRING, and other
                  values with them are not parsed
    booleans      the texts of true and false, in any case: booleans=("yes", "no")
    not_finite    not_finite=True reads NaN and Infinity as values of a FLOAT or DOUBLE
    unparsed_at_most  the largest share (0 to 1) of the values of a day that may not fit the type.
                  They are null. Default: that of the source. With 1, nothing is refused

    `nulls`, `decimal`, `thousands` and `trim` may be declared for all columns: `Csv(trim=True)`.

    A whole number may be written with a zero fraction: "106.0" is 106. "106.5" and "1e2" do not
    fit.

    Raises ValueError for a column without a type, if `until` is before `since`, for a zone that is
    not known or not needed, and for options that do not fit the type.
    """
    name, _, kind = column.strip().partition(" ")
    if not kind.strip():
        raise ValueError(
            f"field({column!r}) has no type: write its name and its type, as 'confirmed BIGINT'"
        )
    declared = Field(name, kind.strip().upper(), names or (name,), **options)
    if why := _unusable(declared):
        raise ValueError(f"field({column!r}): {why}")
    return declared


def has_zone(pattern: str) -> bool:
    """Tell whether times of a datetime pattern are written with their zone."""
    return bool(_ZONE_LETTERS.search(_QUOTED.sub("", pattern)))


def _unusable(declared: Field) -> str:
    """Return why options do not fit each other, or ""."""
    if declared.since and declared.until and declared.until < declared.since:
        return f"{declared.until} is before {declared.since}"
    optional = [
        pattern
        for pattern in declared.formats
        if has_zone(pattern) and "[" in _QUOTED.sub("", pattern)
    ]
    if optional and declared.zone:
        return (
            f"the format {optional[0]!r} has optional parts: with zone=, write one format with the"
            " zone and one without"
        )
    if declared.zone and declared.kind != "timestamp":
        return f"zone={declared.zone!r} is for a TIMESTAMP, which is a moment in UTC"
    if declared.ambiguous and not declared.zone:
        return f"ambiguous={declared.ambiguous!r} needs a zone, such as zone='Europe/Berlin'"
    if declared.type == "DATE" and any(map(has_zone, declared.formats)):
        return "the day of a time depends on its zone: read it as a TIMESTAMP"
    if not declared.is_number and (declared.decimal or declared.thousands):
        return f"decimal and thousands are for numbers, not for {declared.type}"
    if declared.not_finite and not declared.is_floating:
        return f"not_finite is for a FLOAT or DOUBLE, not for {declared.type}"
    true, false = (text.lower() for text in declared.booleans)
    if true == false or (declared.type != "BOOLEAN" and (true, false) != ("true", "false")):
        return f"booleans={declared.booleans!r} is for a BOOLEAN, and needs two different texts"
    return ""


@dataclass(frozen=True)
class Header:
    """The match between the columns of a file and the declared columns.

    `places` has the position of each declared column, `missing` the declared columns that the file
    lacks, `unknown` the positions of the other columns, `repeated` the names that occur twice, and
    `names` all names.
    """

    places: Mapping[str, int]
    missing: tuple[str, ...]
    unknown: Mapping[str, int]
    repeated: tuple[str, ...] = ()
    names: tuple[str, ...] = uncompared(())

    def new_name_of(self, column: Field) -> str:
        """Return the undeclared name that is most like a name of a missing column, or ""."""
        # A single column more likely means another delimiter.
        unknown = self.unknown if len(self.names) > 1 else ()
        spelled = {name.lower(): name for name in unknown}
        alike = (nearest(name.lower(), spelled) for name in column.names)
        return next((spelled[name] for name in alike if name), "")


def header_of(names: Sequence[str], fields: Sequence[Field]) -> Header:
    """Match each declared column with the first of its names that the file has."""
    positions = {name: n for n, name in reversed(list(enumerate(names)))}
    used = {
        column.name: next((name for name in column.names if name in positions), None)
        for column in fields
    }
    return Header(
        {column: positions[name] for column, name in used.items() if name is not None},
        tuple(column for column, name in used.items() if name is None),
        {name: n for name, n in positions.items() if name not in used.values()},
        tuple(sorted({name for name in names if names.count(name) > 1})),
        tuple(names),
    )


def folder_values(name: str, fields: Sequence[Field]) -> dict[str, str | None]:
    """Return the values of declared columns in the folders of a file: `store=north/`.

    They are written as Hive and Spark do.
    """
    pairs = [map(unquote, folder.split("=", 1)) for folder in name.split("/")[:-1] if "=" in folder]
    return {
        column: None if value == _NULL_IN_HIVE else value
        for column, value in pairs
        if any(column in known.names for known in fields)
    }


def repeated_columns(header: Header) -> str:
    """Return why a file with repeated column names cannot be read, or ""."""
    return f"has more than one column {header.repeated[0]}" if header.repeated else ""


def missing_columns(header: Header, fields: Sequence[Field], day: date, where: str = "") -> str:
    """Say which columns a file of the day lacks, and which it has, or return "".

    A file lacks columns if a required one is missing, or if it has none of the declared ones.
    `where` completes the sentence with the place of the columns.
    """
    found = f": it has {named(header.names, _NAMES_SHOWN)}" if header.names else ""
    for column in fields:
        if column.required and column.name in header.missing and column.in_files_of(day):
            first, *others = column.names
            also = f", also called {', '.join(others)}" if others else ""
            new = header.new_name_of(column)
            renamed = f". If {new} is its new name, add it to the names of the field" if new else ""
            return f"has no column {first}{also}{where}, which {column.name} needs{found}{renamed}"
    if fields and not header.places:
        expected = named([column.names[0] for column in fields])
        return f"has none of the columns {expected}{where}{found}"
    return ""


def row_columns(fields: Sequence[Field]) -> str:
    """Return the columns of the rows that are read, with their types, as SQL."""
    types = {
        "arrival_day": _COMMON_COLUMNS["arrival_day"],
        "source_file": _COMMON_COLUMNS["source_file"],
        **{column.name: column.type for column in fields},
        **_COMMON_COLUMNS,
    }
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def parsing_rules(
    fields: Sequence[Field],
    fault: str,
    unparsed_at_most: float,
    malformed_at_most: float,
    *,
    has_bytes: bool = False,
) -> list[Rule]:
    """Return the rules of a table that reads these fields, except rules that allow everything."""
    shares = {
        column.name: (
            unparsed_at_most if column.unparsed_at_most is None else column.unparsed_at_most
        )
        for column in fields
        if has_bytes or column.type != "STRING"  # Every text is a value.
    }
    judged = {name: share for name, share in shares.items() if share < 1}
    hints = {column.name: column.hints() for column in fields}
    return [
        *([values_parsed(judged, hints)] if judged else []),
        *([rows_well_formed(malformed_at_most, fault)] if fault and malformed_at_most < 1 else []),
    ]


def columns_of_rules(rules: Sequence[Rule]) -> dict[str, str]:
    """Return the columns that the rules of a source read, with their types."""
    return {name: _COMMON_COLUMNS[name] for rule in rules for name in rule.columns}


def eras(fields: Sequence[Field], days: Collection[date]) -> dict[tuple[str, ...], list[date]]:
    """Group the days, in order, by the declared columns that their files lack."""

    def missing(day: date) -> tuple[str, ...]:
        return tuple(column.name for column in fields if not column.in_files_of(day))

    return grouped((missing(day), day) for day in sorted(days))


def refuse_unusable_fields(fields: Sequence[Field]) -> None:
    """Raise ValueError for columns that are not distinct.

    Two columns may not have the same name, use the same name in files, or use the name of a column
    that every source has.
    """
    earlier = list[Field]()
    for column in fields:
        if column.name in _COMMON_COLUMNS:
            raise ValueError(
                f"every source of files has a column {column.name}: give the declared one another"
                " name"
            )
        for other in earlier:
            if column.name == other.name:
                raise ValueError(f"two columns are called {column.name}")
            if both := {*column.names} & {*other.names}:
                raise ValueError(f"{other.name} and {column.name} are both read from {min(both)}")
        earlier.append(column)
