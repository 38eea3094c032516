"""The columns of a source's files over time: names in files and since when they exist.

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
    """One declared column: see `field`."""

    name: str
    type: str
    names: tuple[str, ...]
    required: bool = False
    since: date | None = None
    until: date | None = None
    formats: tuple[str, ...] = ()

    def in_files_of(self, day: date) -> bool:
        """Whether files of the day are declared to have the column."""
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

    column        its name in the table and its type, as SQL: "confirmed BIGINT"; historic and
                  current values get the same type
    names         what files have called it, the present name first; without any, the column's own
                  name
    required      whether a file without it, of a day whose files have it, is refused, with the file
                  and the column named; else its values are null. Of JSON lines, a file without it
                  in its first 20 lines is, and each line is `malformed`
    since, until  the days whose files have it, where it came or went: a plan says which days lack
                  it. Files are read by the names in their own header, whatever their day: sources
                  publish old days again in the new layout
    formats       of a DATE or a TIMESTAMP, the patterns tried in order (Spark's datetime patterns:
                  "M/d/yyyy H:mm"); without any, only ISO 8601 is read

    Raises ValueError for a column without a type, and for days in the wrong order.
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
    """What the columns of a file are to the declared ones: where each is found; those that are
    missing, and the others.
    """

    places: Mapping[str, int]
    missing: tuple[str, ...]
    unknown: Mapping[str, int]
    repeated: tuple[str, ...] = ()


def header_of(names: Sequence[str], fields: Sequence[Field]) -> Header:
    """Each declared column is the first of its names that the file has."""
    at = {name: n for n, name in reversed(list(enumerate(names)))}
    used = {each.name: next((name for name in each.names if name in at), None) for each in fields}
    places = {name: at[named] for name, named in used.items() if named is not None}
    unknown = {name: n for name, n in at.items() if name not in used.values()}
    repeated = tuple(sorted({name for name in names if names.count(name) > 1}))
    return Header(
        places, tuple(name for name, named in used.items() if named is None), unknown, repeated
    )


def repeated_columns(header: Header) -> str:
    """Why a file with this header cannot be read: "" if it can."""
    return f"has more than one column {header.repeated[0]}" if header.repeated else ""


def missing_columns(header: Header, fields: Sequence[Field], day: date, where: str = "") -> str:
    """Which columns a file of the day lacks `where` it was looked for them, if it is of another
    data set, lacking one that is required, or all; else "".
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
    """By the declared columns that their files lack, the days; all in order."""
    by_missing: dict[tuple[str, ...], list[date]] = {}
    for day in sorted(days):
        by_missing.setdefault(
            tuple(each.name for each in fields if not each.in_files_of(day)), []
        ).append(day)
    return by_missing


def refuse_unusable_fields(fields: Sequence[Field]) -> None:
    """ValueError for two columns of one name, or of a name that every source has, and for a name of
    files that two columns have: files are read by the names in their own header, whatever their
    day.
    """
    taken = set[str]()
    for n, each in enumerate(fields):
        if each.name in _COMMON_COLUMNS:
            raise ValueError(
                f"{each.name} is a column of every source of files: give the declared one another"
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
