"""The declared columns of a source of files, and how a file's header provides them.

An era of a source begins where a column appeared or disappeared. Files are read by the names in
their own header, whatever their day, because sources publish old days again in the new layout.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.errors import named
from backfill_assets.sources.protocol import refuse_mistyped

# Columns of the rows read, beside those declared.
UNPARSED = "unparsed"
UNKNOWN_FIELDS = "unknown_fields"
MALFORMED = "malformed"
_COMMON_COLUMNS = ("arrival_day", "source_file", UNPARSED, UNKNOWN_FIELDS, MALFORMED)


@dataclass(frozen=True)
class Field:
    """One declared column, as `field` makes it."""

    name: str
    type: str
    names: tuple[str, ...]
    required: bool = False
    since: date | None = None
    until: date | None = None
    formats: tuple[str, ...] = ()

    def in_files_of(self, day: date) -> bool:
        """Tell whether files of the day are declared to have the column."""
        return (self.since is None or day >= self.since) and (
            self.until is None or day <= self.until
        )


def field(
    column: str,
    *names: str,
    required: bool = False,
    since: date | None = None,
    until: date | None = None,
    formats: str | Sequence[str] = (),
) -> Field:
    """Declare a column of a source.

    column        its name in the table and its SQL type: "confirmed BIGINT". Old and new values get
                  the same type
    names         the names that files have used, the current one first. Default: the column's name
    required      refuse a file that lacks the column on a day whose files should have it. Otherwise
                  its values are null. For JSON lines, the first 20 lines of a file decide, and each
                  line without the column is `malformed`
    since, until  the first and last day whose files have the column. A plan says which days lack it
    formats       for DATE and TIMESTAMP: Spark's datetime patterns, tried in order
                  ("M/d/yyyy H:mm"). Default: ISO 8601 only

    Raises ValueError for a column without a type, and if `until` is before `since`.
    """
    name, _, kind = column.strip().partition(" ")
    if not kind.strip():
        raise ValueError(
            f"field({column!r}) has no type: write its name and its type, as 'confirmed BIGINT'"
        )
    patterns = (formats,) if isinstance(formats, str) else tuple(formats)
    declared = Field(name, kind.strip().upper(), names or (name,), required, since, until, patterns)
    refuse_mistyped(declared)
    if since and until and until < since:
        raise ValueError(f"field({column!r}): {until} is before {since}")
    return declared


@dataclass(frozen=True)
class Header:
    """How the columns of a file match the declared ones.

    `places` has the position of each declared column, `missing` the declared columns that the file
    lacks, `unknown` the positions of the others, `repeated` the names that occur twice.
    """

    places: Mapping[str, int]
    missing: tuple[str, ...]
    unknown: Mapping[str, int]
    repeated: tuple[str, ...] = ()


def header_of(names: Sequence[str], fields: Sequence[Field]) -> Header:
    """Match each declared column with the first of its names that the file has."""
    at = {name: n for n, name in reversed(list(enumerate(names)))}
    used = {each.name: next((name for name in each.names if name in at), None) for each in fields}
    places = {name: at[named] for name, named in used.items() if named is not None}
    unknown = {name: n for name, n in at.items() if name not in used.values()}
    repeated = tuple(sorted({name for name in names if names.count(name) > 1}))
    return Header(
        places, tuple(name for name, named in used.items() if named is None), unknown, repeated
    )


def repeated_columns(header: Header) -> str:
    """Return why a file with repeated column names cannot be read, or ""."""
    return f"has more than one column {header.repeated[0]}" if header.repeated else ""


def missing_columns(header: Header, fields: Sequence[Field], day: date, where: str = "") -> str:
    """Say which columns a file of the day lacks, or return "".

    It lacks columns if a required one is missing, or if it has none of the declared ones. `where`
    completes the sentence: where the columns were looked for.
    """
    for each in fields:
        if each.required and each.name in header.missing and each.in_files_of(day):
            other = f", also called {', '.join(each.names[1:])}" if each.names[1:] else ""
            return f"has no column {each.names[0]}{other}{where}, which {each.name} needs"
    if fields and not header.places:
        others = f": it has {named([*header.unknown])}" if header.unknown else ""
        return f"has none of the columns {named([each.names[0] for each in fields])}{where}{others}"
    return ""


def eras(fields: Sequence[Field], days: Collection[date]) -> dict[tuple[str, ...], list[date]]:
    """Group the days, in order, by the declared columns that their files lack."""
    by_missing: dict[tuple[str, ...], list[date]] = {}
    for day in sorted(days):
        by_missing.setdefault(
            tuple(each.name for each in fields if not each.in_files_of(day)), []
        ).append(day)
    return by_missing


def refuse_unusable_fields(fields: Sequence[Field]) -> None:
    """Raise ValueError for columns that cannot be told apart.

    Two columns may not have the same name, use the same name in files, or use the name of a column
    that every source has.
    """
    taken = set[str]()
    for n, each in enumerate(fields):
        if each.name in _COMMON_COLUMNS:
            raise ValueError(
                f"every source of files has a column {each.name}: give the declared one another"
                " name"
            )
        if each.name in taken:
            raise ValueError(f"two columns are called {each.name}")
        taken.add(each.name)
        for other in fields[:n]:
            if both := set(each.names) & set(other.names):
                raise ValueError(
                    f"{other.name} and {each.name} are both read from {sorted(both)[0]}"
                )
