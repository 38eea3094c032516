"""What a run is asked: days, options, configuration; and what the schedule asks for."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from dagster import DagsterInvalidConfigError, RunRequest, build_schedule_context
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from backfill_assets.orchestration.assets import asset_key
from tests.worlds.code_location import END, START, CodeLocation, delivered
from tests.worlds.outages import FOUR, NAMES, REJECTED


@pytest.fixture
def location(tmp_path, spark) -> Iterator[CodeLocation]:
    with delivered(tmp_path, spark) as made:
        yield made


def test_a_run_without_days_computes_nothing_and_says_to_choose_some(location):
    job = location.defs.resolve_job_def("rebuild")
    run = location.instance.create_run_for_job(job)
    result = execute_run(InMemoryJob(job), run, location.instance, raise_on_error=False)
    (error,) = [
        event.step_failure_data.error for event in result.all_events if event.is_step_failure
    ]
    assert "This run names no days" in str(error)
    assert "Choose the table's days and launch them" in str(error)
    assert location.world.lake.ledger.builds() == []


def test_a_write_mode_that_cannot_be_used_fails_the_step_and_says_why(location):
    message = location.failures(location.run(write_mode="merge"))[REJECTED]
    assert (
        "raw/rejected_lines has no key to merge on. Nothing was written. Use write_mode overwrite."
        in message
    )


def test_a_spark_setting_that_comes_too_late_fails_the_step_once(location):
    result = location.run(spark_conf={"spark.executor.instances": "9"})
    late = "spark.executor.instances=9 cannot be set for one plan"
    assert late in location.failures(result)[REJECTED]
    assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    builds = location.world.lake.ledger.builds({REJECTED: None})
    assert [(b.day, b.outcome, late in b.message) for b in builds] == [
        (at, "failed", True) for at in FOUR
    ]
    assert location.world.versions() == dict.fromkeys(NAMES, -1)


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param(
            {"options": {"config": {"write_mode": "append_once"}}},
            id="a write mode that does not exist",
        ),
        pytest.param(
            {"spark": {"config": {"spark_config": {"spark.sql.ansi.enabled": "false"}}}},
            id="settings of Spark",
        ),
    ],
)
def test_a_configuration_that_there_is_not_is_refused_before_anything_starts(location, resources):
    with pytest.raises(DagsterInvalidConfigError):
        location.defs.resolve_job_def("rebuild").execute_in_process(
            run_config={"resources": resources}, instance=location.instance, tags={START: str(FOUR[0]), END: str(FOUR[-1])},
        )  # fmt: skip
    assert not (location.world.root / "_ledger").exists()


def test_the_nightly_schedule_asks_for_the_days_that_late_rows_may_have_changed(location):
    schedule = location.defs.resolve_schedule_def("nightly")
    context = build_schedule_context(
        location.instance, scheduled_execution_time=datetime(2019, 8, 19, 1, 30, tzinfo=UTC)
    )
    request = schedule.evaluate_tick(context).run_requests[0]
    assert isinstance(request, RunRequest)
    assert {k: request.tags[k] for k in (START, END, "backfill/reason")} == {
        START: "2019-08-15", END: "2019-08-18", "backfill/reason": "nightly of 2019-08-19",
    }  # fmt: skip


def test_every_table_is_an_asset_with_a_check_for_each_rule(location):
    graph = location.defs.resolve_asset_graph()
    for table in location.world.tables:
        checks = {
            key.name: graph.get(key).blocking
            for key in graph.asset_check_keys
            if key.asset_key == asset_key(table)
        }
        assert checks == {rule.name: rule.severity == "error" for rule in table.rules}
