"""The job `publish`, executed by Dagster in this process: rows, release, records and metadata."""

import re

import pytest
from dagster import DagsterInstance

from backfill_assets.dagster_client import tags
from backfill_assets.lake.pointers import open_channel
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.verify.verify import Verdicts, verify
from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, NOW, A, SmallLake
from tests.worlds.webservers import ReportingWebserver

FIRST, SECOND, _, _ = DAYS
REASON = "one was forgotten"


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    """Two days of A, released."""
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 10, SECOND: 20})
    assert isinstance(release_live(lake.workspace, who="the sensor"), Released)
    return lake


@pytest.fixture
def plan(lake) -> Plan:
    """A plan whose shadow has another value of the second day."""
    plan = lake.shadow_plan({A.name: [SECOND]})
    lake.write({SECOND: 21}, into=plan)
    return plan


def verify_and_accept(lake: SmallLake, plan: Plan) -> None:
    undecided = verify(plan, lake.workspace, who="ada", now=lambda: NOW).undecided()
    verdict = Verdicts(str(lake.root)).accept(
        plan.id, [check.name for check in undecided], who="ada", reason=REASON, at=NOW
    )
    assert verdict.passed


def test_a_verified_plan_goes_live_is_released_and_its_days_are_reported(lake, plan):
    verify_and_accept(lake, plan)
    webserver = ReportingWebserver()
    with DagsterInstance.ephemeral() as instance:
        result = executed(
            "publish",
            lake.workspace,
            webserver.dagster,
            instance=instance,
            plan=plan.id[:6],
            reason=REASON,
        )
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.tags[tags.PLAN] == plan.id
    assert lake.values() == {FIRST: 10, SECOND: 21}
    release = open_channel(str(lake.root))
    assert (release.number, release.kind, release.who) == (2, "publish", "ada")
    assert release.reason == f"plan {plan.id}: {REASON}"
    shown = metadata(result)
    assert (shown["plan"], shown["release"]) == (plan.id, 2)
    assert f"{A.name} | {SECOND}" in shown["days"]
    assert webserver.reported == [(A.name, SECOND)]


def test_an_unverified_plan_fails_the_run_and_live_is_unchanged(lake, plan, golden):
    result = executed("publish", lake.workspace, ReportingWebserver().dagster, plan=plan.id)
    golden(failure(result), PLAN=plan.id)
    assert lake.values() == {FIRST: 10, SECOND: 20}
    assert open_channel(str(lake.root)).number == 1


def test_without_a_webserver_the_plan_is_published_and_the_log_names_the_command(lake, plan):
    verify_and_accept(lake, plan)
    webserver = ReportingWebserver(runs=False)
    with DagsterInstance.ephemeral() as instance:
        result = executed(
            "publish", lake.workspace, webserver.dagster, instance=instance, plan=plan.id
        )
        messages = [event.user_message for event in instance.all_logs(result.run_id)]
    assert result.success
    assert lake.values() == {FIRST: 10, SECOND: 21}
    assert any("`backfill reconcile --repair`" in message for message in messages)


def test_days_in_conflict_stay_and_the_run_fails_after_the_others_are_published(lake, golden):
    plan = lake.shadow_plan({A.name: [FIRST, SECOND]})
    lake.write({FIRST: 11, SECOND: 21}, into=plan)
    verify_and_accept(lake, plan)
    lake.write({FIRST: 12})
    webserver = ReportingWebserver()
    options = {"plan": plan.id, "without_conflicts": True}
    result = executed("publish", lake.workspace, webserver.dagster, **options)
    golden(re.sub(r"on \S+ \S+ UTC", "on <TIME>", failure(result)), PLAN=plan.id)
    assert lake.values() == {FIRST: 12, SECOND: 21}
    assert webserver.reported == [(A.name, SECOND)]
