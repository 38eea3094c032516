"""What Dagster shows of deliveries and of the status of each day. In process, no Spark."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from dagster import (
    AssetKey,
    AssetRecordsFilter,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    SensorResult,
    build_sensor_context,
)
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
)
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.definitions.partitions.subset import DefaultPartitionsSubset
from dagster._core.loader import LoadingContextForTest
from dagster._core.test_utils import create_run_for_test

from backfill_assets.lake.ledger import Build
from backfill_assets.orchestration import shown_status
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.jobs import jobs_of
from backfill_assets.orchestration.local.recorded import last_results, observed_versions
from backfill_assets.orchestration.report import materialization
from backfill_assets.orchestration.shown_status import (
    CHECK,
    STATUS_JOB,
    evaluations,
    observations,
    source_keys,
    status_sensor,
)
from backfill_assets.plan.status import State
from backfill_assets.workspace import Workspace
from tests.worlds.code_location import metadata
from tests.worlds.deliveries import day
from tests.worlds.landed import Landed, Noting
from tests.worlds.outages import RAW, REJECTED, UPDATES
from tests.worlds.recorded import MORNING
from tests.worlds.small_lake import A, SmallLake

DAYS = (10, 16, 17)
SOURCE = AssetKey(["backfill", "sources", "outage_events"])


class Shown(Landed):
    """Such a lake, and what Dagster records and shows of it."""

    instance: DagsterInstance

    def log(self, kind: DagsterEventType, payload: Any) -> None:
        """Record an event of some run."""
        event = DagsterEvent(kind.value, "nightly", event_specific_data=payload)
        self.instance.report_dagster_event(event, run_id=str(uuid4()))

    def show(self, build: Build) -> None:
        """Report a build as its step does."""
        key = AssetKey(build.table.split("/"))
        (of,) = [each for each in self.workspace.tables if each.name == build.table]
        source_key = source_keys(self.workspace.tables).get(build.table)
        if source_key:
            observed = observations(self.instance, source_key, {build.day: build.delivered})
            for event in observed:
                self.instance.report_runless_asset_event(event)
        pointer = self.instance.event_log_storage.get_maximum_record_id()
        self.instance.report_runless_asset_event(
            materialization(key, of, build, new=True, pointer=pointer, source=source_key)
        )
        for check in evaluations(self.instance, key, {}, {build.day: build.run}):
            self.log(DagsterEventType.ASSET_CHECK_EVALUATION, check)

    def built(self, name: str, *numbers: int, minutes: int = 0) -> None:
        self.build(name, *numbers, at=MORNING + timedelta(minutes=minutes))
        for n in numbers:
            self.show(self.accepted[name, day(n)])

    def stale(self, name: str) -> set[int]:
        """The days that Dagster calls stale."""
        graph = definitions_of(self.workspace).resolve_asset_graph()
        context = LoadingContextForTest(self.instance)
        resolver = CachingStaleStatusResolver(self.instance, graph, context)
        key = AssetKey(name.split("/"))
        return {n for n in DAYS if resolver.get_status(key, str(day(n))).value == "STALE"}

    def failing(self, name: str) -> set[str]:
        results = last_results(self.instance, AssetKey(name.split("/")), CHECK)
        return {day for day, passed in results.items() if not passed}

    def report(self) -> int:
        return report(self.workspace, self.instance)


def report(workspace: Workspace, instance: DagsterInstance) -> int:
    """Report what Dagster lacks, and return how many events that took."""
    (job,) = jobs_of([STATUS_JOB], workspace)
    return sum(metadata(job.execute_in_process(instance=instance)).values())


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Shown]:
    with DagsterInstance.ephemeral() as instance:
        lake = Shown(tmp_path, Noting(prefix=tmp_path.name))
        lake.instance = instance
        for n in DAYS:
            lake.deliver(n)
        for name in (REJECTED, RAW, UPDATES):
            lake.built(name, *DAYS)
        yield lake


def test_what_steps_have_reported_is_fresh_and_is_not_reported_again(lake):
    assert lake.report() == 0
    assert [lake.stale(name) for name in (REJECTED, RAW, UPDATES)] == [set()] * 3
    assert len(observed_versions(lake.instance, SOURCE)) == len(DAYS)


def test_a_changed_delivery_makes_its_day_stale_and_not_up_to_date(lake):
    lake.deliver(16, lines=2)
    assert lake.report() == 3  # the delivery, and the check of both tables that read it
    assert (lake.stale(RAW), lake.stale(REJECTED), lake.stale(UPDATES)) == ({16}, {16}, set())
    assert lake.failing(RAW) == lake.failing(REJECTED) == {str(day(16))}
    assert lake.report() == 0


def test_a_day_that_is_built_again_or_delivered_as_before_is_up_to_date(lake):
    lake.deliver(16, lines=2)
    lake.deliver(17, lines=2)
    lake.report()
    lake.built(RAW, 16, minutes=1)
    lake.deliver(17)
    lake.report()
    assert (lake.stale(RAW), lake.failing(RAW)) == (set(), set())
    assert lake.stale(REJECTED) == {16}


def test_the_newest_evaluation_fails_while_any_day_fails(lake):
    """The UI shows it as the result of the check."""

    def newest() -> tuple[str, bool | None]:
        return [*last_results(lake.instance, AssetKey(RAW.split("/")), CHECK).items()][-1]

    lake.deliver(16, lines=2)
    lake.report()
    assert newest() == (str(day(16)), False)
    lake.built(RAW, 17, minutes=1)  # its step reports that it has passed
    assert newest() == (str(day(17)), True)
    lake.report()
    assert newest() == (str(day(16)), False)
    assert lake.report() == 0


def test_days_that_fail_are_evaluated_after_days_that_pass(lake):
    problems = {day(15): "why"}
    runs = {day(15): "", day(16): ""}
    found = evaluations(lake.instance, AssetKey(RAW.split("/")), problems, runs)
    assert [(each.partition, each.passed) for each in found] == [
        (str(day(16)), True),
        (str(day(15)), False),
    ]


def test_a_check_of_a_day_has_the_time_of_its_materialization(lake):
    key = AssetKey(RAW.split("/"))
    one_day = AssetRecordsFilter(key, asset_partitions=[str(day(16))])
    (made,) = lake.instance.fetch_materializations(one_day, limit=1).records
    (check,) = evaluations(lake.instance, key, {day(16): "why"}, {day(16): made.run_id})
    target = check.target_materialization_data
    assert target
    assert target.timestamp == made.timestamp


def test_an_input_that_was_rebuilt_is_an_event_for_the_check_of_its_readers(lake):
    lake.deliver(16, lines=2)
    lake.built(RAW, 16, minutes=1)
    lake.report()
    assert lake.failing(UPDATES) == set()


def test_a_day_that_a_run_was_to_build_and_that_stayed_as_it_was_is_up_to_date_again(lake):
    """The run died. Dagster shows its check as not executed, until it is reported again."""
    days = DefaultPartitionsSubset({str(day(16)), str(day(17))})
    planned = AssetCheckEvaluationPlanned(
        asset_key=AssetKey(RAW.split("/")), check_name=CHECK, partitions_subset=days
    )
    lake.log(DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED, planned)
    lake.deliver(17, lines=2)
    assert lake.failing(RAW) == {str(day(16)), str(day(17))}
    lake.report()
    assert lake.failing(RAW) == {str(day(17))}
    assert lake.report() == 0


def test_a_day_that_was_removed_is_not_outdated_any_more(tmp_path):
    lake = SmallLake(tmp_path)
    plan = lake.plan({A.name: [day(0)]})
    lake.write({day(0): 3}, plan=plan.id, code="older")
    with DagsterInstance.ephemeral() as instance:
        assert [report(lake.workspace, instance), report(lake.workspace, instance)] == [1, 0]
        lake.roll_back(plan)
        assert report(lake.workspace, instance) == 1
        assert last_results(instance, AssetKey(A.name.split("/")), CHECK) == {str(day(0)): True}
        assert report(lake.workspace, instance) == 0


def ticked(lake: Shown, now: float, took: float, cursor: str | None = None) -> SensorResult:
    times = iter([now, now + took])
    sensor = status_sensor(lake.workspace, now=lambda: next(times))
    result = sensor(build_sensor_context(instance=lake.instance, cursor=cursor))
    assert isinstance(result, SensorResult)
    return result


def test_the_sensor_starts_the_job_only_if_there_is_something_to_report(lake):
    assert not ticked(lake, 0, 1).run_requests
    lake.deliver(16, lines=2)
    assert ticked(lake, 0, 1).run_requests
    lake.report()
    assert not ticked(lake, 0, 1).run_requests


def test_the_sensor_rests_after_a_long_look_and_waits_for_runs_that_build(lake):
    lake.deliver(16, lines=2)
    cursor = ticked(lake, 0, 2).cursor
    assert not ticked(lake, 39, 2, cursor).run_requests
    assert ticked(lake, 40, 2, cursor).run_requests
    create_run_for_test(lake.instance, job_name="backfill_nightly", status=DagsterRunStatus.STARTED)
    assert not ticked(lake, 40, 2, cursor).run_requests


def test_only_one_look_goes_on_at_once(lake):
    """The daemon asks again when it has waited for a minute, while the first look goes on."""
    others = list[SensorResult]()

    def now() -> float:
        if not others:
            others.append(tick())
        return 0

    sensor = status_sensor(lake.workspace, now)

    def tick() -> SensorResult:
        result = sensor(build_sensor_context(instance=lake.instance))
        assert isinstance(result, SensorResult)
        return result

    lake.deliver(16, lines=2)
    assert [bool(each.run_requests) for each in (tick(), *others, tick())] == [True, False, True]


def test_one_run_reports_a_part(lake, monkeypatch):
    monkeypatch.setattr(shown_status, "MOST_EVENTS", 2)
    lake.deliver(16, lines=2)
    assert [lake.report(), lake.report(), lake.report()] == [2, 1, 0]


def test_states_that_need_no_rebuild_do_not_fail_the_check():
    needs_none = {
        State.UP_TO_DATE,
        State.ADOPTED,
        State.MISSING,
        State.RUNNING,
        State.NOT_DUE,
        State.ON_REQUEST,
        State.BEFORE,
        State.CLOSED,
    }
    assert set(State) - set(shown_status._FAILING) == needs_none
