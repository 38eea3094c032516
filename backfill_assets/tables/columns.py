"""The columns that a table declares, read from their SQL text, and what cannot be declared."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from backfill_assets.quality.rule import Rule
from backfill_assets.quality.thresholds import EVERY_OTHER_COLUMN, DriftThresholds
from backfill_assets.tables.column_types import QUOTED, refusal

# Spark, Delta and the readers of Delta tables agree on these without quoting.
NAME = re.compile(r"(?!__)[A-Za-z_]\w*", re.ASCII)


PIECE = re.compile(rf"{QUOTED}|.", re.DOTALL)


def types_of(columns: str) -> dict[str, str]:
    """Each column's type, in upper case. ValueError for a name that needs quoting or stands twice, and for a type that no
    table can hold.

    Names that begin with two underscores are this project's own.
    """
    types: dict[str, str] = {}
    for part in map(str.strip, _split(columns)):
        name, _, kind = " ".join(part.split()).partition(" ")
        if not NAME.fullmatch(name) or not kind:
            raise ValueError(
                f"{part!r} is not a column: write NAME TYPE, the name in letters, digits and underscores, and not "
                "beginning with two of those"
            )
        if why := refusal(name, kind):
            raise ValueError(f"{part!r}: {why}")
        if name.lower() in map(str.lower, types):
            raise ValueError(f"two columns are named {name}")
        types[name] = kind.upper()
    return types


def _split(columns: str) -> list[str]:
    """The text between the commas that are not within brackets or quotes."""
    parts, depth = [""], 0
    for piece in PIECE.findall(columns):
        depth += (piece in "<(") - (piece in ">)")
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def refuse_wrong_columns(name: str, columns: str, **declared: Any) -> None:
    """ValueError, with the table's name, for what `_refuse` refuses."""
    try:
        _refuse(columns, **declared)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _refuse(
    columns: str,
    *,
    partition_by: str,
    key: Sequence[str],
    fingerprint_by: str | None,
    rules: Sequence[Rule],
    measures: Mapping[str, str],
    compared_with: Sequence[str],
    drift: Mapping[str, DriftThresholds],
) -> None:
    """ValueError for a day that is no DATE, and for a key, a rule or a threshold that names what the table does not have."""
    types = types_of(columns)
    for argument, column in (("partition_by", partition_by), ("fingerprint_by", fingerprint_by)):
        if column is not None and not re.fullmatch(r"DATE( COMMENT .*)?", types.get(column, "")):
            raise ValueError(f"{argument}={column!r} must be a column of type DATE; the columns are {columns}")
    unknown = [column for column in key if column not in types]
    if unknown:
        raise ValueError(f"the key names {', '.join(unknown)}, which is no column; the columns are {', '.join(types)}")
    if maps := [column for column in key if "MAP<" in types[column].replace(" ", "")]:
        raise ValueError(f"the key names {', '.join(maps)}, which holds a map: Spark does not compare maps")
    for column, thresholds in drift.items():
        if (column not in types and column != EVERY_OTHER_COLUMN) or not isinstance(thresholds, DriftThresholds):
            raise ValueError(f'drift={{{column!r}: {thresholds!r}}}: write a column, or "*", and its DriftThresholds(...)')
    for rule in rules:
        if rule.counts_keys and not key:
            raise ValueError(f"the rule {rule.name} needs a key: key=[...]")
        has = {"column": types, "measure": measures, "table in compared_with": compared_with}
        for kind, names in (("column", rule.columns), ("measure", rule.measures), ("table in compared_with", rule.tables)):
            missing = [name for name in names if name not in has[kind]]
            if missing:
                raise ValueError(f"the rule {rule.name} looks at {', '.join(missing)}, which is no {kind} of the table")
