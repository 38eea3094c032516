"""The I/O manager of our tables: an ordinary `@asset` gets their rows as its argument.

It only reads. The step of a table commits its rows, and its output never comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from dagster import InputContext, IOManager, IOManagerDefinition, OutputContext

from backfill_assets.calendar import as_day
from backfill_assets.dagster_client.names import OPTIONS, SPARK
from backfill_assets.errors import UsageError
from backfill_assets.lake.released import live_table
from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyspark.sql import SparkSession

_SPARK = "pyspark.DataFrame"
# Dagster's own I/O managers read this key and `columns` in an input's metadata too.
_ALLOW_MISSING = "allow_missing_partitions"


def io_manager_of(workspace: Workspace) -> IOManagerDefinition:
    """The I/O manager of a workspace's tables, with the Spark session and options of the run."""

    def create(context: Any) -> TableRows:
        spark = getattr(context.resources, SPARK)
        options = getattr(context.resources, OPTIONS)
        return TableRows(workspace, lambda: spark.session(options.spark_conf))

    return IOManagerDefinition(
        create,
        required_resource_keys={SPARK, OPTIONS},
        description="Gives the rows of tables to other assets. It writes nothing.",
    )


@dataclass
class TableRows(IOManager):
    """The rows of a table's partitions in live, as the annotation of the argument says.

    Live has the days that the same run has built. `session` opens the run's Spark session.
    """

    workspace: Workspace
    session: Callable[[], SparkSession]

    @failing_without_retry()
    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Raise Failure: only the steps of tables write rows."""
        raise UsageError(
            f"{context.asset_key.to_user_string()} cannot be written by the I/O manager of daily"
            " tables, which only reads them.",
            unchanged="Nothing was written.",
            next_step="Give the asset another `io_manager_key`, or declare it with `@table`.",
        )

    @failing_without_retry()
    def load_input(self, context: InputContext) -> Any:
        """Return the rows of the input's partitions, or all rows of a table without partitions.

        Raises Failure if days are not built, or for an annotation of another kind, and KeyError for
        a column that does not exist.
        """
        kind = _kind_of(context.dagster_type.typing_type)
        metadata = context.definition_metadata
        table = self.workspace.only_table(context.asset_key.to_user_string())
        rows = live_table(self.workspace.lake.root, table.name)
        days = None
        if context.has_asset_partitions:
            calendar = table.calendar_of(self.workspace.calendar)
            days = calendar.clip(map(as_day, context.asset_partition_keys))
            if not metadata.get(_ALLOW_MISSING):
                rows.refuse_missing(
                    days,
                    f"Build them: `backfill run --partitions DAYS --target {table.name}`. Or read"
                    f" the others: AssetIn(metadata={{'{_ALLOW_MISSING}': True}}).",
                )
        dataset = rows.dataset(days)
        columns = metadata.get("columns") or dataset.schema.names
        schema = pa.schema([dataset.schema.field(name) for name in columns])
        if kind == _SPARK:
            return rows.frame(self.session(), days).select(*(f"`{name}`" for name in columns))
        return _KINDS[kind](dataset.replace_schema(schema))


def _kind_of(annotation: Any) -> str:
    """The kind of rows that an annotation names. Without an annotation, pandas."""
    if annotation is Any:
        return "pandas.DataFrame"
    # A union, such as `pandas.DataFrame | None`, has no name.
    name = getattr(annotation, "__name__", annotation)
    kind = f"{annotation.__module__.partition('.')[0]}.{name}"
    if kind not in (*_KINDS, _SPARK):
        raise UsageError(
            f"Rows cannot be given as {kind}.",
            unchanged="Nothing was read.",
            next_step=(
                "Annotate the argument, for example as pandas.DataFrame. `backfill guide"
                " bring-your-own` lists the other types."
            ),
        )
    return kind


def _pandas(rows: ds.Dataset) -> Any:
    """A frame whose types do not depend on nulls: integers stay integers."""
    pandas = import_module("pandas")
    types = {
        getattr(pa, f"int{bits}")(): getattr(pandas, f"Int{bits}Dtype")()
        for bits in (8, 16, 32, 64)
    }
    types[pa.bool_()] = pandas.BooleanDtype()
    return rows.to_table().to_pandas(types_mapper=types.get)


# The kinds without Spark. The last three do not load all rows at once.
_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "pandas.DataFrame": _pandas,
    "polars.DataFrame": lambda rows: import_module("polars").from_arrow(rows.to_table()),
    "pyarrow.Table": lambda rows: rows.to_table(),
    "polars.LazyFrame": lambda rows: import_module("polars").scan_pyarrow_dataset(rows),
    "pyarrow.RecordBatchReader": lambda rows: rows.scanner().to_reader(),
    "pyarrow.Dataset": lambda rows: rows,
}
