"""The job `maintain`, as Dagster executes it, in this process, and its weekly schedule."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import DefaultScheduleStatus, Definitions, build_schedule_context

from backfill_assets.orchestration.jobs import jobs_of
from backfill_assets.orchestration.schedules import weekly_maintenance
from backfill_assets.orchestration.verb_jobs import VERB_JOBS
from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, A, SmallLake, contents, files_on_disk


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path)
    for value in (1, 2):
        lake.write({DAYS[0]: value})
    return lake


def launched(lake: SmallLake, **config: Any) -> Any:
    """A run forty days from now."""
    later = datetime.now(UTC) + timedelta(days=40)
    return executed("maintain", lake.workspace, now=lambda: later, **config)


def test_without_apply_it_only_shows_what_would_be_done(lake):
    before = contents(lake.root)
    result = launched(lake)
    assert (result.success, contents(lake.root)) == (True, before)
    shown = metadata(result)
    assert (shown["applied"], shown["removed_files"]) == (False, 1)
    row = shown["tables"].splitlines()[2].split(" | ")
    assert (row[0], row[1][0], row[3][0]) == (f"| {A.name}", "2", "1")


def test_with_apply_files_are_removed_and_the_run_has_the_figures(lake):
    result = launched(lake, apply=True)
    assert (metadata(result)["applied"], metadata(result)["removed_files"]) == (True, 1)
    assert files_on_disk(lake) == lake.files()[DAYS[0]]
    assert lake.values() == {DAYS[0]: 2}


def test_a_table_that_cannot_be_read_fails_the_run_and_keeps_its_files(lake):
    (lake.root / A.name / "_delta_log" / f"{0:020}.json").write_text("{")
    before = files_on_disk(lake)
    message = failure(launched(lake, apply=True))
    assert f"Not done: {A.name}: The Delta table" in message
    assert "<unknown>" not in message
    assert files_on_disk(lake) == before


def test_the_weekly_schedule_applies_and_is_stopped_until_someone_starts_it(lake):
    schedule = weekly_maintenance("UTC")
    at = datetime(2026, 1, 4, 4, tzinfo=UTC)
    (request,) = (
        schedule.evaluate_tick(build_schedule_context(scheduled_execution_time=at)).run_requests
        or []
    )
    assert request.run_config == {"ops": {"backfill_upkeep": {"config": {"apply": True}}}}
    assert (schedule.default_status, at.isoweekday()) == (DefaultScheduleStatus.STOPPED, 7)
    assert (
        Definitions(
            jobs=jobs_of([job for job in VERB_JOBS if job.name == "maintain"], lake.workspace),
            schedules=[schedule],
        )
        .resolve_job_def("backfill_maintain")
        .execute_in_process(request.run_config)
        .success
    )
