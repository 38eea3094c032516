"""The columns of a table: which ones a write may add, and which changes are refused."""

import json
import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import date
from typing import Any, NamedTuple

from deltalake import DeltaTable, Schema

from backfill_assets.calendar import ranges
from backfill_assets.errors import NOTHING_COMMITTED, UsageError
from backfill_assets.lake.object_store import delta_options

# SQL names of types by those that Delta keeps in a table's schema.
DELTA_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "BYTE": "byte",
    "SMALLINT": "short",
    "SHORT": "short",
    "INT": "integer",
    "INTEGER": "integer",
    "BIGINT": "long",
    "LONG": "long",
    "FLOAT": "float",
    "REAL": "float",
    "DOUBLE": "double",
    "DECIMAL": "decimal(10,0)",
    "DEC": "decimal(10,0)",
    "NUMERIC": "decimal(10,0)",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
}
_DECIMAL = re.compile(r"(?:DECIMAL|DEC|NUMERIC) *\( *(\d+) *(?:, *(\d+) *)?\)")


class ColumnChanges(NamedTuple):
    """How declared columns differ from those of a table: new, gone, retyped or respelled."""

    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    retyped: tuple[str, ...] = ()
    respelled: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self)


def column_changes(schema: Schema, declared: Mapping[str, str]) -> ColumnChanges:
    """How the declared columns differ from those of a table, by name and SQL type.

    Of nested types only the kind is compared: struct, array, map.
    """
    stored = column_types(schema)
    spelled = {name.lower(): name for name in stored}
    declared_names = {name.lower() for name in declared}
    return ColumnChanges(
        new=tuple(name for name in declared if name.lower() not in spelled),
        gone=tuple(name for name in stored if name.lower() not in declared_names),
        retyped=tuple(
            f"{name} is {type_words(kind)}, now {declared[name].lower()}"
            for name, kind in stored.items()
            if name in declared and delta_type(declared[name]) != type_words(kind)
        ),
        respelled=tuple(name for name in declared if name != spelled.get(name.lower(), name)),
    )


def delta_type(kind: str) -> str:
    """Delta's name of an SQL type in upper case, such as BIGINT or `DECIMAL(9, 2)`.

    A nested type gives its kind: struct, array, map.
    """
    if decimal := _DECIMAL.match(kind):
        return f"decimal({decimal[1]},{decimal[2] or 0})"
    word = re.split(r"\W", kind, maxsplit=1)[0]
    return DELTA_TYPES.get(word, word.lower())


def delta_schema(columns: str) -> Schema:
    """The columns of a DataFrame (`rows.schema.json()`) as a Delta schema. All may be null."""
    return Schema.from_json(json.dumps(nullable(json.loads(columns))))


def column_differences(table: DeltaTable, columns: str) -> list[str]:
    """The names of the columns that only one side has, or that have two types."""
    stored = _types(table.schema().to_json())
    declared = _types(columns)
    return sorted(name for name in {*stored, *declared} if stored.get(name) != declared.get(name))


def undeclared(table: DeltaTable, columns: str) -> list[str]:
    """The table's columns that `columns` does not have any more."""
    declared = _types(columns)
    return [field.name for field in table.schema().fields if field.name not in declared]


def columns_lost(before: DeltaTable, after: DeltaTable) -> Iterator[str]:
    """The columns of `before` that `after` lacks or has with another type, as clauses."""
    new = {field.name: field.type for field in after.schema().fields}
    for field in before.schema().fields:
        if field.name not in new:
            yield f"it has no column {field.name}"
        elif new[field.name] != field.type:
            yield f"{field.name} has another type"


def refuse_other_columns(folder: str, columns: str) -> None:
    """Raise UsageError unless the table has exactly these columns, as a merge needs."""
    if names := column_differences(
        DeltaTable(folder, storage_options=delta_options(folder)), columns
    ):
        raise UsageError(
            f"{folder} does not have the declared columns: {', '.join(names)}. Nothing can be"
            " merged into it.",
            unchanged=NOTHING_COMMITTED,
            next_step=(
                "Rebuild with write_mode overwrite: one day adds columns, and undeclared columns"
                " go with the last day that was built with them."
            ),
        )


def merged_schema(
    table: DeltaTable, columns: str, folder: str, kept: AbstractSet[date], days: AbstractSet[date]
) -> Schema:
    """The table's columns, followed by those that only `columns` has.

    The commit is of `days`, and the table keeps the files of the days `kept`. Raises UsageError if
    a column has another type. The library does not refuse that: it would use the columns of an
    overwrite for the whole table.
    """
    stored = fields_of(table.schema())
    declared = nullable(json.loads(columns)["fields"])
    types = {field["name"]: field["type"] for field in stored}
    spelled = {name.lower(): name for name in types}
    new = [field for field in declared if field["name"] not in types]
    respelled = [field["name"] for field in new if field["name"].lower() in spelled]
    if respelled:
        raise UsageError(
            f"{folder} has {', '.join(spelled[name.lower()] for name in respelled)}, now spelled"
            f" {', '.join(respelled)}.",
            unchanged=NOTHING_COMMITTED,
            next_step=(
                "Declare the columns as they were: Delta does not tell upper and lower case apart."
            ),
        )
    changed = [
        f"{field['name']} is {type_words(types[field['name']])}, now {type_words(field['type'])}"
        for field in declared
        if field["name"] in types and nullable(types[field["name"]]) != field["type"]
    ]
    if changed:
        name = "/".join(folder.rsplit("/", 2)[1:])
        first = min(kept | days)
        last = max(kept | days)
        number = (last - first).days + 1
        raise UsageError(
            f"Columns of {folder} have another type: {'; '.join(changed)}. A type changes only in a"
            f" commit of all days of the table. This one does not replace {ranges(kept)}.",
            unchanged=NOTHING_COMMITTED,
            next_step=(
                "Rebuild all days in one run: `backfill run --partitions"
                f" {first}..{last} --target {name} --force --canary 0 --days-per-run {number}"
                f" --yes`, with BACKFILL_DAYS_PER_RUN at {number} or more. For days outside the"
                f" table's calendar, see `backfill status --target {name}`. Or declare the types as"
                " they were, or give the columns other names."
            ),
        )
    if not new:
        return table.schema()
    return Schema.from_json(json.dumps({"type": "struct", "fields": stored + new}))


def fields_of(schema: Schema) -> list[dict[str, Any]]:
    """The columns of a schema, as in its JSON."""
    return list(json.loads(schema.to_json())["fields"])


def column_types(schema: Schema, without: str = "") -> dict[str, Any]:
    """Delta's type of each column of a schema, without one column."""
    return {field["name"]: field["type"] for field in fields_of(schema) if field["name"] != without}


def _types(schema: str) -> dict[str, Any]:
    """The type of each column of a schema in JSON, with nulls allowed."""
    return {field["name"]: nullable(field["type"]) for field in json.loads(schema)["fields"]}


def nullable(kind: Any) -> Any:
    """The same type with nulls allowed everywhere in it, and without comments."""
    if isinstance(kind, list):
        return [nullable(part) for part in kind]
    if not isinstance(kind, dict):
        return kind
    allowed = {
        name: True for name in ("nullable", "containsNull", "valueContainsNull") if name in kind
    }
    return (
        {name: nullable(value) for name, value in kind.items()}
        | allowed
        | ({"metadata": {}} if "metadata" in kind else {})
    )


def type_words(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
