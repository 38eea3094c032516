"""Runs of the assets of shadows: what they write and show, and what they refuse. With Spark:
Dagster runs real steps.
"""

from collections.abc import Iterator

import pytest
from dagster import AssetCheckKey, AssetKey

from backfill_assets.dagster_client import tags
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.shadow import open_shadow, workspace_of
from backfill_assets.plan.store import Plans
from tests.worlds.code_location import CodeLocation, delivered
from tests.worlds.deliveries import day, days
from tests.worlds.outages import FOUR, RAW, REJECTED, UPDATES

SHADOWS = [f"shadow/{name}" for name in (REJECTED, RAW, UPDATES)]


@pytest.fixture(scope="module")
def location(tmp_path_factory, spark) -> Iterator[CodeLocation]:
    with delivered(tmp_path_factory.mktemp("location"), spark) as made:
        yield made


def plan_of(location: CodeLocation, numbers: list[int], into="shadow") -> Plan:
    planned = {
        name: {day(n): Reason(ReasonKind.MISSING) for n in numbers}
        for name in (REJECTED, RAW, UPDATES)
    }
    code = {name: location.world.table(name).version for name in planned}
    plan = Plan(
        code,
        planned,
        [Chunk(0, {name: days(*numbers) for name in planned})],
        PlanOptions(into=into),
    )
    Plans(str(location.world.root)).keep(plan)
    return plan


def test_a_run_of_a_plan_builds_and_shows_its_days_in_the_shadow_only(location: CodeLocation):
    plan = plan_of(location, [0, 1])
    open_shadow(plan, location.world.workspace, "ada")
    result = location.run_assets(SHADOWS, FOUR[:2], {tags.PLAN: plan.id})
    assert result.success, location.failures(result)
    assert [location.materialized(name) for name in SHADOWS] == [{str(day(0)), str(day(1))}] * 3
    assert [location.materialized(name) for name in (REJECTED, RAW, UPDATES)] == [set()] * 3
    assert location.world.versions()[RAW] == -1
    builds = workspace_of(plan, location.world.workspace).lake.latest({UPDATES: None}).accepted
    assert {at: build.rows for (_, at), build in builds.items()} == {day(0): 20, day(1): 20}
    check = AssetCheckKey(AssetKey(SHADOWS[2].split("/")), "unique_key")
    record = location.instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[
        check
    ]
    assert record.status.value == "SUCCEEDED"


@pytest.mark.parametrize(
    ("numbers", "into", "opened"),
    [
        (None, "", False),
        ([2, 3], "live", False),
        ([2, 3], "shadow", False),
        ([3], "shadow", True),
    ],
    ids=[
        "without a plan",
        "of a plan into live",
        "before it is open",
        "a day that the plan does not have",
    ],
)
def test_a_run_that_has_no_shadow_to_build_in_says_how_to_open_one_and_reads_nothing(
    location: CodeLocation, numbers, into, opened, golden
):
    open_shadow(plan_of(location, [0, 1]), location.world.workspace, "ada")
    tagged = {}
    shown = {}
    if numbers:
        plan = plan_of(location, numbers, into)
        tagged = {tags.PLAN: plan.id}
        shown = {"PLAN": plan.id}
        if opened:
            open_shadow(plan, location.world.workspace, "ada")
    result = location.run_assets(SHADOWS, FOUR[2:], tagged)
    assert not result.success
    golden(location.failures(result)[SHADOWS[0]], **shown)
    assert location.world.versions()[RAW] == -1


def test_a_run_of_live_with_a_plan_into_a_shadow_writes_nothing(location: CodeLocation, golden):
    plan = plan_of(location, [0, 1, 2])
    result = location.run_assets([REJECTED, RAW, UPDATES], FOUR[:3], {tags.PLAN: plan.id})
    golden(location.failures(result)[REJECTED], PLAN=plan.id)
    assert location.world.versions()[RAW] == -1
