"""`backfill rollback` without servers: what it prints, asks and exits with, and that the rows are
back.
"""

import getpass
import json
from datetime import date, timedelta

import pytest

from backfill_assets.cli import exit_codes
from backfill_assets.publish.rollback import Decision, Kind, RolledBack
from backfill_assets.verbs.rollback import RollbackPreview, rollback_lines
from tests.worlds.command_line import (
    REJECTED,
    backfill,
    on_a_terminal,
    refused,
    two_days,
    values_of,
    without_now,
)
from tests.worlds.deliveries import day
from tests.worlds.small_lake import NOW, SmallLake

FIRST = day(0)
SECOND = day(1)
THIRD = day(2)


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return two_days(tmp_path)


def built(lake: SmallLake, *days) -> str:
    """The id of a plan that has built these days, each with seven rows."""
    plan = lake.plan({REJECTED: list(days)})
    lake.write(dict.fromkeys(days, 7), table=REJECTED, plan=plan.id)
    return plan.id


def test_the_days_are_shown_and_put_back_and_what_is_left_to_do_is_said(lake, tmp_path, golden):
    plan = built(lake, SECOND)
    done = backfill("rollback", plan[:5], "--reason", "a wrong rule", "--yes", home=tmp_path)
    assert done.exit_code == exit_codes.DONE, done.output
    golden(done.stdout, command="rollback", PLAN=plan)  # No webserver answers.
    assert lake.values(REJECTED) == {FIRST: 1, SECOND: 2}
    assert lake.plans.state(plan) == "rolled_back"


def test_a_rolled_back_plan_is_not_run_again_and_its_request_makes_a_new_plan(
    lake, tmp_path, golden
):
    plan = built(lake, SECOND)
    backfill("rollback", plan, "--yes", home=tmp_path)
    assert values_of("list", home=tmp_path)["plans"][0]["state"] == "rolled_back"
    code, message = refused("resume", plan, home=tmp_path)
    assert code == exit_codes.WRONG_USAGE
    golden(message, command="resume", PLAN=plan)


def test_a_plan_that_was_rolled_back_is_shown_as_it_ended_and_in_words(lake, tmp_path, golden):
    """Thirteen hours later its days are no longer the plan's; it had taken 15 s, and built one of
    two.
    """
    plan = lake.plan({REJECTED: [SECOND, THIRD]}).id
    lake.write({SECOND: 7}, table=REJECTED, plan=plan)
    counts = {
        "days": 2,
        "done": 1,
        "failed": 1,
        "blocked": 0,
        "running": 0,
        "pending": 0,
        "saved": 0,
    }
    lake.plans.note(plan, "started", NOW, who="ada")
    lake.plans.note(
        plan,
        "ended",
        NOW + timedelta(seconds=15),
        ending="partial",
        tables={REJECTED: counts},
        early_stops=["Early."],
    )
    assert (
        backfill("rollback", plan, "--reason", "a wrong rule", "--yes", home=tmp_path).exit_code
        == exit_codes.DONE
    )
    shown = backfill("show", plan, home=tmp_path).stdout
    golden(without_now(shown), command="show", PLAN=plan)
    values = values_of("show", plan, home=tmp_path)
    assert (values["state"], values["ending"], values["seconds"], values["tables"]) == (
        "rolled_back", "partial", 15.0, {REJECTED: counts},
    )  # fmt: skip
    event = values["events"][-1]
    assert (event["kind"], event["who"], event["reason"], event["restored"]) == (
        "rolled_back", getpass.getuser(), "a wrong rule", 1,
    )  # fmt: skip
    assert " rolled back " in backfill("list", home=tmp_path).stdout
    watched = values_of("watch", plan, home=tmp_path)
    assert (watched["plan"], watched["ending"]) == (plan, "rolled_back")


