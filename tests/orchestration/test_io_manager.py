"""Rows of tables as arguments of ordinary assets, compared with what DuckDB reads in the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from dagster import (
    AssetIn,
    AssetKey,
    BackfillPolicy,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    MultiPartitionsDefinition,
    StaticPartitionsDefinition,
    TimeWindowPartitionMapping,
    WeeklyPartitionsDefinition,
    asset,
    in_process_executor,
)
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.dagster_client.names import IO_MANAGER
from backfill_assets.dagster_client.tags import DAY, FIRST_DAY, LAST_DAY
from backfill_assets.errors import UsageError
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.io_manager import _kind_of
from backfill_assets.tables.declaration import SliceDays, table
from backfill_assets.workspace import Workspace
from tests.worlds.code_location import sharing
from tests.worlds.deliveries import day, days
from tests.worlds.tables import workspace_of

CALENDAR = Calendar(day(0), day(9))
SALES = "mart/sales"
OURS = AssetKey(["mart", "sales"])
DAILY = DailyPartitionsDefinition(str(CALENDAR.first), end_date=str(day(10)))
COLUMNS = (
    "day DATE, id BIGINT, large BIGINT, amount DECIMAL(12, 2), at TIMESTAMP, due DATE, paid"
    " BOOLEAN, customer STRING, ratio DOUBLE, tags ARRAY<STRING>"
)


@table(
    SALES,
    partition_by="day",
    key=["day", "id"],
    columns=COLUMNS,
    reads={"days": SliceDays()},
    mask=["customer"],
)
def sales(days: DataFrame) -> DataFrame:
    return days.selectExpr(
        "day",
        "explode(sequence(0L, 2L)) AS id",
        # No double has this value.
        "IF(dayofmonth(day) % 2 = 0, NULL, 9007199254740993L) AS large",
        "CAST(dayofmonth(day) + 0.05 AS DECIMAL(12, 2)) AS amount",
        "CAST(day AS TIMESTAMP) + INTERVAL '1:02:03.123456' HOUR TO SECOND AS at",
        "IF(dayofmonth(day) % 3 = 0, NULL, date_add(day, 30)) AS due",
        "IF(dayofmonth(day) % 5 = 0, NULL, true) AS paid",
        "concat('customer ', day) AS customer",
        "dayofmonth(day) / 4 AS ratio",
        "array('a', NULL) AS tags",
    )


@dataclass
class Project:
    """Our table and the ordinary assets of a test, in one code location. `got` is what each of the
    assets got, by its partition; "" without partitions.
    """

    workspace: Workspace
    session: SparkSession
    instance: DagsterInstance
    assets: list[Any] = field(default_factory=list)
    got: dict[str, Any] = field(default_factory=dict)

    def reads(
        self,
        annotation: Any,
        convert: Callable[[Any], Any] = lambda rows: rows,
        metadata: Mapping[str, Any] | None = None,
        mapping: Any = None,
        **given: Any,
    ) -> Project:
        """Add the asset `report`, which gets our table as `annotation` and keeps it converted."""

        def report(context, rows) -> None:
            key = context.partition_key_range.start if context.has_partition_key_range else ""
            key = context.partition_key if context.has_partition_key else key
            self.got[key] = convert(rows)

        if annotation is not None:
            report.__annotations__["rows"] = annotation
        report.__annotations__["return"] = None
        read = AssetIn(OURS, metadata=metadata, partition_mapping=mapping)
        self.assets = [asset(ins={"rows": read}, **given)(report)]
        return self

    def run(self, *days: date, keys: tuple[str, ...] = ("report",), partition: str = "") -> Any:
        ours = definitions_of(self.workspace, sharing(self.session, []))
        theirs = Definitions(assets=self.assets, executor=in_process_executor)
        defs = Definitions.merge(ours, theirs)
        selected = frozenset(AssetKey(key.split("/")) for key in keys)
        job = defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection=selected)
        tags = {DAY: partition} if partition else {}
        if len(days) == 1:
            tags = {DAY: str(days[0])}
        elif days:
            tags = {FIRST_DAY: str(days[0]), LAST_DAY: str(days[-1])}
        run = self.instance.create_run_for_job(job, tags=tags, asset_selection=selected)
        return execute_run(InMemoryJob(job), run, self.instance, raise_on_error=False)

    def message(self, *days: date, **given: Any) -> str:
        """The message of the failed step."""
        result = self.run(*days, **given)
        assert not result.success
        (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
        return str(event.event_specific_data.user_failure_data.description)

    @property
    def folder(self) -> Path:
        return Path(self.workspace.lake.path(SALES))

    def in_files(self, *days: date, columns: str = "*") -> list[tuple[Any, ...]]:
        """The rows of the files of these days, as DuckDB reads them."""
        files = DeltaTable(self.folder).file_uris([("day", "in", [str(day) for day in days])])
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            found = database.sql(
                "SELECT day::DATE AS day, * EXCLUDE (day) FROM"
                f" read_parquet({files!r}, hive_partitioning = true)"
            )
            return sorted(found.select(columns).fetchall(), key=repr)


@pytest.fixture(scope="module")
def built(tmp_path_factory, spark) -> Project:
    """Eight of ten days are built."""
    root = tmp_path_factory.mktemp("io")
    with DagsterInstance.ephemeral() as instance:
        made = Project(workspace_of([sales], CALENDAR, str(root / "lake")), spark, instance)
        assert made.run(*days(*range(8)), keys=(SALES,)).success
    return made


@pytest.fixture
def project(built) -> Iterator[Project]:
    """The same lake, with other assets."""
    with DagsterInstance.ephemeral() as instance:
        yield Project(built.workspace, built.session, instance)


def as_tuples(rows: Any) -> list[tuple[Any, ...]]:
    """Rows of any kind as DuckDB gives them."""
    if isinstance(rows, DataFrame):
        values = [tuple(row) for row in rows.collect()]
        # Spark gives a timestamp in the zone of this process, without naming it.
        return sorted((tuple(map(_in_utc, row)) for row in values), key=repr)
    if isinstance(rows, pd.DataFrame):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    elif isinstance(rows, pl.LazyFrame):
        rows = rows.collect()
    if isinstance(rows, pl.DataFrame):
        return sorted((tuple(map(_in_utc, row)) for row in rows.rows()), key=repr)
    if isinstance(rows, pa.RecordBatchReader):
        rows = rows.read_all()
    if isinstance(rows, ds.Dataset):
        rows = rows.to_table()
    return sorted((tuple(map(_in_utc, row.values())) for row in rows.to_pylist()), key=repr)


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def comparable(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(map(_in_utc, row)) for row in rows), key=repr)


ALL_KINDS = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "lazy polars": pl.LazyFrame,
    "pyarrow": pa.Table,
    "a dataset": ds.Dataset,
    "batches": pa.RecordBatchReader,
    "Spark": DataFrame,
}


@pytest.mark.parametrize("kind", ALL_KINDS.values(), ids=ALL_KINDS)
def test_every_kind_has_the_rows_and_types_of_the_files(project, kind):
    wanted = days(2, 3, 4)
    project.reads(
        kind, as_tuples, partitions_def=DAILY, backfill_policy=BackfillPolicy.single_run()
    )
    assert project.run(*wanted).success
    (rows,) = project.got.values()
    assert rows == comparable(project.in_files(*wanted))
    (first, *_) = rows
    assert [type(value) for value in first] == [
        date, int, int, Decimal, datetime, date, bool, str, float, list
    ]  # fmt: skip
    assert {row[7] for row in rows} == {f"customer {day}" for day in wanted}  # masked in messages


def test_a_single_day_is_a_single_partition(project):
    project.reads(pa.Table, as_tuples, partitions_def=DAILY)
    assert project.run(day(3)).success
    assert project.got == {str(day(3)): comparable(project.in_files(day(3)))}


def test_pandas_columns_have_the_same_types_with_and_without_nulls(project):
    project.reads(
        pd.DataFrame, lambda rows: rows.dtypes.astype(str).to_dict(), partitions_def=DAILY
    )
    for at in days(0, 1, 2, 3, 4):
        assert project.run(at).success
    first, *others = project.got.values()
    assert others == [first] * 4
    assert {name: first[name] for name in ("id", "large", "paid", "at")} == {
        "id": "Int64",
        "large": "Int64",
        "paid": "boolean",
        "at": "datetime64[us, UTC]",
    }


def test_without_an_annotation_rows_are_a_pandas_frame(project):
    project.reads(None, type, partitions_def=DAILY)
    assert project.run(day(0)).success
    assert project.got == {str(day(0)): pd.DataFrame}


def test_a_union_of_annotations_is_refused():
    with pytest.raises(UsageError):
        _kind_of(pd.DataFrame | None)


def test_an_annotation_of_another_kind_is_refused(project, golden):
    project.reads(dict, partitions_def=DAILY)
    golden(project.message(day(0)))


def test_only_the_named_columns_are_read(project):
    project.reads(pl.DataFrame, as_tuples, {"columns": ["id", "amount"]}, partitions_def=DAILY)
    assert project.run(day(1)).success
    expected = comparable(project.in_files(day(1), columns="id, amount"))
    assert project.got == {str(day(1)): expected}
    project.reads(DataFrame, as_tuples, {"columns": ["id", "amount"]}, partitions_def=DAILY)
    assert project.run(day(1)).success
    assert project.got == {str(day(1)): expected}
    project.reads(pa.Table, as_tuples, {"columns": ["id", "amuont"]}, partitions_def=DAILY)
    assert not project.run(day(1)).success


def test_days_that_are_not_built_are_refused_or_left_out(project, golden):
    single = {"partitions_def": DAILY, "backfill_policy": BackfillPolicy.single_run()}
    project.reads(pa.Table, as_tuples, **single)
    golden(project.message(*days(*range(6, 10))), "in a range")
    project.reads(pa.Table, as_tuples)
    golden(project.message(), "of all days")
    allowed = {"allow_missing_partitions": True}
    project.reads(pa.Table, as_tuples, allowed, **single)
    assert project.run(*days(*range(6, 10))).success
    assert project.got == {str(day(6)): comparable(project.in_files(day(6), day(7)))}
    project.got.clear()
    project.reads(DataFrame, as_tuples, allowed, **single)
    assert project.run(*days(8, 9)).success
    assert project.got == {str(day(8)): []}


def test_an_asset_without_partitions_reads_all_days(project):
    project.reads(pd.DataFrame, len, {"allow_missing_partitions": True})
    assert project.run().success
    assert project.got == {"": len(project.in_files(*days(*range(8))))}


def test_a_week_reads_its_days(project):
    weekly = WeeklyPartitionsDefinition(str(day(0)), end_date=str(day(15)), day_offset=4)
    project.reads(pa.Table, as_tuples, mapping=TimeWindowPartitionMapping(), partitions_def=weekly)
    assert day(0).isoweekday() == 4
    assert project.run(partition=str(day(0))).success
    assert project.got == {str(day(0)): comparable(project.in_files(*days(*range(7))))}


def test_an_asset_of_two_dimensions_reads_the_day_of_its_partition(project):
    regions = StaticPartitionsDefinition(["north", "south"])
    both = MultiPartitionsDefinition({"day": DAILY, "region": regions})
    project.reads(pa.Table, as_tuples, partitions_def=both)
    assert project.run(partition=f"{day(2)}|south").success
    (rows,) = project.got.values()
    assert rows == comparable(project.in_files(day(2)))


def test_a_run_reads_what_it_has_just_built(tmp_path, spark):
    with DagsterInstance.ephemeral() as instance:
        project = Project(workspace_of([sales], CALENDAR, str(tmp_path / "lake")), spark, instance)
        project.reads(pa.Table, as_tuples, partitions_def=DAILY)
        assert project.run(day(0), keys=(SALES, "report")).success
        assert project.got == {str(day(0)): comparable(project.in_files(day(0)))}
        assert len(project.got[str(day(0))]) == 3


def test_the_io_manager_writes_nothing(project, golden):
    @asset(key=["own", "report"], io_manager_key=IO_MANAGER)
    def report() -> int:
        return 1

    project.assets = [report]
    golden(project.message(keys=("own/report",)))
