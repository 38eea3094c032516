"""The column that a table is partitioned by: Delta keeps the one that the table was made with."""

from deltalake import DeltaTable

from backfill_assets.errors import UsageError


def other_partitioning(table: DeltaTable, column: str) -> str:
    """In words, if `table` is not partitioned by `column` alone; else ""."""
    columns = table.metadata().partition_columns
    by = ", ".join(columns) or "no column"
    return "" if columns == [column] else f"is partitioned by {by}, and declared with partition_by={column!r}"


def refuse_other_partitioning(folder: str, table: DeltaTable | None, column: str) -> None:
    """UsageError if the table at `folder` is not partitioned by `column` alone: no day of it could be read or written."""
    if table and (other := other_partitioning(table, column)):
        name = "/".join(folder.rsplit("/", 2)[1:])
        raise UsageError(
            f"{folder} {other}. Nothing was committed. Delta keeps the column that a table was made with. Move that folder "
            f"away, or remove it, and rebuild all days: `backfill run --partitions FIRST..LAST --target {name} --yes`. Or "
            "declare partition_by as it was."
        )
