"""The job `rollback`, as Dagster executes it, in this process: rows and records, and what its run
shows.
"""

from typing import Any

import pytest
from dagster import DagsterInstance

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, A, SmallLake
from tests.worlds.webservers import ReportingWebserver

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1, SECOND: 2})
    return lake


def launched(
    lake: SmallLake, webserver: ReportingWebserver, **config: Any
) -> tuple[Any, DagsterInstance]:
    dagster = Dagster("http://dagster", transport=webserver.transport)
    return executed("rollback", lake.workspace, config, dagster)


def test_a_plan_is_taken_back_and_its_days_are_reported(lake):
    plan = lake.plan({A.name: [SECOND]})
    lake.write({SECOND: 7}, plan=plan.id)
    webserver = ReportingWebserver()
    result, instance = launched(lake, webserver, plan=plan.id[:6], reason="a wrong rule")
    assert result.success
    assert lake.values() == {FIRST: 1, SECOND: 2}
    assert "| raw/a | 2019-08-16 |  |  |  |  |" in metadata(result)["days"]
    run = instance.get_run_by_id(result.run_id)
    assert run
    assert run.tags[tags.PLAN] == plan.id
    ((path, event),) = webserver.reported
    assert (path, event["partition"], event["data_version"]) == (
        "/report_asset_materialization/raw/a",
        "2019-08-16",
        "2",
    )
    assert event["metadata"]["reason"] == f"rollback of plan {plan.id}: a wrong rule"
    assert event["metadata"]["who"] == "ada"


def test_a_run_that_leaves_some_of_the_plan_fails_and_says_what_and_why(lake):
    plan = lake.plan({A.name: [SECOND, THIRD]})
    lake.write({SECOND: 7, THIRD: 3}, plan=plan.id)
    message = failure(launched(lake, ReportingWebserver(), plan=plan.id)[0])
    assert f"Plan {plan.id} is rolled back: 1 partition(s) have the rows from before it." in message
    assert (
        "Days that the plan built first stay: the tables have no earlier rows of them." in message
    )
    assert lake.values() == {FIRST: 1, SECOND: 2, THIRD: 3}


def test_a_rollback_without_a_webserver_restores_rows_and_logs_the_command(lake):
    plan = lake.plan({A.name: [SECOND]})
    lake.write({SECOND: 7}, plan=plan.id)
    result, instance = launched(lake, ReportingWebserver(runs=False), plan=plan.id)
    assert result.success
    assert lake.values() == {FIRST: 1, SECOND: 2}
    said = [
        event.user_message
        for event in instance.all_logs(result.run_id)
        if not event.is_dagster_event
    ]
    assert [
        line
        for line in said
        if line.endswith("Once its webserver runs, type `backfill reconcile --repair`.")
    ]


def test_an_unknown_plan_fails_the_run_without_a_retry_and_nothing_is_restored(lake):
    assert "There is no plan nosuch in this lake." in failure(
        launched(lake, ReportingWebserver(), plan="nosuch")[0]
    )
    assert lake.values() == {FIRST: 1, SECOND: 2}