def test_what_stays_makes_the_rollback_partial_and_json_names_it(lake, tmp_path):
    plan = built(lake, SECOND, THIRD)
    lake.write({SECOND: 5}, table=REJECTED)
    done = backfill("rollback", plan, "--json", "--yes", home=tmp_path)
    values = json.loads(done.stdout)
    assert (done.exit_code, values["exit_code"]) == (exit_codes.PARTIAL, exit_codes.PARTIAL)
    assert (values["restore"], values["remove"]) == ({}, {REJECTED: {str(THIRD): ""}})
    assert "run3" in values["conflict"][REJECTED][str(SECOND)]
    assert lake.values(REJECTED) == {FIRST: 1, SECOND: 5}


def test_a_plan_that_changed_no_rows_has_nothing_to_put_back(lake, tmp_path, golden):
    plan = lake.plan({REJECTED: [SECOND]}).id
    done = backfill("rollback", plan, home=tmp_path)
    assert done.exit_code == exit_codes.DONE
    golden(done.stdout, command="rollback", PLAN=plan)
    assert lake.plans.state(plan) == "done"


def test_what_puts_nothing_back_says_so_and_the_plan_stays_what_it_is(lake, tmp_path, golden):
    plan = built(lake, SECOND)
    lake.write({SECOND: 5}, table=REJECTED)
    done = backfill("rollback", plan, home=tmp_path)
    assert done.exit_code == exit_codes.PARTIAL
    golden(without_now(done.stdout), command="rollback", PLAN=plan)
    assert (lake.plans.state(plan), lake.values(REJECTED)[SECOND]) == ("done", 5)


def test_a_second_rollback_says_that_nothing_was_changed(lake, tmp_path, golden):
    plan = built(lake, SECOND)
    backfill("rollback", plan, "--yes", home=tmp_path)
    events = lake.plans.history(plan)
    done = backfill("rollback", plan, home=tmp_path)
    assert done.exit_code == exit_codes.DONE
    golden(done.stdout, command="rollback", PLAN=plan)
    assert lake.plans.history(plan) == events


def test_on_a_narrow_terminal_names_and_days_are_whole(lake, tmp_path):
    plan = built(lake, FIRST, SECOND)
    _, printed = on_a_terminal("n", "rollback", plan, home=tmp_path, columns="40")
    assert f"  {REJECTED}  {FIRST}..{SECOND}\r\n" in printed


def test_a_plan_must_be_named(lake, tmp_path):
    built(lake, SECOND)
    code, message = refused("rollback", home=tmp_path)
    assert (code, message.startswith("Which plan?")) == (exit_codes.WRONG_USAGE, True)
    assert lake.values(REJECTED)[SECOND] == 7


def test_the_result_says_what_was_removed_and_does_not_count_nothing(golden):
    removed = {(REJECTED, FIRST): Decision(Kind.REMOVE)}
    (first, *_) = rollback_lines("abc", RolledBack(removed))
    golden(str(first), command="rollback")


def test_the_question_says_what_is_restored_and_what_is_removed(golden):
    kinds = (Kind.RESTORE, Kind.REMOVE, Kind.REMOVE, Kind.LOST)
    decisions = {(REJECTED, date(2019, 9, n)): Decision(kind) for n, kind in enumerate(kinds, 1)}
    golden(RollbackPreview(decisions, has_rest=False).question, command="rollback")


def test_on_a_terminal_it_asks_and_enter_is_no_which_leaves_everything(lake, tmp_path):
    plan = built(lake, SECOND)
    code, printed = on_a_terminal("", "rollback", plan, home=tmp_path)
    assert (code, lake.values(REJECTED)[SECOND], lake.plans.state(plan)) == (
        exit_codes.PARTIAL,
        7,
        "done",
    )
    question = printed.index("Restore 1 partition(s)?")
    assert printed.index(str(SECOND)) < question < printed.index("Nothing was restored.")
    code, _ = on_a_terminal("y", "rollback", plan, home=tmp_path)
    assert (code, lake.values(REJECTED)[SECOND]) == (exit_codes.DONE, 2)
