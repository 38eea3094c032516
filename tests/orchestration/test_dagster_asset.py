"""An ordinary asset as the source of a table: its materializations are deliveries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster import (
    AssetKey,
    DagsterInstance,
    DailyPartitionsDefinition,
    DataVersion,
    HourlyPartitionsDefinition,
    MaterializeResult,
    asset,
)
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.instance import InstanceRef
from dagster._core.loader import LoadingContextForTest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from backfill_assets import DagsterAsset
from backfill_assets.calendar import Calendar
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.orchestration.local import recorded
from backfill_assets.plan.neighbours import StatusReader
from backfill_assets.plan.status import State
from backfill_assets.tables.declaration import settings_of, table
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day, days
from tests.worlds.ordinary import Together
from tests.worlds.tables import workspace_of

CALENDAR = Calendar(day(0), day(3))
DAILY = DailyPartitionsDefinition(str(day(0)), end_date=str(day(4)))
UPSTREAM = "my/orders"
RAW = "raw/orders"
# Where the upstream asset of the present test writes.
FOLDER = Path()


def file_of(day: date) -> Path:
    return FOLDER / f"{day}.parquet"


def path_of(day: date) -> Path:
    return file_of(day)


def as_text(day: date) -> str:
    return str(file_of(day))


def as_pandas(day: date) -> pd.DataFrame:
    return pd.read_parquet(file_of(day))


def as_polars(day: date) -> pl.DataFrame:
    return pl.read_parquet(file_of(day))


def as_arrow(day: date) -> pa.Table:
    return pq.read_table(file_of(day))


def as_spark(day: date) -> DataFrame:
    session = SparkSession.active()
    return session.createDataFrame(pq.read_table(file_of(day)))


def orders(rows: DataFrame) -> DataFrame:
    return rows.select("arrival_day", "id", "cents")


COLUMNS = "arrival_day DATE, id BIGINT, cents BIGINT"


def reading(read: Any, name: str = UPSTREAM) -> Any:
    declared = table(
        RAW,
        partition_by="arrival_day",
        key=["id"],
        columns=COLUMNS,
        reads={"rows": DagsterAsset(name, read=read)},
        version="1",
    )
    return declared(orders)


@dataclass
class Shop(Together):
    """An asset that writes a file of each day, and the table that reads it."""

    cents: dict[date, list[int]] = field(default_factory=dict)
    versions: dict[date, str] = field(default_factory=dict)

    def upstream(self, partitions: Any = DAILY, key: str = UPSTREAM) -> Shop:
        @asset(key=key.split("/"), partitions_def=partitions)
        def my_orders(context) -> MaterializeResult:
            if not context.has_partition_key:
                return MaterializeResult()
            at = date.fromisoformat(context.partition_key[:10])
            cents = self.cents[at]
            rows = {"id": pa.array(range(len(cents)), pa.int64()), "cents": pa.array(cents)}
            pq.write_table(pa.table(rows), file_of(at))
            version = self.versions.get(at)
            return MaterializeResult(data_version=DataVersion(version) if version else None)

        self.assets = [my_orders]
        return self

    def in_files(self, *days: date) -> list[tuple[Any, ...]]:
        """The rows of the upstream's files, as DuckDB reads them."""
        found: list[tuple[Any, ...]] = []
        for at in days:
            query = f"SELECT DATE '{at}', id, cents FROM read_parquet('{file_of(at)}')"
            found += duckdb.execute(query).fetchall()
        return sorted(found)

    def rows(self) -> list[tuple[Any, ...]]:
        folder = self.workspace.lake.path(RAW)
        names = ("arrival_day", "id", "cents")
        rows = DeltaTable(folder).to_pyarrow_table().to_pylist()
        return sorted(tuple(row[name] for name in names) for row in rows)

    def states(self, workspace: Workspace) -> dict[date, State]:
        partitions = [(RAW, at) for at in CALENDAR.days()]
        found = StatusReader(workspace).read(partitions)
        return {at: found[RAW, at].state for at in CALENDAR.days()}


