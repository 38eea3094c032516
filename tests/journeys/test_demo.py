"""The README's first command, as a new user gives it: once, and once more."""

import stat

import pytest
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from backfill_assets.dagster_client.tags import CHUNK
from backfill_assets.servers.home import servers_record
from tests.worlds.outages import NAMES, ROWS_OF_SIXTY_DAYS
from tests.worlds.servers import Demo, demo, demo_once, files_with


@pytest.fixture(scope="module")
def first(spark) -> Demo:
    return demo_once()


@pytest.mark.scale
def test_a_demo_builds_every_day_of_every_table_and_ends_what_it_started(first):
    assert first.code == 0, first.printed
    outcome = first.outcome()
    assert set(outcome) == set(NAMES)
    assert all({"days": "60", "written": "60"}.items() <= row.items() for row in outcome.values())
    assert not {"same rows", "up to date", "failed", "not run"} & outcome[NAMES[0]].keys()
    assert {name: outcome[name]["rows"] for name in ROWS_OF_SIXTY_DAYS} == {
        n: f"{rows:,}" for n, rows in ROWS_OF_SIXTY_DAYS.items()
    }
    assert servers_record(first.home) is None


@pytest.mark.scale
def test_a_demo_leaves_its_one_run_closed_and_as_long_as_it_took(first, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(first.home / "dagster"))
    with DagsterInstance.get() as instance:
        everything = instance.get_run_records()
        (record,) = instance.get_run_records(RunsFilter(tags={CHUNK: "1"}))
    assert all(each.dagster_run.is_finished for each in everything)
    assert record.dagster_run.status == DagsterRunStatus.SUCCESS
    assert record.start_time
    assert record.end_time
    assert 0 < record.end_time - record.start_time < first.seconds


@pytest.mark.scale
def test_the_engines_token_is_in_nothing_that_a_demo_printed_or_wrote(first):
    assert (first.home / "engine" / "engine.properties").exists()
    assert files_with(first.home, first.token) == []
    assert first.token not in first.printed


@pytest.mark.scale
def test_what_a_demo_wrote_can_be_read_by_its_owner_only(first):
    assert stat.S_IMODE(first.home.stat().st_mode) == 0o700


@pytest.mark.nightly
def test_a_second_demo_finds_everything_up_to_date(first):
    second = demo(first.home, own_engine=False)  # it has nothing to compute
    assert second.code == 0, second.printed
    outcome = second.outcome()
    assert set(outcome) == set(NAMES)
    assert all({"days": "60", "up to date": "60"}.items() <= r.items() for r in outcome.values())
    assert "written" not in outcome[NAMES[0]]
    assert "Everything was up to date: nothing had to be computed." in second.printed
