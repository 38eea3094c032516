"""What the verbs say and do of a plan that is published, or taken back, in part: nothing is
promised that is not so.
"""

import pytest

from backfill_assets.cli import exit_codes
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.command_line import (
    FIRST,
    REJECTED,
    SECOND,
    backfill,
    refused,
    two_days,
    values_of,
)
from tests.worlds.small_lake import NOW, SmallLake, approved, killed_when


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return two_days(tmp_path)


@pytest.fixture
def workspace(lake, tmp_path) -> Workspace:
    workspace = open_workspace(home=tmp_path, landing=tmp_path)
    release_live(workspace, who="sensor")
    return workspace


@pytest.fixture
def plan(lake, workspace) -> Plan:
    plan = lake.shadow_plan({REJECTED: [SECOND]}, workspace=workspace)
    lake.write({SECOND: 7}, table=REJECTED, into=plan)
    return plan


def half(lake: SmallLake, act) -> None:
    """Kill an act at the first moment at which it has changed live."""
    before = lake.values(REJECTED)
    with killed_when(lambda: lake.values(REJECTED) != before) as killed:
        act()
    assert killed


def test_half_a_publication_is_shown_as_such_and_is_not_cancelled(lake, workspace, plan, tmp_path):
    half(
        lake,
        lambda: Publication(plan, workspace, "ada").publish("candidate", lambda: NOW, approved),
    )
    finish = f"backfill publish {plan.id} --channel candidate"
    said = " ".join(backfill("show", plan.id, home=tmp_path, landing=tmp_path).stdout.split())
    assert f"`{finish}`" in said
    assert "nothing of live is released" in said
    assert "live is as it was" not in said
    assert "backfill discard" not in said
    shown = values_of("show", plan.id, home=tmp_path, landing=tmp_path)
    assert f"`{finish}`" in shown["half_done"]
    event = shown["events"][-1]
    assert (event["kind"], event["channel"], event["who"]) == ("publishing", "candidate", "ada")
    code, message = refused("cancel", plan.id, home=tmp_path, landing=tmp_path)
    assert (code, f"(`{finish}`)" in message) == (exit_codes.WRONG_USAGE, True)
    assert lake.plans.half_published() == [plan.id]


def test_half_a_rollback_is_shown_and_finished_before_any_other_act(
    lake, workspace, plan, tmp_path
):
    Publication(plan, workspace, "ada").publish("stable", lambda: NOW, approved)
    half(lake, lambda: roll_back(plan, workspace, who="ada", now=lambda: NOW))
    shown = values_of("show", plan.id, home=tmp_path, landing=tmp_path)
    finish = f"`backfill rollback {plan.id}`"
    assert finish in shown["half_done"]
    for channel in ("stable", "candidate"):
        code, message = refused(
            "publish", plan.id, "--channel", channel, home=tmp_path, landing=tmp_path
        )
        assert (code, finish in message) == (exit_codes.STOPPED, True)
    code, message = refused("maintain", "--apply", home=tmp_path, landing=tmp_path)
    assert (code, finish in message) == (exit_codes.STOPPED, True)
    assert (
        backfill("rollback", plan.id, home=tmp_path, landing=tmp_path).exit_code == exit_codes.DONE
    )
    assert (
        backfill("maintain", "--apply", home=tmp_path, landing=tmp_path).exit_code
        == exit_codes.DONE
    )
    assert lake.values(REJECTED) == {FIRST: 1, SECOND: 2}


def test_a_shadow_that_a_killed_rollback_has_left_is_deleted_by_the_next_one(lake, workspace, plan):
    with killed_when(lake.plans.half_published):  # live is marked, and nothing is in it
        Publication(plan, workspace, "ada").publish("stable", lambda: NOW, approved)
    with killed_when(lambda: lake.plans.is_rolled_back(plan.id)):
        roll_back(plan, workspace, who="ada", now=lambda: NOW)
    shadow = lake.root / "_shadow" / plan.id
    assert shadow.exists()
    roll_back(plan, workspace, who="ada", now=lambda: NOW)
    assert not shadow.exists()
