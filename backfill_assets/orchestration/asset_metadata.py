"""What Dagster's catalog shows of a table: its columns, its place in the lake, its code."""

import inspect
from typing import Any

from dagster import (
    CodeReferencesMetadataValue,
    LocalFileCodeReference,
    MetadataValue,
    TableColumn,
    TableColumnConstraints,
    TableSchema,
)

from backfill_assets.dagster_client.loaded_table import URI
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.store import Lake
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table


def metadata_of(table: Table, lake: Lake | None) -> dict[str, Any]:
    """The metadata of a table's asset. `lake`: where the table is; None for a shadow's, which each plan has elsewhere."""
    place = {"dagster/table_name": table.name.replace("/", "."), URI: Paths(lake.root).uri(table.name)} if lake else {}
    return {
        "dagster/column_schema": schema_of(table),
        **place,
        "key": MetadataValue.text(", ".join(table.key) or "none: rows may be equal"),
        "partitioned by": table.partition_by,
        **code_reference(table),
    }


def schema_of(table: Table) -> TableSchema:
    """The declared columns with their types and descriptions.

    The day, and columns of which a rule refuses every null, are required; the column of a key of one is unique.
    """
    refusing = [rule for rule in table.rules if rule.name == "no_nulls" and rule.severity == "error"]
    required = {table.partition_by, *(name for rule in refusing for name in rule.columns)}
    return TableSchema(
        [
            TableColumn(
                name,
                type=kind.partition(" COMMENT ")[0],
                description=table.descriptions.get(name),
                constraints=TableColumnConstraints(nullable=name not in required, unique=list(table.key) == [name]),
            )
            for name, kind in types_of(table.columns).items()
        ]
    )


def code_reference(table: Table) -> dict[str, Any]:
    """Where the table's function stands; nothing where that is not known, as of a function made by another."""
    try:
        file, (_, line) = inspect.getsourcefile(table.compute), inspect.getsourcelines(table.compute)
    except (OSError, TypeError):
        return {}
    reference = LocalFileCodeReference(file_path=str(file), line_number=line, label=table.compute.__name__)
    return {"dagster/code_references": CodeReferencesMetadataValue(code_references=[reference])}
