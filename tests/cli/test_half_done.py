"""What commands show and do after a publication or a rollback was killed."""

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
from tests.worlds.small_lake import SmallLake, approved, killed_when


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


def test_a_killed_publication_counts_as_published_and_maintain_finishes_it(
    lake, workspace, plan, tmp_path
):
    half(
        lake,
        lambda: Publication(plan, workspace, "ada").publish(approved),
    )
    shown = values_of("show", plan.id, home=tmp_path, landing=tmp_path)
    last = shown["events"][-1]
    assert (shown["state"], last["kind"], last["who"]) == ("published", "published", "ada")
    code, _ = refused("cancel", plan.id, home=tmp_path, landing=tmp_path)
    assert code == exit_codes.WRONG_USAGE
    assert workspace.lake.releases.newest().number == 1
    done = backfill("maintain", "--apply", home=tmp_path, landing=tmp_path)
    assert done.exit_code == exit_codes.DONE
    newest = workspace.lake.releases.newest()
    assert (newest.plans, newest.number) == ((plan.id,), 2)


def test_the_same_command_ends_a_killed_publication_without_the_id_of_the_plan(
    lake, workspace, plan, tmp_path
):
    publication = Publication(plan, workspace, "ada")
    half(lake, lambda: publication.publish(approved))
    assert values_of("publish", home=tmp_path, landing=tmp_path)["plan"] == plan.id
    code, _ = refused("publish", home=tmp_path, landing=tmp_path)
    assert code == exit_codes.WRONG_USAGE


@pytest.mark.parametrize(
    "command", [("rollback", "--yes"), ("maintain", "--apply")], ids=lambda words: words[0]
)
def test_a_killed_rollback_is_finished_by_another_command(lake, workspace, plan, tmp_path, command):
    Publication(plan, workspace, "ada").publish(approved)
    half(lake, lambda: roll_back(plan, workspace, who="ada"))
    code, _ = refused("publish", plan.id, home=tmp_path, landing=tmp_path)
    assert code == exit_codes.WRONG_USAGE
    name, *options = command
    words = [name, plan.id, *options] if name == "rollback" else command
    assert backfill(*words, home=tmp_path, landing=tmp_path).exit_code == exit_codes.DONE
    assert values_of("show", plan.id, home=tmp_path, landing=tmp_path)["state"] == "rolled_back"
    assert lake.values(REJECTED) == {FIRST: 1, SECOND: 2}


def test_a_shadow_that_a_killed_rollback_has_left_is_deleted_by_the_next_one(lake, workspace, plan):
    Publication(plan, workspace, "ada").publish(approved)
    shadow = lake.root / "_shadow" / plan.id
    shadow.mkdir()
    with killed_when(lambda: lake.plans.is_rolled_back(plan.id)):
        roll_back(plan, workspace, who="ada")
    assert shadow.exists()
    roll_back(plan, workspace, who="ada")
    assert not shadow.exists()
