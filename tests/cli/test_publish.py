"""`backfill publish`, `rebase` and `discard` without servers: what they print and exit with, and
what live holds then.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from backfill_assets.cli import exit_codes
from backfill_assets.errors import UsageError
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.conflicts import state_of
from backfill_assets.reading import read
from backfill_assets.verify.checklist import CheckLine, CheckOutcome, PlanVerdict
from backfill_assets.verify.verify import Verdicts, verified_code, verified_versions
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.command_line import (
    FIRST,
    REJECTED,
    SECOND,
    backfill,
    on_a_terminal,
    refused,
    two_days,
    values_of,
    without_now,
)
from tests.worlds.small_lake import NOW, SmallLake, contents


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return two_days(tmp_path)


@pytest.fixture
def plan(lake, tmp_path) -> Plan:
    """A plan of the second day, built in its shadow and verified."""
    workspace = open_workspace(home=tmp_path, landing=tmp_path)
    plan = lake.shadow_plan({REJECTED: [SECOND]}, workspace=workspace)
    lake.write({SECOND: 7}, table=REJECTED, into=plan)
    accepted(plan, lake, workspace)
    return plan


def accepted(plan: Plan, lake: SmallLake, workspace: Workspace) -> None:
    """Store a verdict that passed, on the shadow as it is now."""
    seen = verified_versions(plan, state_of(plan, workspace))
    Verdicts(str(lake.root)).keep(
        PlanVerdict(
            plan.id,
            (CheckLine("rows", CheckOutcome.PASSED, "7 rows"),),
            seen,
            verified_code(plan, workspace),
            NOW,
            "ada",
        )
    )


def test_a_verified_plan_is_published_and_what_readers_get_is_said(lake, plan, tmp_path, golden):
    done = backfill(
        "publish", plan.id[:5], "--reason", "a new rule", home=tmp_path, landing=tmp_path
    )
    assert done.exit_code == exit_codes.DONE, done.output
    golden(done.stdout, command="publish", PLAN=plan.id)  # no webserver answers
    assert lake.values(REJECTED) == {FIRST: 1, SECOND: 7}


def test_a_dry_run_shows_what_would_be_published_and_changes_nothing(lake, plan, tmp_path):
    before = contents(lake.root)
    values = values_of("publish", "--dry-run", home=tmp_path, landing=tmp_path)
    assert (values["accepted"], values["unchanged"], values["waits_for"]) == (1, 0, [])
    shown = backfill("publish", "--dry-run", home=tmp_path, landing=tmp_path)
    assert str(SECOND) in shown.stdout
    assert contents(lake.root) == before
    assert values_of("publish", home=tmp_path, landing=tmp_path)["accepted"] == 1
    code, _ = refused("publish", plan.id, "--dry-run", home=tmp_path, landing=tmp_path)
    assert code == exit_codes.WRONG_USAGE


def test_the_list_says_where_a_plan_is(lake, plan, tmp_path):
    def listed() -> tuple[str, bool]:
        done = backfill("list", "--json", home=tmp_path, landing=tmp_path)
        (values,) = json.loads(done.stdout)["plans"]
        return values["state"], values["in_shadow"]

    assert listed() == ("done", True)
    assert "in its shadow" in backfill("list", home=tmp_path, landing=tmp_path).stdout
    backfill("publish", plan.id, home=tmp_path, landing=tmp_path)
    assert listed() == ("published", False)


def test_a_plan_that_was_given_up_before_it_was_started_has_no_shadow(lake, plan, tmp_path):
    given_up = replace(plan, repeat=1)
    lake.plans.keep(given_up)
    backfill("cancel", given_up.id, home=tmp_path, landing=tmp_path)
    listed = values_of("list", home=tmp_path, landing=tmp_path)
    states = {values["plan"]: values["in_shadow"] for values in listed["plans"]}
    assert states == {plan.id: True, given_up.id: False}
    discarded = values_of("discard", "--yes", home=tmp_path, landing=tmp_path)
    assert discarded["plan"] == plan.id


def test_a_few_readers_try_a_plan_before_it_is_published(lake, plan, tmp_path, monkeypatch, golden):
    monkeypatch.setenv("BACKFILL_HOME", str(tmp_path))

    def rows(channel: str = "stable", preview: str = "") -> int:
        return read(REJECTED, channel=channel, preview=preview).to_table().num_rows

    def command(*words: str) -> dict[str, Any]:
        return values_of(*words, home=tmp_path, landing=tmp_path)

    values = command("preview", "--channel", "candidate", "--reason", "a new rule")
    assert (values["plan"], values["release"], values["days"]) == (
        plan.id,
        1,
        {REJECTED: [str(SECOND)]},
    )
    assert (rows(), rows(channel="candidate"), rows(preview=plan.id)) == (3, 8, 8)
    (line,) = command("status")["not_following"]
    golden(without_now(line), "status", command="preview", PLAN=plan.id)
    assert command("publish")["accepted"] == 1
    assert (rows(), rows(channel="candidate")) == (8, 8)
    assert command("status")["not_following"] == []
    code, message = refused("publish", home=tmp_path, landing=tmp_path)
    assert code == exit_codes.WRONG_USAGE
    golden(message, "publish", command="preview")
    with pytest.raises(UsageError) as raised:
        rows(preview=plan.id)
    golden(str(raised.value), "read", command="preview", PLAN=plan.id)


def test_a_rebase_moves_the_preview_and_says_to_which_release(lake, plan, tmp_path, golden):
    backfill("preview", plan.id, home=tmp_path, landing=tmp_path)
    lake.write({FIRST: 5}, table=REJECTED)
    done = backfill("rebase", plan.id, home=tmp_path, landing=tmp_path)
    golden(done.stdout, command="rebase", PLAN=plan.id)


def test_stable_gets_no_preview(lake, plan, tmp_path):
    code, message = refused(
        "preview", plan.id, "--channel", "stable", home=tmp_path, landing=tmp_path
    )
    assert code == exit_codes.WRONG_USAGE
    assert f"`backfill preview {plan.id} --channel candidate`" in message


def test_what_a_plan_has_built_in_its_shadow_is_explained_and_logged(lake, plan, tmp_path):
    arguments = ["status", "--why", REJECTED, str(SECOND), "--json"]
    explained = json.loads(backfill(*arguments, home=tmp_path, landing=tmp_path).stdout)
    assert [build["in_shadow"] for build in explained["builds"]][-1]
    builds = values_of("log", "--plan", plan.id, home=tmp_path, landing=tmp_path)["builds"]
    assert [(build["table"], build["day"]) for build in builds] == [(REJECTED, str(SECOND))]
    assert values_of("log", home=tmp_path, landing=tmp_path)["builds"][-1]["plan"] == ""


def test_a_published_plan_can_be_taken_back(lake, plan, tmp_path, golden):
    backfill("publish", plan.id, home=tmp_path, landing=tmp_path)
    done = backfill("rollback", plan.id, "--yes", home=tmp_path, landing=tmp_path)
    assert done.exit_code == exit_codes.DONE
    golden(done.stdout, command="rollback", PLAN=plan.id)
    assert lake.values(REJECTED) == {FIRST: 1, SECOND: 2}


def test_before_it_is_published_there_is_nothing_to_take_back(lake, plan, tmp_path, golden):
    code, message = refused("rollback", plan.id, home=tmp_path, landing=tmp_path)
    assert code == exit_codes.WRONG_USAGE
    golden(message, command="rollback", PLAN=plan.id)


def test_a_conflict_is_refused_with_the_command_that_solves_it_and_that_works(
    lake, plan, tmp_path, golden
):
    lake.write({SECOND: 5}, table=REJECTED)
    code, conflict = refused("publish", plan.id, home=tmp_path, landing=tmp_path)
    assert code == exit_codes.STOPPED
    golden(without_now(conflict), "conflict", command="publish", PLAN=plan.id)
    done = backfill("rebase", plan.id, "--json", home=tmp_path, landing=tmp_path)
    assert done.exit_code == exit_codes.DONE, done.output
    ((partition, why),) = json.loads(done.stdout)["conflicts"].items()
    assert partition == f"{REJECTED} {SECOND}"
    assert why in conflict
    # The verdict was on what live held before.
    code, message = refused("publish", plan.id, home=tmp_path, landing=tmp_path)
    golden(message, "verdict", command="publish", PLAN=plan.id)


def test_a_discarded_plan_is_gone_and_the_same_request_makes_a_new_one(
    lake, plan, tmp_path, golden
):
    code, _ = on_a_terminal("n", "discard", plan.id, home=tmp_path)
    assert (code, lake.plans.state(plan.id)) == (exit_codes.PARTIAL, "done")
    done = backfill("discard", plan.id, "--yes", home=tmp_path, landing=tmp_path)
    assert done.exit_code == exit_codes.DONE
    assert not (lake.root / "_shadow" / plan.id).exists()
    assert lake.values(REJECTED) == {FIRST: 1, SECOND: 2}
    code, message = refused("diff", plan.id, home=tmp_path, landing=tmp_path)
    golden(message, "diff", command="discard", PLAN=plan.id)
    code, message = refused("resume", plan.id, home=tmp_path, landing=tmp_path)
    assert code == exit_codes.WRONG_USAGE
    golden(message, "resume", command="discard", PLAN=plan.id)


def test_a_plan_is_published_in_part_and_live_keeps_the_rest(lake, tmp_path, golden):
    def command(*words: str) -> Any:
        return values_of(*words, home=tmp_path, landing=tmp_path)

    workspace = open_workspace(home=tmp_path, landing=tmp_path)
    plan = lake.shadow_plan({REJECTED: [FIRST, SECOND]}, workspace=workspace)
    lake.write({FIRST: 6, SECOND: 7}, table=REJECTED, into=plan)
    accepted(plan, lake, workspace)
    lake.write({SECOND: 5}, table=REJECTED)
    _, message = refused("publish", plan.id, home=tmp_path, landing=tmp_path)
    advice = f"backfill publish {plan.id} --without-conflicts"
    golden(without_now(message), "conflict", command="publish", PLAN=plan.id)
    decided = command(*advice.split()[1:], "--dry-run")
    assert (decided["accepted"], list(decided["left"])) == (1, [f"{REJECTED} {SECOND}"])
    done = backfill(*advice.split()[1:], home=tmp_path, landing=tmp_path)
    assert done.exit_code == exit_codes.PARTIAL, done.output
    assert lake.values(REJECTED) == {FIRST: 6, SECOND: 5}
    assert [(each["state"], each["left"]) for each in command("list")["plans"]] == [("done", 1)]
    shown = backfill("show", plan.id, home=tmp_path, landing=tmp_path).stdout
    golden(without_now(shown), "show", command="publish", PLAN=plan.id)
    assert command("rebase", "--keep", "live")["kept"] == [f"{REJECTED} {SECOND}"]
    accepted(plan, lake, workspace)
    assert command("publish")["left"] == {}
    assert (lake.values(REJECTED), lake.plans.state(plan.id)) == (
        {FIRST: 6, SECOND: 5},
        "published",
    )