@pytest.fixture
def shop(tmp_path, monkeypatch, spark) -> Iterator[Shop]:
    monkeypatch.setattr(f"{__name__}.FOLDER", tmp_path)
    workspace = workspace_of([reading(as_pandas)], CALENDAR, str(tmp_path / "lake"))
    cents = {at: [100 * n, 5, 7] for n, at in enumerate(CALENDAR.days())}
    with DagsterInstance.ephemeral() as instance:
        # The context of a webserver asks for the folder of the records. Nothing is read from it.
        instance._ref = InstanceRef.from_dir(str(tmp_path))
        yield Shop(workspace, spark, instance, cents=cents).upstream()


def test_the_graph_has_an_edge_from_the_asset_and_no_asset_in_its_place(shop):
    graph = shop.defs.resolve_asset_graph()
    assert graph.get(AssetKey(RAW.split("/"))).parent_keys == {AssetKey(UPSTREAM.split("/"))}
    keys = graph.get_all_asset_keys()
    assert not [key for key in keys if key.path[:2] == ["backfill", "sources"]]


@pytest.mark.parametrize("read", [path_of, as_text, as_polars, as_arrow, as_spark])
def test_rows_of_every_kind_are_read(shop, spark, read):
    for at, cents in shop.cents.items():
        pq.write_table(pa.table({"id": pa.array(range(len(cents))), "cents": cents}), file_of(at))
    area = shop.workspace.asking(lambda name, days: dict.fromkeys(days, "1")).area
    rows = DagsterAsset(UPSTREAM, read=read).read(area, spark, [day(0), day(1)])
    found = rows.select("arrival_day", "id", "cents").collect()
    assert sorted(map(tuple, found)) == shop.in_files(day(0), day(1))


def test_a_run_of_both_reads_what_the_asset_has_just_made(shop):
    assert shop.run(day(0), assets=[UPSTREAM]).success
    assert shop.run(day(1), assets=[UPSTREAM, RAW]).success
    assert shop.run(day(0), assets=[RAW]).success
    assert shop.rows() == shop.in_files(day(0), day(1))


def test_a_new_materialization_is_a_new_delivery(shop):
    for at in days(0, 1):
        assert shop.run(at, assets=[UPSTREAM]).success
    assert shop.run(*days(0, 1), assets=[RAW]).success
    with shop.webserver() as dagster:
        command = shop.asking(dagster)
        found = dict.fromkeys(days(0, 1), State.UP_TO_DATE)
        found |= dict.fromkeys(days(2, 3), State.MISSING)
        assert shop.states(command) == found
        shop.cents[day(1)] = [1, 2]
        assert shop.run(day(1), assets=[UPSTREAM]).success
        assert shop.states(command)[day(1)] == State.SOURCE_CHANGED
        assert shop.run(*days(0, 1), assets=[RAW]).success
        assert shop.states(command) == found
    assert shop.rows() == shop.in_files(*days(0, 1))


def test_the_same_rows_again_are_due_once_and_change_nothing_downstream(shop):
    def stale() -> list[str]:
        """Why Dagster calls the day unsynced."""
        graph = shop.defs.get_repository_def().asset_graph
        resolver = CachingStaleStatusResolver(
            shop.instance, graph, LoadingContextForTest(shop.instance)
        )
        causes = resolver.get_stale_causes(AssetKey(RAW.split("/")), str(day(0)))
        return [cause.reason for cause in causes]

    shop.versions[day(0)] = "first"
    assert shop.run(day(0), assets=[UPSTREAM, RAW]).success
    assert stale() == []
    with shop.webserver() as dagster:
        command = shop.asking(dagster)
        shop.versions[day(0)] = "second"
        assert shop.run(day(0), assets=[UPSTREAM]).success
        assert stale() == ["has a new dependency data version"]
        assert shop.states(command)[day(0)] == State.SOURCE_CHANGED
        assert shop.run(day(0), assets=[RAW]).success
        assert stale() == []
        assert shop.states(command)[day(0)] == State.UP_TO_DATE
    builds = shop.workspace.lake.ledger.builds({RAW: None}, ("outcome", "at"))
    in_order = sorted(builds, key=lambda build: build.at)
    assert [build.outcome for build in in_order] == ["accepted", "unchanged"]


