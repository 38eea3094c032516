"""The sensor `late_rows`: which days it rebuilds, when, and how often. In process, no Spark."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetKey,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    Definitions,
    materialize,
    validate_run_config,
)
from dagster._core.test_utils import create_run_for_test

from backfill_assets.calendar import Calendar
from backfill_assets.dagster_client import tags
from backfill_assets.datasets.case_reports.tables import TABLES as WHOLE_DAYS
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.other_assets import REPORT, late_reports
from backfill_assets.orchestration.rebuild_sensors import (
    LONGEST,
    NO_COMMITS,
    NO_LATE_ROWS,
    QUIET,
    late_rows_sensor,
)
from backfill_assets.plan.lifecycle import start
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import PlanOptions, RebuildRequest
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from backfill_assets.workspace import Workspace
from tests.worlds.code_location import Ticks
from tests.worlds.deliveries import day
from tests.worlds.recorded import MORNING, LateLake, late_lake
from tests.worlds.tables import workspace_of

OUTAGES = "staging/outages"
UPDATES = "staging/outage_updates"


def requested(number: int = 14, rows: int = 2) -> dict[str, Any]:
    """The plan of one day with so many late rows."""
    return {
        "partitions": str(day(number)),
        "target": OUTAGES,
        "only": "outdated",
        "downstream": "built",
        "leave_protected": True,
        "into": "live",
        "reason": f"late rows: +{rows} about 1 day(s)",
    }


REBUILT = requested()


class Ticking(LateLake):
    """The lake, and ticks of the sensor at some time, each with the cursor that the one before it
    left.
    """

    ticks: Ticks
    last = 19
    protected = ""

    @property
    def workspace(self) -> Workspace:
        workspace = workspace_of(TABLES, Calendar(day(0), day(self.last)), str(self.root))
        return replace(
            workspace,
            settings=workspace.settings.model_copy(update={"protected_days": self.protected}),
        )

    def tick(self, at: datetime = MORNING + QUIET) -> str | dict:
        """The fields of the plan that is requested, or why none is."""
        return self.ticks.tick(late_rows_sensor(self.workspace, lambda: at))

    def start_plan(self, into: str = "live") -> str:
        plan = Plan(
            {OUTAGES: "1"},
            {OUTAGES: {day(2): Reason(ReasonKind.MISSING)}},
            [],
            PlanOptions(into=into),  # type: ignore[arg-type]
        )
        plans = Plans(str(self.root))
        plans.keep(plan)
        start(plan, plans, datetime.now(UTC), "ada")
        return plan.id


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Ticking]:
    made = late_lake(tmp_path)
    lake = Ticking(tmp_path, made.accepted)
    with DagsterInstance.ephemeral() as instance:
        lake.ticks = Ticks(instance)
        yield lake


def test_the_days_within_the_horizon_are_rebuilt_by_one_plan_into_live(lake):
    assert lake.tick() == REBUILT
    plan = make_plan(RebuildRequest(**REBUILT), lake.workspace).plan
    assert (plan.days_of(OUTAGES), plan.is_shadow) == ({day(14)}, False)


def test_it_waits_until_nothing_has_arrived_for_a_while(lake, golden):
    golden(lake.tick(MORNING + QUIET - timedelta(seconds=1)))
    lake.arrive(19, {19: 9, 18: 2, 14: 1}, at=MORNING + timedelta(minutes=5))
    golden(lake.tick(MORNING + QUIET), "after more")
    assert lake.tick(MORNING + QUIET + timedelta(minutes=5)) == requested(rows=3)


def test_it_waits_no_longer_than_the_longest_wait_from_the_first_row(lake, golden):
    lake.arrive(19, {19: 9, 18: 2, 14: 1}, at=MORNING + LONGEST - timedelta(minutes=1))
    golden(lake.tick(MORNING + LONGEST - timedelta(seconds=1)))
    assert lake.tick(MORNING + LONGEST) == requested(rows=3)


def test_a_batch_has_one_key_until_another_row_arrives(lake):
    lake.tick()
    key = lake.ticks.asked.run_key
    assert (lake.tick(), lake.ticks.asked.run_key) == (REBUILT, key)
    lake.arrive(19, {19: 9, 18: 2, 14: 1})
    lake.tick()
    assert lake.ticks.asked.run_key != key


@pytest.mark.parametrize(
    ("job", "tables"),
    [
        pytest.param("__ASSET_JOB", {UPDATES}, id="a run of one of the tables"),
        pytest.param("backfill_nightly", None, id="a night"),
        pytest.param("backfill_run_plan", None, id="a plan that is being made"),
    ],
)
def test_it_waits_for_runs_that_are_not_finished(lake, job, tables):
    keys = tables and {AssetKey(name.split("/")) for name in tables}
    run = create_run_for_test(
        lake.ticks.instance, job_name=job, status=DagsterRunStatus.STARTED, asset_selection=keys
    )
    assert f"run {run.run_id[:8]}" in lake.tick()
    lake.ticks.instance.report_run_canceled(run)
    assert lake.tick() == REBUILT


def test_it_waits_for_an_open_plan_into_live_and_for_none_into_a_shadow(lake, golden):
    lake.start_plan("shadow")
    assert lake.tick() == REBUILT
    plan = lake.start_plan()
    golden(lake.tick(), PLAN=plan)
    Plans(str(lake.root)).note(plan, "ended", datetime.now(UTC), ending="done")
    assert lake.tick() == REBUILT


def test_days_beyond_the_horizon_and_days_that_failed_are_left_to_a_person(lake):
    lake.last = 29
    assert lake.tick() == NO_LATE_ROWS
    lake.last = 19
    lake.ticks.cursor = None
    lake.fail(14)
    assert lake.tick() == NO_LATE_ROWS


def test_built_again_they_are_done_and_nothing_is_read_until_something_is_committed(lake):
    lake.build(14)
    assert lake.tick() == NO_LATE_ROWS
    assert lake.tick() == NO_COMMITS
    lake.arrive(19, {19: 9, 18: 2, 15: 1})
    assert lake.tick() == requested(15, rows=1)


def test_days_that_a_killed_run_was_computing_are_late_again(lake):
    with mark_running(str(lake.root), RunningStep(OUTAGES, [day(14)], "by hand")):
        assert lake.tick() == NO_LATE_ROWS
    assert lake.tick() == REBUILT


def test_protected_days_are_left_as_they_are_and_the_others_rebuilt(lake):
    lake.arrive(19, {19: 9, 18: 2, 15: 1})
    lake.protected = f"{day(14)},{day(16)}"
    expected = requested(15, rows=1)
    assert lake.tick() == expected
    plan = make_plan(RebuildRequest(**expected), lake.workspace).plan
    assert OUTAGES in plan.code
    assert not {day(14), day(16)} & set(plan.days()), "not what is made from rows of day 15 either"
    lake.build(15)
    assert lake.tick() == NO_LATE_ROWS
    lake.protected = ""
    assert lake.tick() == REBUILT, "although nothing was committed since"


def test_a_batch_whose_run_failed_is_requested_again_after_twice_as_long(lake, golden):
    """The runs are of today: the clock of Dagster's record is not the test's."""
    lake.tick()
    for attempt, wait in enumerate((LONGEST, 2 * LONGEST), start=2):
        now = datetime.now(UTC)
        run = lake.ticks.run(DagsterRunStatus.FAILURE)
        reason, _, at = lake.tick(now + wait - timedelta(minutes=1)).partition(" is at ")
        golden(reason, RUN=run)
        next_attempt = datetime.strptime(f"{at[:20]} +0000", "%Y-%m-%d %H:%M UTC %z")
        assert abs(next_attempt - now - wait) < timedelta(minutes=1)
        first = lake.ticks.asked
        assert lake.tick(now + wait + timedelta(minutes=1)) == REBUILT
        assert lake.ticks.asked.run_key == f"{first.tags[tags.BATCH]}-{attempt}", (
            "a key that Dagster has not seen"
        )


def test_a_batch_whose_run_was_canceled_waits_until_more_arrives(lake, golden):
    lake.tick()
    run = lake.ticks.run(DagsterRunStatus.CANCELED)
    golden(lake.tick(datetime.now(UTC) + timedelta(days=9)), RUN=run)
    lake.arrive(19, {19: 9, 18: 2, 14: 1})
    assert lake.tick() == requested(rows=3)


def test_the_code_location_has_the_sensor_stopped_and_its_job_takes_what_it_requests(lake):
    definitions = definitions_of(lake.workspace)
    Definitions.validate_loadable(definitions)
    sensor = definitions.get_sensor_def("backfill_late_rows")
    assert (sensor.default_status, sensor.job_name) == (
        DefaultSensorStatus.STOPPED,
        "backfill_run_plan",
    )
    assert validate_run_config(
        definitions.resolve_job_def("backfill_run_plan"),
        {"ops": {"backfill_run": {"config": REBUILT}}},
    )


CALENDAR = Calendar(day(0), day(19))


def chart_metadata(root: Path) -> dict[str, object]:
    reports = late_reports(workspace_of(TABLES, CALENDAR, str(root)))
    with DagsterInstance.ephemeral() as instance:
        result = materialize(reports, instance=instance)
    (materialized,) = result.asset_materializations_for_node("reports__late_arrivals")
    return {name: value.value for name, value in materialized.metadata.items()}


def test_it_is_drawn_from_the_ledger_and_counts_what_is_outdated(tmp_path):
    late_lake(tmp_path)
    values = chart_metadata(tmp_path)
    assert str(values.pop(UPDATES)).startswith(f"![{UPDATES}](data:image/png;base64,")
    assert list(values.values()) == [1, 1]


def test_before_anything_has_arrived_there_is_no_picture(tmp_path):
    assert UPDATES not in chart_metadata(tmp_path)


def test_the_code_location_has_it_after_the_table_it_shows_and_in_no_job_of_tables(tmp_path):
    definitions = definitions_of(workspace_of(TABLES, CALENDAR, str(tmp_path)))
    Definitions.validate_loadable(definitions)
    node = definitions.resolve_asset_graph().get(REPORT)
    assert node.parent_keys == {AssetKey(["staging", "outage_updates"])}
    assert not node.is_partitioned
    for job in ("backfill_rebuild", "backfill_nightly"):
        assert REPORT not in definitions.resolve_job_def(job).asset_layer.selected_asset_keys


def test_a_project_whose_tables_read_whole_days_has_none(tmp_path):
    assert late_reports(workspace_of(WHOLE_DAYS, CALENDAR, str(tmp_path))) == []
