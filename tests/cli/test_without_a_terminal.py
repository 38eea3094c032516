"""`backfill` in a script: where no one can answer, what is asked on a terminal needs --yes."""

import json

import pytest

from backfill_assets.cli import exit_codes
from backfill_assets.errors import RefusedByGuard
from backfill_assets.workspace import open_workspace
from tests.worlds.command_line import DAY, REJECTED, SECOND, backfill, refused, two_days
from tests.worlds.small_lake import SmallLake


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return two_days(tmp_path)


def test_a_new_plan_is_stored_and_not_carried_out(lake, tmp_path, golden):
    request = ("run", "--partitions", str(DAY), "--target", REJECTED)
    error = backfill(*request, home=tmp_path).exception
    (plan,) = lake.plans.ids()
    assert isinstance(error, RefusedByGuard)
    assert (exit_codes.of_error(error), lake.plans.events(plan)) == (exit_codes.STOPPED, [])
    named = error.sentences_by_name()
    golden("\n".join(map(": ".join, named.items())), command="run", PLAN=plan)


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["for people", "for programs"])
def test_no_day_is_restored_until_yes_is_given(lake, tmp_path, flags):
    plan = lake.plan({REJECTED: [SECOND]}).id
    before = lake.values(REJECTED)
    lake.write({SECOND: 7}, table=REJECTED, plan=plan)
    code, message = refused("rollback", plan, *flags, home=tmp_path)
    assert (code, "--yes" in message) == (exit_codes.STOPPED, True)
    assert (lake.values(REJECTED)[SECOND], lake.plans.state(plan)) == (7, "done")
    done = backfill("rollback", plan, *flags, "--yes", home=tmp_path)
    assert (done.exit_code, lake.values(REJECTED)) == (exit_codes.DONE, before), done.output


def test_a_shadow_is_not_deleted_until_yes_is_given(lake, tmp_path):
    workspace = open_workspace(home=tmp_path, landing=tmp_path)
    plan = lake.shadow_plan({REJECTED: [SECOND]}, workspace=workspace)
    lake.write({SECOND: 7}, table=REJECTED, into=plan)
    shadow = lake.root / "_shadow" / plan.id
    code, message = refused("discard", plan.id, home=tmp_path)
    assert (code, "--yes" in message) == (exit_codes.STOPPED, True)
    assert (shadow.exists(), lake.plans.state(plan.id)) == (True, "done")
    done = backfill("discard", plan.id, "--yes", "--json", home=tmp_path)
    assert (done.exit_code, json.loads(done.stdout)["plan"]) == (exit_codes.DONE, plan.id)
    assert not shadow.exists()
