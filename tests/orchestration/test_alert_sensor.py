"""The sensor of alerts: when it runs, and what it sends. In process, no Spark."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from dagster import (
    DagsterInstance,
    DefaultSensorStatus,
    SensorResult,
    build_sensor_context,
)

from backfill_assets.lake.locks import lock
from backfill_assets.orchestration.alert_sensor import alert_sensor
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.settings import read_settings
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.http_server import Request, http_server
from tests.worlds.small_lake import DAYS, SmallLake, copy_of, released_lake

pytestmark = pytest.mark.services


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """A lake that is not released, because B was made from other rows."""
    lake = copy_of(released_lake, tmp_path)
    lake.write({DAYS[0]: 9})
    return lake


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as instance:
        yield instance


def workspace_with(lake: SmallLake, urls: str) -> Workspace:
    return replace(lake.workspace, settings=read_settings(lake=str(lake.root), alerts=urls))


def tick(workspace: Workspace, instance: DagsterInstance) -> str:
    """What the sensor says. It requests no run, whatever happens."""
    result = alert_sensor(workspace)(build_sensor_context(instance=instance))
    assert isinstance(result, SensorResult)
    assert not result.run_requests
    assert result.cursor
    assert result.skip_reason
    return str(result.skip_reason.skip_message)


def test_it_tells_what_two_looks_have_found_and_rests_in_between(lake, instance, golden):
    got = []

    def respond(request: Request) -> None:
        got.append(json.loads(request.body()))
        request.answer(200)

    with http_server(respond) as address:
        workspace = workspace_with(lake, f"json{address.removeprefix('http')} json://127.0.0.1:9")
        golden(tick(workspace, instance), "first")
        golden(tick(workspace, instance), "second")
    assert len(got) == 1


def test_another_process_that_looks_is_no_failure(lake, instance, golden):
    with lock(str(lake.root), "alerts"):
        golden(tick(workspace_with(lake, "json://127.0.0.1:9"), instance))


def test_it_runs_only_if_there_is_a_url(lake, instance, golden, monkeypatch):
    golden(tick(workspace_with(lake, ""), instance))
    for urls, status in (
        ("", DefaultSensorStatus.STOPPED),
        ("json://h", DefaultSensorStatus.RUNNING),
    ):
        monkeypatch.setenv("BACKFILL_ALERTS", urls)
        sensors = definitions_of(open_workspace()).sensors or ()
        (found,) = [each for each in sensors if each.name == "backfill_alerts"]
        assert found.default_status == status
