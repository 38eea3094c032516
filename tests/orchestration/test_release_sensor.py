"""The sensor that releases live: what it releases, what it waits for, and what Dagster shows of it.
In process, no Spark.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetMaterialization,
    AssetSelection,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    Definitions,
    SensorResult,
    build_sensor_context,
    define_asset_job,
)
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.test_utils import create_run_for_test

from backfill_assets.lake.pointers import pointer_lines
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.jobs import jobs_of
from backfill_assets.orchestration.release_sensor import (
    RELEASES,
    REPORT,
    REPORT_JOB,
    REPORTED_AT_FIRST,
    TICKS_TO_RETRY,
    release_check,
    release_sensor,
    release_specs,
)
from backfill_assets.publish.pointers import pin
from backfill_assets.settings import read_settings
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day
from tests.worlds.recorded import A, B, BuiltLake, channel_numbers


class Ticking(BuiltLake):
    """The lake, and ticks of the sensor, each with the cursor that the one before it left."""

    instance: DagsterInstance
    cursor: str | None = None

    @property
    def home(self) -> Path:
        """The folder for the report."""
        return self.root.parent

    @property
    def workspace(self) -> Workspace:
        return replace(super().workspace, settings=read_settings(home=self.home))

    def tick(self) -> SensorResult:
        context = build_sensor_context(instance=self.instance, cursor=self.cursor)
        result = release_sensor(self.workspace)(context)
        assert isinstance(result, SensorResult)
        self.cursor = result.cursor
        return result


@contextmanager
def ticking(root: Path) -> Iterator[Ticking]:
    """The lake with three days of both tables."""
    lake = Ticking(root / "lake")
    with DagsterInstance.ephemeral() as lake.instance:
        for name in (A, B):
            lake.build(name, 0, 1, 2)
        yield lake


def shown(result: SensorResult) -> list[Any]:
    """Each release by its number and each evaluation by its verdict, in order."""
    return [
        event.metadata["release"].value if isinstance(event, AssetMaterialization) else event.passed  # type: ignore[union-attr]
        for event in result.asset_events
    ]


def said(result: SensorResult) -> str:
    assert not result.asset_events
    assert result.skip_reason
    return str(result.skip_reason.skip_message)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Ticking]:
    with ticking(tmp_path) as lake:
        yield lake


def test_what_is_fixed_without_a_commit_is_released_although_nothing_was_written(lake):
    lake.tick()
    lake.build(A, 1, rows=3)
    log = lake.root / A / "_delta_log" / f"{1:020}.json"
    text = log.read_bytes()
    log.write_bytes(b"{nonsense")
    assert shown(lake.tick()) == [False]
    log.write_bytes(text)
    ticks = [lake.tick() for _ in range(TICKS_TO_RETRY)]
    assert [shown(tick) for tick in ticks[:-1]] == [[]] * (TICKS_TO_RETRY - 1)
    assert shown(ticks[-1]) == [2, True]


def test_a_change_is_released_and_shown_once_with_its_versions(lake, golden):
    result = lake.tick()
    release, check = result.asset_events
    assert release.asset_key == AssetKey(["backfill", "releases"])
    values = {name: value.value for name, value in release.metadata.items()}
    assert values["release"] == 1
    assert values["tables"] == {A: 0, B: 0}
    assert values["changed tables"] == [A, B]
    assert values["who"] == "sensor backfill_release_live"
    assert (check.asset_key, check.check_name, check.passed) == (
        AssetKey(["backfill", "releases"]),
        "live_is_released",
        True,
    )
    (unchanged,) = {said(lake.tick()) for _ in range(3)}
    golden(unchanged)
    lake.build(B, 1, rows=2)
    (release,) = lake.tick().asset_events
    assert release.metadata["changed tables"].value == [B]
    assert [each.number for each in lake.releases.all()] == [1, 2]


def test_the_job_of_the_report_is_started_after_each_release_and_shows_its_file(lake):
    assert [request.run_key for request in lake.tick().run_requests] == ["release 1"]
    assert not lake.tick().run_requests
    lake.build(B, 1, rows=2)
    assert [request.run_key for request in lake.tick().run_requests] == ["release 2"]
    (job,) = jobs_of([REPORT_JOB], lake.workspace)
    job.execute_in_process(instance=lake.instance)
    file = lake.home / "report.html"
    assert "release 2" in file.read_text()
    event = lake.instance.get_latest_materialization_event(REPORT)
    assert event
    assert event.asset_materialization
    values = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    assert values == {"report": str(file), "bytes": file.stat().st_size}


def test_a_lake_without_tables_is_skipped(tmp_path, golden):
    lake = Ticking(tmp_path)
    with DagsterInstance.ephemeral() as lake.instance:
        assert shown(lake.tick()) == [True]
        golden(said(lake.tick()))


@pytest.mark.parametrize(
    ("selected", "job", "waits"),
    [
        pytest.param({A}, "__ASSET_JOB", True, id="a run of one of the tables"),
        pytest.param(None, "backfill_nightly", True, id="a run of all tables"),
        pytest.param({"other/table"}, "__ASSET_JOB", False, id="a run of other assets"),
        pytest.param(set(), "__ASSET_JOB", False, id="a run of checks"),
    ],
)
def test_it_waits_for_unfinished_runs_of_the_tables_only(lake, selected, job, waits, golden):
    keys = None if selected is None else {AssetKey(name.split("/")) for name in selected}
    run = create_run_for_test(
        lake.instance, job_name=job, status=DagsterRunStatus.STARTED, asset_selection=keys
    )
    if waits:
        golden(said(lake.tick()), RUN=run.run_id[:8])
        lake.instance.report_run_canceled(run)
    assert shown(lake.tick()) == [1, True]


def test_a_cursor_of_an_older_version_decides_again_and_reports_no_release_twice(lake):
    lake.tick()
    now = json.loads(lake.cursor)
    lake.cursor = json.dumps(
        {"decided": now["decided"], "said": "", "reported": now["reported"], "shown": ["x"]}
    )
    result = lake.tick()
    assert [event for event in result.asset_events if isinstance(event, AssetMaterialization)] == []
    then = json.loads(lake.cursor)
    assert (then["reported"], then["shown"]) == (now["reported"], now["shown"])
    assert then["decided"]


def test_it_waits_for_a_backfill_that_has_no_run_at_the_moment(lake, golden):
    def backfill(backfill_id: str, name: str) -> PartitionBackfill:
        keys = [AssetKey(name.split("/"))]
        return PartitionBackfill(
            backfill_id,
            BulkActionStatus.REQUESTED,
            False,
            {},
            0.0,
            asset_selection=keys,
            serialized_asset_backfill_data="{}",
        )

    lake.instance.add_backfill(backfill("other", "other/table"))
    lake.instance.add_backfill(backfill("ours", B))
    golden(said(lake.tick()))
    (ours,) = [each for each in lake.instance.get_backfills() if each.backfill_id == "ours"]
    lake.instance.update_backfill(ours.with_status(BulkActionStatus.COMPLETED_SUCCESS))
    assert shown(lake.tick()) == [1, True]


def test_what_others_release_is_shown_too(lake, golden):
    lake.tick()
    first = lake.releases.newest()
    second = lake.releases.add(first, first.tables, kind="publish", who="ada", reason="plan x")
    assert second.number == 2
    pin(str(lake.root), 1, "stable", who="ada", reason="wrong")
    result = lake.tick()
    assert shown(result) == [2, True]
    release, check = result.asset_events
    assert release.metadata["kind"].value == "publish"
    assert release.metadata["changed tables"].value == []
    golden(re.sub(r"on \S+ \S+ UTC", "on <TIME>", check.description))


def test_a_sensor_that_knows_nothing_shows_the_last_releases_only(lake):
    for _ in range(REPORTED_AT_FIRST + 5):
        newest = lake.releases.newest()
        lake.releases.add(newest, {}, kind="publish", who="", reason="")
    assert shown(lake.tick()) == [*range(7, REPORTED_AT_FIRST + 7), True]


def test_a_tick_opens_no_table_if_nothing_was_committed_and_no_plan_was_opened(lake, golden):
    for _ in range(2):
        lake.tick()
    log = lake.root / A / "_delta_log" / f"{0:020}.json"
    text = log.read_bytes()
    log.write_bytes(b"{nonsense")
    golden(said(lake.tick()))
    lake.start_plan(B, [1])
    assert shown(lake.tick()) == [False]
    log.write_bytes(text)
    lake.fail(B, 1)
    assert shown(lake.tick()) == [True]


def test_readers_who_are_pinned_are_named_by_the_check_and_live_is_released(lake):
    lake.tick()
    lake.build(A, 1, rows=3)
    lake.tick()
    pin(str(lake.root), 1, "stable", who="bo", reason="wrong rows")
    lake.build(A, 1, rows=2)
    *_, check = lake.tick().asset_events
    assert check.passed
    (line,) = pointer_lines(str(lake.root))
    assert line in check.description
    newest = lake.releases.newest()
    assert (newest.number, channel_numbers(str(lake.root))) == (3, {"stable": 1})


def test_days_that_others_wrote_fail_the_check_once_until_they_are_built(lake, golden):
    lake.tick()
    lake.build(A, 0, rows=2)
    lake.rewrite(A, 1)
    lake.rewrite(A, 2)
    (check,) = lake.tick().asset_events
    assert isinstance(check, AssetCheckEvaluation)
    assert (check.passed, check.metadata["days"].value) == (False, {A: [str(day(1)), str(day(2))]})
    golden(str(check.description), "check")
    golden(said(lake.tick()))
    lake.build(A, 1)
    assert shown(lake.tick()) == [False]
    lake.build(A, 2)
    assert shown(lake.tick()) == [2, True]


def test_what_is_under_way_changes_nothing_on_the_check_and_is_looked_at_again(lake, golden):
    lake.tick()
    lake.build(A, 0, rows=2)
    with mark_running(str(lake.root), RunningStep(A, [day(1)], "run-7")):
        (computing,) = {said(lake.tick()) for _ in range(2)}
    golden(computing, "computing")
    assert shown(lake.tick()) == [2]
    plan = lake.start_plan(B, [1])
    lake.build(B, 0, rows=2)
    assert shown(lake.tick()) == []
    golden(said(lake.tick()), "open", PLAN=plan)
    lake.end_plan(plan)
    assert shown(lake.tick()) == [3]


def test_a_table_that_cannot_be_read_fails_the_check(lake):
    lake.tick()
    (lake.root / A / "_delta_log" / f"{0:020}.json").write_bytes(b"{nonsense")
    (check,) = lake.tick().asset_events
    assert not check.passed
    assert A in check.description
    assert "cannot be read" in check.description


def test_the_code_location_has_the_release_sensor_and_its_asset(lake):
    definitions = definitions_of(lake.workspace)
    Definitions.validate_loadable(definitions)
    sensor = definitions.get_sensor_def("backfill_release_live")
    assert (sensor.default_status, sensor.minimum_interval_seconds) == (
        DefaultSensorStatus.RUNNING,
        30,
    )
    graph = definitions.resolve_asset_graph()
    node = graph.get(AssetKey(["backfill", "releases"]))
    assert (node.group_name, node.is_external) == ("backfill", True)
    for job in ("backfill_rebuild", "backfill_nightly"):
        keys = definitions.resolve_job_def(job).asset_layer.selected_asset_keys
        assert keys == {AssetKey(name.split("/")) for name in (A, B)}
        checks = definitions.resolve_job_def(job).asset_layer.asset_graph.asset_check_keys
        assert "live_is_released" not in {key.name for key in checks}


def test_the_check_can_be_executed_and_releases_nothing(lake):
    job = define_asset_job("look", AssetSelection.checks_for_assets(RELEASES))
    definitions = Definitions(
        release_specs(), asset_checks=[release_check(lake.workspace)], jobs=[job]
    )
    for is_written, passed in ((False, True), (True, False)):
        if is_written:
            lake.rewrite(A, 1)
        result = definitions.resolve_job_def("look").execute_in_process(instance=lake.instance)
        (evaluated,) = result.get_asset_check_evaluations()
        assert (evaluated.check_name, evaluated.passed) == ("live_is_released", passed)
    assert lake.releases.all() == []
