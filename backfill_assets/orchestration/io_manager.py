"""The I/O manager of our tables: an ordinary `@asset` gets their rows as its argument.

It only reads. The step of a table commits its rows, and its output never comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from dagster import InputContext, IOManager, IOManagerDefinition, OutputContext

from backfill_assets.calendar import as_day, days_as_typed
from backfill_assets.dagster_client.names import OPTIONS, SPARK
from backfill_assets.errors import UsageError, did_you_mean
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import ReleasedTable, live_table
from backfill_assets.lake.releases import Releases
from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyspark.sql import SparkSession

_NOTHING_READ = "Nothing was read."
# The keys of an input's metadata. Dagster's own I/O managers have the first two as well.
COLUMNS = "columns"
ALLOW_MISSING = "allow_missing_partitions"
RELEASE = "release"


def io_manager_of(workspace: Workspace) -> IOManagerDefinition:
    """The I/O manager of a workspace's tables, with the Spark session and options of the run."""
    return IOManagerDefinition(
        lambda init: TableRows(
            workspace,
            lambda: getattr(init.resources, SPARK).session(
                getattr(init.resources, OPTIONS).spark_conf
            ),
        ),
        required_resource_keys={SPARK, OPTIONS},
        description="Gives the rows of tables to other assets. It writes nothing.",
    )


class TableRows(IOManager):
    """The rows of a table's partitions, as the annotation of the argument says.

    They are the rows of live, with the days that the same run has built, or of a release.
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
        """Return the rows of the input's partitions.

        Raises Failure if days are not built, or for an annotation, a column or a release that does
        not exist.
        """
        with failing_without_retry():
            return self._rows(context)

    def _rows(self, context: InputContext) -> Any:
        metadata = context.definition_metadata
        name = context.asset_key.to_user_string()
        table = self._workspace.only_table(name)
        kind = _kind_of(context.dagster_type.typing_type)
        rows = self._released(name, metadata.get(RELEASE))
        days = None
        if context.has_asset_partitions:
            calendar = table.calendar_of(self._workspace.calendar)
            days = calendar.clip(map(as_day, context.asset_partition_keys))
            if not metadata.get(ALLOW_MISSING):
                _refuse_missing(name, rows.missing(days))
        schema = rows.dataset([]).schema
        columns = metadata.get(COLUMNS) or schema.names
        for column in columns:
            if column not in schema.names:
                raise UsageError(
                    f"{name} has no column {column}.{did_you_mean(column, schema.names)}",
                    unchanged=_NOTHING_READ,
                    next_step=f"Correct `{COLUMNS}` in the metadata of the input.",
                )
        context.log.info(f"{name} is read at version {rows.version.version}.")
        if kind == _SPARK:
            frame = rows.frame(self._session(), days)
            return frame.select(*(f"`{column}`" for column in columns))
        dataset = rows.dataset(days)
        return KINDS[kind](dataset.replace_schema(_with_columns(dataset, columns)))

    def _released(self, name: str, release: int | str | None) -> ReleasedTable:
        """The table in live, or in the release with this number or of this channel."""
        root = self._workspace.lake.root
        if release is None:
            return live_table(root, name)
        opened = (
            Releases(root).readable(release)
            if isinstance(release, int)
            else open_channel(root, release)
        )
        return ReleasedTable(root, opened, name)


def _refuse_missing(name: str, missing: Sequence[date]) -> None:
    if missing:
        typed = days_as_typed(missing)
        raise UsageError(
            f"{name} is not built for {typed}.",
            unchanged=_NOTHING_READ,
            next_step=(
                f"Build these days: `backfill run --target {name} --partitions {typed}`. Or read"
                f" the others: AssetIn(metadata={{'{ALLOW_MISSING}': True}})."
            ),
        )


def _with_columns(rows: ds.Dataset, columns: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.schema([rows.schema.field(column) for column in columns])


def _kind_of(annotation: Any) -> str:
    """The kind of rows that an annotation names. Without an annotation, pandas."""
    if annotation is Any:
        return "pandas.DataFrame"
    package = str(getattr(annotation, "__module__", "")).partition(".")[0]
    kind = f"{package}.{getattr(annotation, '__name__', annotation)}"
    if kind in KINDS or kind == _SPARK:
        return kind
    raise UsageError(
        f"Rows cannot be given as {kind}.",
        unchanged=_NOTHING_READ,
        next_step=f"Annotate the argument as one of {', '.join([*KINDS, _SPARK])}.",
    )


def _pandas(rows: ds.Dataset) -> Any:
    """A frame whose types do not depend on nulls: integers stay integers."""
    import pandas as pd
    import pyarrow as pa

    nullable = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    return rows.to_table().to_pandas(types_mapper=nullable.get)


def _polars(rows: ds.Dataset) -> Any:
    import polars

    return polars.from_arrow(rows.to_table())


def _lazy_polars(rows: ds.Dataset) -> Any:
    import polars

    return polars.scan_pyarrow_dataset(rows)


_SPARK = "pyspark.DataFrame"
# The kinds without Spark. The last three do not load the rows at once.
KINDS: Mapping[str, Callable[[Any], Any]] = {
    "pandas.DataFrame": _pandas,
    "polars.DataFrame": _polars,
    "pyarrow.Table": lambda rows: rows.to_table(),
    "polars.LazyFrame": _lazy_polars,
    "pyarrow.RecordBatchReader": lambda rows: rows.scanner().to_reader(),
    "pyarrow.Dataset": lambda rows: rows,
}
