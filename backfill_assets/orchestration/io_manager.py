"""The I/O manager of our tables: an ordinary `@asset` gets their rows as its argument.

It only reads. The step of a table commits its rows, and its output never comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from dagster import InputContext, IOManager, IOManagerDefinition, OutputContext

from backfill_assets.calendar import as_day, days_as_typed
from backfill_assets.dagster_client.names import OPTIONS, SPARK
from backfill_assets.errors import UsageError, did_you_mean
from backfill_assets.lake.released import live_table
from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyspark.sql import SparkSession

_NOTHING_READ = "Nothing was read."
_SPARK = "pyspark.DataFrame"
# The metadata of an input that Dagster's own I/O managers have as well.
_COLUMNS = "columns"
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


class TableRows(IOManager):
    """The rows of a table's partitions in live, as the annotation of the argument says.

    Live has the days that the same run has built.
    """

    def __init__(self, workspace: Workspace, session: Callable[[], SparkSession]) -> None:
        self._workspace = workspace
        self._session = session

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Raise Failure: only the steps of tables write rows."""
        with failing_without_retry():
            raise UsageError(
                f"{context.asset_key.to_user_string()} cannot be written by the I/O manager of"
                " daily tables, which only reads them.",
                unchanged="Nothing was written.",
                next_step="Give the asset another `io_manager_key`, or declare it with `@table`.",
            )

    def load_input(self, context: InputContext) -> Any:
        """Return the rows of the input's partitions, or all rows of a table without partitions.

        Raises Failure if days are not built, or for an annotation or a column that does not exist.
        """
        with failing_without_retry():
            return self._rows(context)

    def _rows(self, context: InputContext) -> Any:
        kind = _kind_of(context.dagster_type.typing_type)
        name = context.asset_key.to_user_string()
        table = self._workspace.only_table(name)
        rows = live_table(self._workspace.lake.root, name)
        days = None
        if context.has_asset_partitions:
            calendar = table.calendar_of(self._workspace.calendar)
            days = calendar.clip(map(as_day, context.asset_partition_keys))
            missing = rows.missing(days)
            if missing and not context.definition_metadata.get(_ALLOW_MISSING):
                typed = days_as_typed(missing)
                raise UsageError(
                    f"{name} is not built for {typed}.",
                    unchanged=_NOTHING_READ,
                    next_step=(
                        f"Build these days: `backfill run --target {name} --partitions {typed}`. Or"
                        f" read the others: AssetIn(metadata={{'{_ALLOW_MISSING}': True}})."
                    ),
                )
        dataset = rows.dataset(days)
        columns = _columns_of(name, dataset.schema.names, context.definition_metadata)
        if kind == _SPARK:
            return rows.frame(self._session(), days).select(*(f"`{name}`" for name in columns))
        schema = pa.schema([dataset.schema.field(name) for name in columns])
        return _KINDS[kind](dataset.replace_schema(schema))


def _columns_of(table: str, names: Sequence[str], metadata: Mapping[str, Any]) -> Sequence[str]:
    """The columns to read: all `names`, or those in the input's metadata."""
    columns: Sequence[str] = metadata.get(_COLUMNS) or names
    for column in columns:
        if column not in names:
            raise UsageError(
                f"{table} has no column {column}.{did_you_mean(column, names)}",
                unchanged=_NOTHING_READ,
                next_step=f"Correct `{_COLUMNS}` in the metadata of the input.",
            )
    return columns


def _kind_of(annotation: Any) -> str:
    """The kind of rows that an annotation names. Without an annotation, pandas."""
    if annotation is Any:
        return "pandas.DataFrame"
    kind = f"{annotation.__module__.partition('.')[0]}.{annotation.__name__}"
    kinds = [*_KINDS, _SPARK]
    if kind not in kinds:
        raise UsageError(
            f"Rows cannot be given as {kind}.",
            unchanged=_NOTHING_READ,
            next_step=f"Annotate the argument as one of {', '.join(kinds)}.",
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