def test_a_run_and_a_command_get_the_same_versions(shop):
    shop.versions[day(1)] = "first"
    for at in days(0, 1, 2):
        assert shop.run(at, assets=[UPSTREAM]).success
    asked = days(0, 1, 2, 3)
    with shop.webserver() as dagster:
        command = shop.asking(dagster).area.materialized(UPSTREAM, asked)
    assert command == recorded.materialized(shop.instance, UPSTREAM, asked)
    assert command[day(1)].startswith("first@")
    assert {*command} == {*days(0, 1, 2)}


def test_a_materialization_during_the_run_is_read(shop, monkeypatch):
    assert shop.run(day(0), assets=[UPSTREAM]).success
    calls = []

    def as_pandas_with_another(at: date) -> pd.DataFrame:
        rows = as_pandas(at)
        calls.append(at)
        if len(calls) == 1:
            shop.cents[at] = [42]
            assert shop.run(at, assets=[UPSTREAM]).success
        return rows

    source = DagsterAsset(UPSTREAM, read=as_pandas_with_another)
    changed = replace(shop.workspace.tables[0], reads={"rows": source})
    shop.workspace = replace(shop.workspace, tables=(changed,))
    assert shop.run(day(0), assets=[RAW]).success
    assert len(calls) == 2
    assert shop.rows() == shop.in_files(day(0)) == [(day(0), 0, 42)]


def delivery(shop: Shop, dagster: Dagster) -> Any:
    """The delivery of the first day, or why there is none."""
    area = shop.asking(dagster).area
    try:
        return DagsterAsset(UPSTREAM, read=as_pandas).delivered(area, [day(0)])[day(0)]
    except SourceError as error:
        return error


def test_a_day_without_a_materialization_is_not_delivered(shop, golden):
    with shop.webserver() as dagster:
        found = delivery(shop, dagster)
    assert type(found) is NotDelivered
    golden(found)
    result = shop.run(day(0), assets=[RAW])
    assert not result.success


def test_an_asset_that_no_code_location_has_keeps_the_built_days(shop, golden):
    built = {day(0): State.UP_TO_DATE} | dict.fromkeys(days(1, 2, 3), State.MISSING)
    assert shop.run(day(0), assets=[UPSTREAM, RAW]).success
    assert shop.states(shop.asking(Dagster(""))) == built, "without a webserver"
    shop.upstream(key="my/renamed")
    with shop.webserver() as dagster:
        found = delivery(shop, dagster)
        states = shop.states(shop.asking(dagster))
    assert type(found) is NotDelivered
    golden(found)
    assert states == built
    assert shop.run(day(0), assets=[RAW]).success


@pytest.mark.parametrize(
    "partitions",
    [
        pytest.param(None, id="no partitions"),
        pytest.param(HourlyPartitionsDefinition(f"{day(0)}-00:00", f"{day(1)}-00:00"), id="hours"),
    ],
)
def test_an_asset_whose_partitions_are_not_days_delivers_nothing(shop, golden, partitions):
    shop.upstream(partitions)
    key = f"{day(0)}-00:00" if partitions else ""
    assert shop.run(assets=[UPSTREAM], partition=key).success
    with shop.webserver() as dagster:
        found = delivery(shop, dagster)
        states = shop.states(shop.asking(dagster))
    assert type(found) is NotDelivered
    golden(found)
    assert {*states.values()} == {State.MISSING}
    assert not shop.run(day(0), assets=[RAW]).success


def test_the_code_of_read_is_part_of_the_code_version():
    one, same, other = (DagsterAsset(UPSTREAM, read=r) for r in (as_pandas, as_pandas, as_arrow))
    assert settings_of(one) == settings_of(same) != settings_of(other)


@pytest.mark.parametrize(("name", "read"), [("", as_pandas), ("my//x", as_pandas), ("my/x", "x")])
def test_what_is_not_an_asset_is_refused_where_it_is_declared(golden, name, read):
    with golden.raises(ValueError):
        DagsterAsset(name, read=read)
