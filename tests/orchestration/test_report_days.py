"""The job that reports days to Dagster, in this process: what Dagster shows of them afterwards."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date

import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    DagsterInstance,
)
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from backfill_assets.dagster_client.requests import REPORT
from backfill_assets.lake.ledger import Build
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.workspace import Workspace
from tests.worlds.code_location import executed
from tests.worlds.databases import INSTANCE
from tests.worlds.deliveries import day
from tests.worlds.recorded import build
from tests.worlds.tables import CALENDAR, A, B, workspace_of
from tests.worlds.webservers import ReportingWebserver

DAYS = [day(2), day(4)]


def accepted(name: str, at: date, fingerprint: str, minutes: int, **fields: object) -> Build:
    known = {"code_version": "1", "fingerprint": fingerprint, "rows": 3}
    return replace(build(0, minutes, **known | fields), table=name, day=at)


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    """Two days of a table and of its reader, published with a plan."""
    workspace = workspace_of([A, B], CALENDAR, str(tmp_path))
    workspace.lake.ledger.append(
        [
            each
            for n, at in enumerate(DAYS)
            for each in (
                accepted(A.name, at, f"a{n}", 0, act="publish", plan="abc"),
                accepted(B.name, at, f"b{n}", 1, inputs={A.name: {str(at): f"a{n}"}}),
            )
        ]
    )
    return workspace


@pytest.fixture
def instance(tmp_path) -> Iterator[DagsterInstance]:
    folder = tmp_path / "dagster"
    folder.mkdir()
    with DagsterInstance.local_temp(str(folder), {"instance_class": INSTANCE}) as made:
        yield made


def shown(instance: DagsterInstance, name: str) -> dict[str, AssetMaterialization]:
    """The last materialization of each day."""
    records = instance.fetch_materializations(
        AssetRecordsFilter(AssetKey(name.split("/"))), limit=100, ascending=True
    ).records
    events = [record.asset_materialization for record in records]
    return {event.partition: event for event in events if event and event.partition}


def stale(instance: DagsterInstance, workspace: Workspace, name: str) -> set[str]:
    """The days of a table that Dagster calls stale."""
    graph = definitions_of(workspace).resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    days = map(str, DAYS)
    key = AssetKey(name.split("/"))
    return {at for at in days if resolver.get_status(key, at) == StaleStatus.STALE}


def reported(workspace: Workspace, instance: DagsterInstance, **days: str) -> ReportingWebserver:
    webserver = ReportingWebserver()
    named = {f"raw/{name}": of_table for name, of_table in days.items()}
    result = executed(REPORT, workspace, webserver.dagster, instance=instance, days=named)
    assert result.success
    return webserver


BOTH = f"{DAYS[0]},{DAYS[1]}"


def test_days_are_shown_with_the_rows_figures_and_origin_that_the_ledger_has(
    workspace, instance, golden
):
    webserver = reported(workspace, instance, a=BOTH, b=str(DAYS[0]))
    of_a = shown(instance, A.name)
    assert set(of_a) == set(map(str, DAYS))
    event = of_a[str(DAYS[1])]
    assert event.tags
    assert (event.tags["dagster/data_version"], event.tags["dagster/code_version"]) == ("a1", "1")
    assert event.metadata["dagster/partition_row_count"].value == 3
    golden(event.description)
    assert set(shown(instance, B.name)) == {str(DAYS[0])}
    assert shown(instance, B.name)[str(DAYS[0])].description is None
    assert webserver.wiped == [f"shadow/{A.name}", f"shadow/{B.name}"]


def test_no_reported_day_is_stale_and_its_reader_is_stale_until_it_is_reported(workspace, instance):
    reported(workspace, instance, a=BOTH, b=BOTH)
    assert stale(instance, workspace, B.name) == set()
    workspace.lake.ledger.append([accepted(A.name, DAYS[0], "other", 5, act="publish", plan="d")])
    reported(workspace, instance, a=BOTH)
    assert stale(instance, workspace, B.name) == {str(DAYS[0])}
    reported(workspace, instance, b=BOTH)
    assert stale(instance, workspace, B.name) == set()


def test_a_day_that_was_never_built_is_not_reported(workspace, instance):
    reported(workspace, instance, a=f"{day(1)}..{DAYS[1]}")
    assert set(shown(instance, A.name)) == set(map(str, DAYS))


def test_without_a_webserver_days_are_reported_and_shadows_are_left(workspace, instance):
    assert executed(REPORT, workspace, instance=instance, days={A.name: BOTH}).success
    assert set(shown(instance, A.name)) == set(map(str, DAYS))


def test_without_days_only_the_assets_of_ended_shadows_are_wiped(workspace, instance):
    assert reported(workspace, instance).wiped == [f"shadow/{A.name}", f"shadow/{B.name}"]
    assert shown(instance, A.name) == {}
