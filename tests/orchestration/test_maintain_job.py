"""The job `maintain`, as Dagster executes it, in this process, and its weekly schedule."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import DefaultScheduleStatus, Definitions, build_schedule_context

from backfill_assets.orchestration.maintain_job import maintain_job, weekly_maintenance
from tests.lake.maintained import contents, on_disk
from tests.orchestration.office import executed, failure, metadata
from tests.publish.site import DAYS, NOW, A, Site


@pytest.fixture
def site(tmp_path) -> Site:
    site = Site(tmp_path)
    for value in (1, 2):
        site.write({DAYS[0]: value})
    return site


def launched(site: Site, config: dict[str, Any]) -> Any:
    """A run forty days from now."""
    return executed(maintain_job(site.workspace, lambda: datetime.now(UTC) + timedelta(days=40)), config)[0]


def test_unless_it_is_told_to_apply_it_only_shows_what_would_be_done(site):
    before = contents(site.root)
    result = launched(site, {})
    assert (result.success, contents(site.root)) == (True, before)
    shown = metadata(result)
    assert (shown["applied"], shown["removed_files"]) == (False, 1)
    assert "| raw/a | 2 file(s), 0.0 MB |  | 1 file(s), 0.0 MB | 1 the newest version |" in shown["tables"]


def test_with_apply_files_are_removed_and_the_run_has_the_figures(site):
    result = launched(site, {"apply": True})
    assert (metadata(result)["applied"], metadata(result)["removed_files"]) == (True, 1)
    assert on_disk(site) == site.files()[DAYS[0]]
    assert site.values() == {DAYS[0]: 2}


def test_while_a_plan_is_taken_back_in_part_no_file_is_removed_that_it_needs(site):
    plan, before = site.plan({A.name: [DAYS[0]]}), on_disk(site)
    site.plans.note(plan.id, "rolling_back", NOW)
    assert f"`backfill rollback {plan.id}` finishes it. Nothing was removed." in failure(launched(site, {"apply": True}))
    assert on_disk(site) == before


def test_a_table_that_cannot_be_read_fails_the_run_and_keeps_its_files(site):
    (site.root / A.name / "_delta_log" / f"{0:020}.json").write_text("{")
    before = on_disk(site)
    message = failure(launched(site, {"apply": True}))
    assert f"Not done: {A.name}: The Delta table" in message
    assert "<unknown>" not in message
    assert on_disk(site) == before


def test_the_weekly_schedule_applies_and_is_stopped_until_somebody_starts_it(site):
    job = maintain_job(site.workspace)
    schedule = weekly_maintenance(job)
    at = datetime(2026, 1, 4, 4, tzinfo=UTC)
    (request,) = schedule.evaluate_tick(build_schedule_context(scheduled_execution_time=at)).run_requests or []
    assert request.run_config == {"ops": {"upkeep": {"config": {"apply": True}}}}
    assert (schedule.default_status, at.isoweekday()) == (DefaultScheduleStatus.STOPPED, 7)
    assert (
        Definitions(jobs=[job], schedules=[schedule]).resolve_job_def("maintain").execute_in_process(request.run_config).success
    )
