"""The columns that a table declares, and the SQL types that they may have.

A type is allowed if Spark computes it, Delta stores it and its readers know it, nested types too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from backfill_assets.lake.columns import DECIMAL, DELTA_TYPES
from backfill_assets.quality.thresholds import EVERY_OTHER_COLUMN, DriftThresholds
from backfill_assets.sources.protocol import Source

if TYPE_CHECKING:
    from backfill_assets.tables.declaration import Table

_QUOTED = r"(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
COMMENT = rf"(?:\s+COMMENT(?:\s*{_QUOTED})+)?"
_TYPE = rf"(?:{'|'.join(sorted(DELTA_TYPES))})\b"
_FIELD = rf"(?:\w+|`[^`]+`)(?:\s*:\s*|\s+){_TYPE}{COMMENT}"
# Types without nested types: the innermost.
_NESTED = re.compile(
    rf"\b(?:ARRAY\s*<\s*{_TYPE}\s*>|MAP\s*<\s*{_TYPE}\s*,\s*{_TYPE}\s*>|STRUCT\s*<\s*{_FIELD}(?:\s*,\s*{_FIELD})*\s*>)",
    re.IGNORECASE,
)
COLUMN = re.compile(_TYPE + COMMENT, re.IGNORECASE)
MOST_DIGITS = 38

_ADVICE = {
    r"(?:VAR)?CHAR": (
        "Spark computes no columns of that type; write STRING, and a rule for the length"
    ),
    r"NOT\s+NULL": (
        "no table is held to NOT NULL; leave it out, and write the rule rules.no_nulls({name!r})"
    ),
    r"COLLATE": "keys and fingerprints compare text letter by letter; leave COLLATE out",
    r"DEFAULT": "a column holds what the function computes; leave DEFAULT out",
    r"GENERATED": "a column holds what the function computes; leave GENERATED out",
}


def refusal(name: str, kind: str) -> str:
    """Why the column `name` cannot have the type `kind`, and the remedy; "" if it can."""
    unquoted = re.sub(_QUOTED, "", kind)
    for decimal in DECIMAL.finditer(unquoted):
        digits = int(decimal[1])
        after_the_point = int(decimal[2] or 0)
        if not max(1, after_the_point) <= digits <= MOST_DIGITS:
            return f"a decimal has 1 to {MOST_DIGITS} digits, and no more of them after the point"
    if COLUMN.fullmatch(_simplified(DECIMAL.sub("DECIMAL", kind))):
        return ""
    # A name before a colon is the name of a field.
    words = [word for word in _ADVICE if re.search(rf"\b{word}\b(?!\s*:)", unquoted, re.IGNORECASE)]
    advice = (_ADVICE[word].format(name=name) for word in words)
    types = ", ".join(sorted(DELTA_TYPES))
    return next(
        advice,
        f"{kind} is not the type of a column; write {types}, or ARRAY<>, MAP<,> and STRUCT<> of"
        " these",
    )


def _simplified(kind: str) -> str:
    """The type `kind`, with a plain type in place of each allowed nested type."""
    simpler = _NESTED.sub("INT", kind)
    return kind if simpler == kind else _simplified(simpler)


# Spark, Delta and the readers of Delta tables agree on these names without quotes.
_NAME = re.compile(r"(?!__)[A-Za-z_]\w*", re.ASCII)


_PIECE = re.compile(rf"{_QUOTED}|.", re.DOTALL)


def types_of(columns: str) -> dict[str, str]:
    """Each column's type, in upper case.

    Raises ValueError for a name that needs quoting or is used twice, and for a type that no table
    can hold. Names that begin with two underscores are reserved.
    """
    types: dict[str, str] = {}
    for part in map(str.strip, _split(columns)):
        name, _, kind = " ".join(part.split()).partition(" ")
        if not _NAME.fullmatch(name) or not kind:
            raise ValueError(
                f"{part!r} is not a column: write NAME TYPE, the name in letters, digits and"
                " underscores, and not beginning with two of those"
            )
        if why := refusal(name, kind):
            raise ValueError(f"{part!r}: {why}")
        if name.lower() in map(str.lower, types):
            raise ValueError(f"two columns are named {name}")
        types[name] = kind.upper()
    return types


def _split(columns: str) -> list[str]:
    """The text between the commas that are not within brackets or quotes."""
    parts = [""]
    depth = 0
    for piece in _PIECE.findall(columns):
        depth += (piece in "<(") - (piece in ">)")
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def refuse_wrong_columns(table: Table) -> None:
    """Refuse columns that no table can hold, and names of columns that the table does not have.

    Raises ValueError with the name of the table.
    """
    try:
        _refuse(table)
    except ValueError as error:
        raise ValueError(f"{table.name}: {error}") from None


def _refuse(table: Table) -> None:
    types = types_of(table.columns)
    key = table.key
    for argument in ("partition_by", "fingerprint_by"):
        column = getattr(table, argument)
        if column is not None and not re.fullmatch(r"DATE( COMMENT .*)?", types.get(column, "")):
            raise ValueError(
                f"{argument}={column!r} must be a column of type DATE; the columns are"
                f" {table.columns}"
            )
    unknown = [column for column in key if column not in types]
    if unknown:
        raise ValueError(
            f"the key names {', '.join(unknown)}, which is not a column; the columns are"
            f" {', '.join(types)}"
        )
    if other := [column for column in table.lineage if column not in types or column in key]:
        raise ValueError(
            f"lineage names {', '.join(other)}; it takes columns that are not part of the key; the"
            f" columns are {', '.join(types)}"
        )
    days = (table.partition_by, table.fingerprint_by)
    if other := [column for column in table.mask if column not in types or column in days]:
        raise ValueError(
            f"mask names {', '.join(other)}; it takes columns that do not hold the day; the columns"
            f" are {', '.join(types)}"
        )
    if maps := [column for column in key if "MAP<" in types[column].replace(" ", "")]:
        raise ValueError(
            f"the key names {', '.join(maps)}, which holds a map: Spark does not compare maps"
        )
    for column, thresholds in table.drift.items():
        if (column not in types and column != EVERY_OTHER_COLUMN) or not isinstance(
            thresholds, DriftThresholds
        ):
            raise ValueError(
                f'drift={{{column!r}: {thresholds!r}}}: write a column, or "*", and its'
                " DriftThresholds(...)"
            )
    _refuse_dropped_columns(table, types)
    for rule in table.rules:
        if rule.counts_keys and not key:
            raise ValueError(f"the rule {rule.name} needs a key: key=[...]")
        compared_with = [other.name for other in table.compared_with]
        for kind, names, existing in (
            ("column", rule.columns, types),
            ("measure", rule.measures, table.measures),
            ("table in compared_with", rule.tables, compared_with),
        ):
            missing = [name for name in names if name not in existing]
            if missing:
                raise ValueError(
                    f"the rule {rule.name} looks at {', '.join(missing)}, which is not a"
                    f" {kind} of the table"
                )


def _refuse_dropped_columns(table: Table, types: Mapping[str, str]) -> None:
    """Refuse a table without the columns in which its sources report text that cannot be parsed.

    Raises ValueError.
    """
    plain = {name: kind.partition(" COMMENT ")[0].replace(" ", "") for name, kind in types.items()}
    for source in table.sources():
        if not isinstance(source, Source):
            continue  # it is refused later
        lacking = [
            f"{name} {kind}"
            for name, kind in source.kept_columns().items()
            if plain.get(name) != kind.replace(" ", "")
        ]
        if lacking:
            raise ValueError(
                f"what cannot be parsed in {source.name} is counted by columns that are not there:"
                f" add {', '.join(lacking)} to `columns`, and to the rows that the function"
                " returns. `row_columns` of the source has all columns. To count nothing, write"
                " unparsed_at_most=1, malformed_at_most=1 in the source"
            )
