"""The columns of a table: columns that a write may add, and changes that are refused."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from typing import Any, NamedTuple

from deltalake import DeltaTable, Schema

from backfill_assets.calendar import ranges
from backfill_assets.errors import NOTHING_COMMITTED, UsageError
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.storage import lake_and_table

# SQL names of types, by the names in a Delta schema.
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
DECIMAL = re.compile(r"\b(?:DECIMAL|DEC|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)


class ColumnChanges(NamedTuple):
    """Changes from earlier columns: new, gone, retyped or respelled columns.

    `retyped` has both types as text, `respelled` the earlier name.
    """

    new: Sequence[str]
    gone: Sequence[str]
    retyped: Mapping[str, str]
    respelled: Mapping[str, str]

    def __bool__(self) -> bool:
        return any(self)

    @property
    def names(self) -> list[str]:
        return sorted({*self.new, *self.gone, *self.retyped, *self.respelled})

    @property
    def types(self) -> str:
        """The changed types, as clauses."""
        return "; ".join(f"{name} is {types}" for name, types in self.retyped.items())


def column_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> ColumnChanges:
    """Changes of columns by name and type. Delta does not tell upper and lower case apart."""
    spelled = {name.lower(): name for name in before}
    now = {name.lower() for name in after}
    return ColumnChanges(
        [name for name in after if name.lower() not in spelled],
        [name for name in before if name.lower() not in now],
        {
            name: _retyped(kind, after[name])
            for name, kind in before.items()
            if after.get(name, kind) != kind
        },
        {name: old for name in after if (old := spelled.get(name.lower(), name)) != name},
    )


def _retyped(before: Any, after: Any) -> str:
    old = type_words(before)
    new = type_words(after)
    return f"{old}, now {new}" if old != new else f"another {old}"


def declared_changes(stored: Schema, declared: Mapping[str, str]) -> ColumnChanges:
    """The differences between declared columns and the columns of a table.

    `declared` has SQL types by name. Nested types are compared only by kind: struct, array, map.
    """
    kinds = {name: type_words(kind) for name, kind in column_types(stored).items()}
    return column_changes(kinds, {name: delta_type(kind) for name, kind in declared.items()})


def delta_type(kind: str) -> str:
    """Delta's name of an SQL type in upper case, such as BIGINT or `DECIMAL(9, 2)`.

    A nested type gives its kind: struct, array, map.
    """
    if decimal := DECIMAL.match(kind):
        return f"decimal({decimal[1]},{decimal[2] or 0})"
    word = re.split(r"\W", kind, maxsplit=1)[0]
    return DELTA_TYPES.get(word, word.lower())


def delta_schema(columns: str) -> Schema:
    """The columns of a DataFrame (`rows.schema.json()`) as a Delta schema. All may be null."""
    return Schema.from_json(json.dumps(nullable(json.loads(columns))))


def schema_changes(before: Schema, after: Schema) -> ColumnChanges:
    """The changes of a schema's columns from the earlier schema."""
    return column_changes(column_types(before), column_types(after))


def changes_by(table: DeltaTable, columns: str) -> ColumnChanges:
    """The differences between the columns of a DataFrame and of a table."""
    return schema_changes(table.schema(), delta_schema(columns))


def with_new_columns(schema: Schema, other: Schema, names: Collection[str]) -> Schema:
    """The columns of `schema`, followed by those of `other` with these names."""
    return Schema([*schema.fields, *(field for field in other.fields if field.name in names)])


def columns_lost(before: DeltaTable, after: DeltaTable) -> Iterator[str]:
    """The columns of `before` that `after` lacks or has with another type, as clauses."""
    changes = schema_changes(before.schema(), after.schema())
    for name in (*changes.gone, *changes.respelled.values()):
        yield f"it has no column {name}"
    for name, types in changes.retyped.items():
        yield f"{name} has another type: {types}"


def refuse_other_columns(folder: str, columns: str) -> None:
    """Raise UsageError unless the table has exactly these columns, as a merge needs."""
    table = open_table(folder)
    if table and (changes := changes_by(table, columns)):
        raise UsageError(
            f"{folder} does not have the declared columns: {', '.join(changes.names)}. Nothing"
            " can be merged into it.",
            unchanged=NOTHING_COMMITTED,
            next_step=(
                "Rebuild with write_mode overwrite: one day adds columns, and undeclared columns"
                " go with the last day that was built with them."
            ),
        )


def merged_schema(
    table: DeltaTable,
    columns: str,
    folder: str,
    kept_days: AbstractSet[date],
    days: AbstractSet[date],
) -> Schema:
    """The table's columns, followed by those that only `columns` has.

    The commit replaces `days`, and the table keeps the files of `kept_days`. Raises UsageError
    if a column has another type or spelling. The library does not refuse another type: it would use
    the columns of an overwrite for the whole table.
    """
    changes = changes_by(table, columns)
    if changes.respelled:
        raise UsageError(
            f"{folder} has {', '.join(changes.respelled.values())}, now spelled"
            f" {', '.join(changes.respelled)}.",
            unchanged=NOTHING_COMMITTED,
            next_step=(
                "Declare the columns as they were: Delta does not tell upper and lower case apart."
            ),
        )
    if changes.retyped:
        _, name = lake_and_table(folder)
        first = min(kept_days | days)
        last = max(kept_days | days)
        number = (last - first).days + 1
        raise UsageError(
            f"Columns of {folder} have another type: {changes.types}. A type changes only in a"
            f" commit of all days of the table. This one does not replace {ranges(kept_days)}.",
            unchanged=NOTHING_COMMITTED,
            next_step=(
                "Rebuild all days in one run: `backfill run --partitions"
                f" {first}..{last} --target {name} --force --canary 0 --days-per-run {number}"
                f" --yes`, with BACKFILL_DAYS_PER_RUN at {number} or more. For days outside the"
                f" table's calendar, see `backfill status --target {name}`. Or declare the types as"
                " they were, or give the columns other names."
            ),
        )
    return with_new_columns(table.schema(), delta_schema(columns), changes.new)


def fields_of(schema: Schema) -> list[dict[str, Any]]:
    """The columns of a schema, as in its JSON."""
    return list(json.loads(schema.to_json())["fields"])


def column_types(schema: Schema, without: str = "") -> dict[str, Any]:
    """Delta's type of each column of a schema, with nulls allowed, except one column."""
    fields = fields_of(schema)
    return {field["name"]: nullable(field["type"]) for field in fields if field["name"] != without}


def nullable(kind: Any) -> Any:
    """The same type with nulls allowed everywhere in it, and without comments."""
    if isinstance(kind, list):
        return [nullable(part) for part in kind]
    if not isinstance(kind, dict):
        return kind
    fixed = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
    return {name: fixed.get(name, nullable(value)) for name, value in kind.items()}


def type_words(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
