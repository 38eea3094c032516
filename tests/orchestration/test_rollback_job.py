"""The job `rollback`, executed by Dagster in this process: rows, records and metadata."""

import re

import pytest
from dagster import DagsterInstance

from backfill_assets.dagster_client import tags
from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, A, SmallLake
from tests.worlds.webservers import ReportingWebserver

FIRST, SECOND, THIRD, _ = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1, SECOND: 2})
    return lake


def test_a_plan_is_rolled_back_and_its_days_are_reported(lake):
    plan = lake.plan({A.name: [SECOND]})
    lake.write({SECOND: 7}, plan=plan.id)
    webserver = ReportingWebserver()
    with DagsterInstance.ephemeral() as instance:
        result = executed(
            "rollback",
            lake.workspace,
            webserver.dagster,
            instance=instance,
            plan=plan.id[:6],
            reason="wrong",
        )
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.tags[tags.PLAN] == plan.id
    assert result.success
    assert lake.values() == {FIRST: 1, SECOND: 2}
    assert f"{A.name} | {SECOND}" in metadata(result)["days"]
    assert webserver.reported == [(A.name, SECOND)]


def test_a_run_that_leaves_days_of_the_plan_fails_and_names_them(lake, golden):
    plan = lake.plan({A.name: [SECOND, THIRD]})
    lake.write({SECOND: 7, THIRD: 3}, plan=plan.id)
    lake.write({THIRD: 4})
    result = executed("rollback", lake.workspace, ReportingWebserver().dagster, plan=plan.id)
    golden(re.sub(r"on \S+ \S+ UTC", "on <TIME>", failure(result)), PLAN=plan.id)
    row = next(line for line in metadata(result)["days"].splitlines() if f"{A.name} |" in line)
    # The table, its restored days, and those that stay.
    cells = [cell.strip() for cell in row.split("|")]
    assert [cell for cell in cells if cell] == [A.name, str(SECOND), str(THIRD)]
    assert lake.values() == {FIRST: 1, SECOND: 2, THIRD: 4}


def test_a_rollback_without_a_webserver_restores_rows(lake):
    plan = lake.plan({A.name: [SECOND]})
    lake.write({SECOND: 7}, plan=plan.id)
    webserver = ReportingWebserver(runs=False)
    assert executed("rollback", lake.workspace, webserver.dagster, plan=plan.id).success
    assert lake.values() == {FIRST: 1, SECOND: 2}


def test_an_unknown_plan_fails_the_run_without_a_retry_and_nothing_is_restored(lake, golden):
    result = executed("rollback", lake.workspace, ReportingWebserver().dagster, plan="nosuch")
    golden(failure(result))
    assert metadata(result)["error"] == "UsageError"
    assert lake.values() == {FIRST: 1, SECOND: 2}
