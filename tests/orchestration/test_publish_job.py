"""The job `publish`, as Dagster executes it, in this process: rows, release and records, and what
its run shows.
"""

from typing import Any

import pytest
from dagster import DagsterInstance

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.verify.verify import Verdicts, verify
from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, NOW, A, SmallLake
from tests.worlds.webservers import ReportingWebserver

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    """Two days of A, released."""
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 10, SECOND: 20})
    assert isinstance(release_live(lake.workspace, who="the sensor"), Released)
    return lake


def verify_and_accept(lake: SmallLake, plan: Plan) -> None:
    names = [
        line.name for line in verify(plan, lake.workspace, who="ada", now=lambda: NOW).undecided()
    ]
    assert (
        Verdicts(str(lake.root))
        .accept(plan.id, names, who="ada", reason="one was forgotten", at=NOW)
        .passed
    )


def launched(
    lake: SmallLake, webserver: ReportingWebserver, **config: Any
) -> tuple[Any, DagsterInstance]:
    dagster = Dagster("http://dagster", transport=webserver.transport)
    return executed("publish", lake.workspace, config, dagster)


def test_a_plan_that_was_verified_goes_live_is_released_and_its_days_are_reported(lake):
    plan = lake.shadow_plan({A.name: [SECOND]})
    lake.write({SECOND: 21}, into=plan)
    verify_and_accept(lake, plan)
    webserver = ReportingWebserver()
    result, instance = launched(lake, webserver, plan=plan.id[:6], reason="one was forgotten")
    assert result.success
    assert lake.values() == {FIRST: 10, SECOND: 21}
    release = Releases(str(lake.root)).of_channel()
    assert (release.number, release.kind, release.who) == (2, "publish", "ada")
    assert release.reason == f"plan {plan.id}: one was forgotten"
    shown = metadata(result)
    assert (shown["plan"], shown["release"]) == (plan.id, 2)
    assert "| raw/a | 2019-08-16 |  |" in shown["days"]
    run = instance.get_run_by_id(result.run_id)
    assert run
    assert run.tags[tags.PLAN] == plan.id
    ((path, event),) = webserver.reported
    assert (path, event["partition"], event["data_version"]) == (
        "/report_asset_materialization/raw/a",
        "2019-08-16",
        "21",
    )
    assert webserver.wiped == [["shadow", "raw", "a"], ["shadow", "raw", "b"]]


def test_while_another_plan_has_a_shadow_what_is_shown_of_shadows_stays(lake):
    plan = lake.shadow_plan({A.name: [SECOND]})
    other = lake.shadow_plan({A.name: [FIRST]}, reason="another")
    lake.write({SECOND: 21}, into=plan)
    lake.write({FIRST: 11}, into=other)
    verify_and_accept(lake, plan)
    webserver = ReportingWebserver()
    assert launched(lake, webserver, plan=plan.id)[0].success
    assert webserver.wiped == []


def test_a_plan_that_was_not_verified_fails_the_run_and_live_stays(lake):
    plan = lake.shadow_plan({A.name: [SECOND]})
    lake.write({SECOND: 21}, into=plan)
    message = failure(launched(lake, ReportingWebserver(), plan=plan.id)[0])
    assert f"Plan {plan.id} was not verified." in message
    assert lake.values() == {FIRST: 10, SECOND: 20}
    assert Releases(str(lake.root)).of_channel().number == 1


def test_without_a_webserver_the_plan_is_published_all_the_same(lake):
    plan = lake.shadow_plan({A.name: [SECOND]})
    lake.write({SECOND: 21}, into=plan)
    verify_and_accept(lake, plan)
    result, instance = launched(lake, ReportingWebserver(runs=False), plan=plan.id)
    assert result.success
    assert lake.values() == {FIRST: 10, SECOND: 21}
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
