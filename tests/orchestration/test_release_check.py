"""The check `live_is_released`, which the sensor evaluates: what fails it, and what does not. In
process, no Spark.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetSelection,
    DefaultSensorStatus,
    Definitions,
    define_asset_job,
)

from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.release_sensor import RELEASES, release_check, releases_spec
from tests.worlds.code_location import Ticking, said, shown, ticking
from tests.worlds.deliveries import day
from tests.worlds.recorded import A, B


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Ticking]:
    with ticking(tmp_path) as lake:
        yield lake


def test_a_channel_that_is_behind_is_named_by_the_check(lake):
    lake.tick()
    releases = lake.releases
    lake.build(A, 1, rows=3)
    lake.tick()
    releases.point(releases.newest(), "stable", 1, who="bo", reason="wrong rows")
    releases.add(
        releases.newest(),
        releases.get(2).tables,
        kind="live",
        who="bo",
        reason="",
        channels=["candidate"],
    )
    *_, check = lake.tick().asset_events
    assert check.passed
    assert check.description.endswith(
        "The channel stable stays at release 1: it was put there: wrong rows (bo). `backfill"
        " release --reason ...` releases live to stable."
    )


def test_failed_days_fail_the_check_once_until_they_are_built(lake):
    lake.tick()
    lake.build(A, 0, rows=2)
    lake.fail(A, 1, 2)
    (check,) = lake.tick().asset_events
    assert isinstance(check, AssetCheckEvaluation)
    assert (check.passed, check.metadata["days"].value) == (False, {A: [str(day(1)), str(day(2))]})
    assert f"{A} {day(1)}..{day(2)}: no_nulls_n: 3 rows. Build these days, or" in str(
        check.description
    )
    assert said(lake.tick()) == f"Live is not released: {A} {day(1)}..{day(2)}: no_nulls_n: 3 rows"
    lake.build(A, 1)
    assert shown(lake.tick()) == [False]
    lake.build(A, 2)
    assert shown(lake.tick()) == [2, True]


def test_what_is_under_way_changes_nothing_on_the_check_and_is_looked_at_again(lake):
    lake.tick()
    lake.build(A, 0, rows=2)
    with mark_running(str(lake.root), RunningStep(A, [day(1)], "run-7")):
        for _ in range(2):
            assert (
                said(lake.tick())
                == f"Live is not released: {A} {day(1)}: run run-7 is computing them"
            )
    assert shown(lake.tick()) == [2]
    plan = lake.start_plan(B, [1])
    lake.build(B, 0, rows=2)
    assert shown(lake.tick()) == []
    assert f"plan {plan} is open (" in said(lake.tick())
    lake.end_plan(plan)
    assert shown(lake.tick()) == [3]


def test_a_table_that_cannot_be_read_fails_the_check(lake):
    lake.tick()
    (lake.root / A / "_delta_log" / f"{0:020}.json").write_bytes(b"{nonsense")
    (check,) = lake.tick().asset_events
    assert (check.passed, "cannot be read" in check.description) == (False, True)


def test_the_code_location_has_the_release_sensor_and_its_asset(lake):
    definitions = definitions_of(lake.workspace)
    Definitions.validate_loadable(definitions)
    sensor = definitions.get_sensor_def("release_live")
    assert (sensor.default_status, sensor.minimum_interval_seconds) == (
        DefaultSensorStatus.RUNNING,
        30,
    )
    graph = definitions.resolve_asset_graph()
    node = graph.get(AssetKey("releases"))
    assert (node.group_name, node.is_external) == ("releases", True)
    for job in ("rebuild", "nightly"):
        keys = definitions.resolve_job_def(job).asset_layer.selected_asset_keys
        assert keys == {AssetKey(name.split("/")) for name in (A, B)}
        checks = definitions.resolve_job_def(job).asset_layer.asset_graph.asset_check_keys
        assert "live_is_released" not in {key.name for key in checks}


def test_the_check_can_be_executed_and_releases_nothing(lake):
    job = define_asset_job("look", AssetSelection.checks_for_assets(RELEASES))
    definitions = Definitions(
        [releases_spec()], asset_checks=[release_check(lake.workspace)], jobs=[job]
    )
    for fail, passed in ((False, True), (True, False)):
        if fail:
            lake.fail(A, 1)
        result = definitions.resolve_job_def("look").execute_in_process(instance=lake.instance)
        (evaluated,) = result.get_asset_check_evaluations()
        assert (evaluated.check_name, evaluated.passed) == ("live_is_released", passed)
    assert lake.releases.all() == []
