"""The job `preview`, as Dagster executes it, in this process."""

import pytest

from backfill_assets.lake.channels import ChannelHistory
from backfill_assets.lake.pointers import open_channel
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.release_live import release_live
from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, A, SmallLake, verdict_of

FIRST, SECOND, _, _ = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 10, SECOND: 20})
    release_live(lake.workspace, who="the sensor")
    return lake


@pytest.fixture
def plan(lake) -> Plan:
    plan = lake.shadow_plan({A.name: [SECOND]})
    lake.write({SECOND: 21}, into=plan)
    return plan


def test_a_run_gives_a_verified_plan_to_the_readers_of_a_channel(lake, plan):
    verdict_of(plan, lake.workspace)
    result = executed("preview", lake.workspace, plan=plan.id[:6], channel="candidate", reason="r")
    assert metadata(result) == {"plan": plan.id, "release": 1, "channel": "candidate"}
    assert open_channel(str(lake.root), "candidate").preview == plan.id
    assert open_channel(str(lake.root)).preview == ""
    pointer = ChannelHistory(str(lake.root)).now().pointers["candidate"]
    assert (pointer.who, pointer.reason) == ("ada", "r")


def test_an_unverified_plan_fails_the_run_and_no_reader_gets_it(lake, plan, golden):
    result = executed("preview", lake.workspace, plan=plan.id, channel="candidate")
    golden(failure(result), PLAN=plan.id)
    assert open_channel(str(lake.root), "candidate").preview == ""
