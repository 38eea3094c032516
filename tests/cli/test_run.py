"""`backfill run` and its companions where nothing can be launched: what is said, with which code,
and that nothing is left.

No servers: an address at which nobody answers stands for one that is down.
"""

import json
from datetime import timedelta

import pytest

from backfill_assets.datasets.outages.raw import rejected_lines
from backfill_assets.lake.ledger import Ledger
from backfill_assets.plan.lifecycle import resolve_plan_id
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from tests.worlds.command_line import (
    DAY,
    NOW,
    REJECTED,
    backfill,
    build_of,
    kept,
    planned,
    refused,
    replace_minute,
    values_of,
)
from tests.worlds.small_lake import record_act

pytestmark = pytest.mark.lake


@pytest.fixture
def plans(tmp_path) -> Plans:
    return Plans(str(tmp_path / "lake"))


def test_a_plan_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    plan = planned(tmp_path)
    code, message = refused("run", "c0ffee", home=tmp_path)
    assert (code, "c0ffee" in message, plan in message) == (2, True, True)


def test_the_beginning_of_an_id_names_a_plan_as_long_as_no_other_begins_so(tmp_path):
    plan = planned(tmp_path)
    other = planned(tmp_path, "--reason", "another")
    assert values_of("show", plan[:8], home=tmp_path)["plan"] == plan
    (tmp_path / "lake" / "_plans" / f"{plan[:8]}0000.json").write_text("{}")
    code, said = refused("show", plan[:8], home=tmp_path)
    assert (code, f"begin with {plan[:8]}." in said, other in said) == (2, True, False)
    assert plan in said


def test_a_plan_that_was_edited_by_hand_is_refused_by_its_id(tmp_path):
    plan = planned(tmp_path)
    file = tmp_path / "lake" / "_plans" / f"{plan}.json"
    file.write_text(file.read_text().replace(str(DAY), "2019-09-04"))
    code, said = refused("run", plan, home=tmp_path)
    assert (code, said.startswith(f"Plan {plan} was edited")) == (2, True)


def test_a_plan_of_a_renamed_table_is_refused_with_a_list_of_tables(tmp_path):
    code, said = refused("run", plan := kept(tmp_path, "raw/lines", "1"), home=tmp_path)
    assert (code, plan in said, "raw/lines" in said) == (2, True, True)
    assert "raw/rejected_lines, raw/outage_events" in said


def test_a_plan_of_other_code_is_refused_with_both_versions(tmp_path):
    code, said = refused("run", kept(tmp_path, REJECTED, "1"), home=tmp_path)
    versions = f"{REJECTED} (planned 1, now {rejected_lines.version})"
    assert (code, versions in said) == (2, True)


def test_a_server_that_is_down_is_said_and_the_plan_is_as_it_was(tmp_path, plans, golden):
    plan = planned(tmp_path)
    code, said = refused("run", plan, home=tmp_path)
    assert code == 3
    golden(said, command="run", PLAN=plan)
    assert plans.events(plan) == []


def test_a_plan_and_flags_together_are_wrong_usage(tmp_path):
    code, said = refused("run", planned(tmp_path), "--force", home=tmp_path)
    assert (code, "out --force" in said) == (2, True)


def test_what_is_up_to_date_is_all_done_and_asks_no_server(tmp_path):
    Ledger(str(tmp_path / "lake")).append([build_of()])
    request = ("run", "--partitions", str(DAY), "--target", REJECTED, "--json")
    done = backfill(*request, home=tmp_path)
    values = json.loads(done.stdout)
    assert (done.exit_code, values["plan"], values["ending"]) == (0, None, "done")


def test_a_day_in_an_open_plan_is_not_planned_again_until_that_ends(tmp_path, plans):
    first = planned(tmp_path)
    plans.note(first, "started", NOW, who="ada")
    flags = ("plan", "--partitions", str(DAY), "--target", REJECTED, "--reason", "again")
    code, said = refused(*flags, home=tmp_path)
    assert (code, said.startswith(f"{REJECTED} {DAY} "), first in said) == (4, True, True)
    assert plans.ids() == [first]
    plans.note(first, "ended", replace_minute(NOW), ending="partial")
    assert backfill(*flags, home=tmp_path).exit_code == 0


@pytest.mark.parametrize(
    "contents", ["{", '{"format": 1}', ""], ids=["damaged", "of another version", "empty"]
)
def test_an_open_plan_that_cannot_be_read_hinders_no_other_and_can_be_given_up(
    tmp_path, plans, contents
):
    plans.note(first := planned(tmp_path), "started", NOW, who="ada")
    (tmp_path / "lake" / "_plans" / f"{first}.json").write_text(contents)
    assert (
        backfill(
            "plan",
            "--partitions",
            str(DAY),
            "--target",
            REJECTED,
            "--reason",
            "again",
            home=tmp_path,
        ).exit_code
        == 0
    )
    code, said = refused("resume", first, home=tmp_path)
    assert (code, f"`backfill cancel {first}`" in said) == (2, True)
    refused("cancel", first, home=tmp_path)
    assert plans.state(first) == "cancelled"


def test_the_same_plan_may_be_made_again_while_it_is_open(tmp_path, plans):
    plans.note(first := planned(tmp_path), "started", NOW, who="ada")
    assert planned(tmp_path) == first


def test_what_was_carried_out_to_its_end_is_another_plan_when_it_is_asked_for_again(
    tmp_path, plans
):
    plain = planned(tmp_path)
    plans.note(plain, "ended", NOW, ending="partial")
    assert planned(tmp_path) == plain
    first = planned(tmp_path, "--force")
    plans.note(first, "ended", replace_minute(NOW), ending="done")
    second = planned(tmp_path, "--force")
    assert (second != first, planned(tmp_path, "--force")) == (True, second)
    plans.note(second, "started", NOW)
    plans.note(second, "cancelled", replace_minute(NOW))
    assert planned(tmp_path, "--force") not in (first, second)


def started(plans: Plans, reason: str, *endings: str) -> str:
    """A plan that was started, and ended so; started only, without an ending."""
    plan = Plan(
        {REJECTED: "1"},
        {REJECTED: {DAY: Reason(ReasonKind.MISSING)}},
        [Chunk(0, {REJECTED: [DAY]})],
        PlanOptions(reason=reason),
    )
    plans.keep(plan)
    plans.note(plan.id, "started", NOW)
    for minute, ending in enumerate(endings):
        plans.note(
            plan.id, "ended", NOW + timedelta(minutes=len(plans.ids()) + minute), ending=ending
        )
    return plan.id


@pytest.mark.parametrize("verb", ["resume", "cancel", "watch", "show"])
def test_a_verb_without_a_plan_refuses_to_guess(tmp_path, plans, verb, golden):
    code, message = refused(verb, home=tmp_path)
    assert code == 2
    golden(message, "none", command=verb)
    for reason in ("one", "two"):
        started(plans, reason)
    code, said = refused(verb, home=tmp_path)
    assert code == 2
    golden(said, "two", command=verb, OPEN=", ".join(plans.ids()))


def test_without_a_plan_the_open_one_is_meant_or_else_the_last_that_has_days_left(tmp_path, plans):
    done = started(plans, "one", "done")
    assert resolve_plan_id("", plans) == done
    record_act(tmp_path / "lake", "rollback", started(plans, "withdrawn", "done"))
    assert resolve_plan_id("", plans) == done
    partial = started(plans, "two", "partial")
    started(plans, "three", "done")
    assert resolve_plan_id("", plans) == partial
    plans.note(started(plans, "given up", "partial"), "cancelled", NOW + timedelta(days=1))
    assert resolve_plan_id("", plans) == partial
    later = started(plans, "four", "done", "partial")
    assert resolve_plan_id("", plans) == later
    going_on = started(plans, "five")
    assert (resolve_plan_id("", plans), resolve_plan_id(done, plans)) == (going_on, done)


def test_what_was_never_started_is_not_resumed(tmp_path):
    plan = planned(tmp_path)
    code, message = refused("resume", plan, home=tmp_path)
    assert (code, f"`backfill run {plan}`" in message) == (2, True)
    assert message.startswith(f"Plan {plan} was never started.")


@pytest.mark.parametrize("state", ["planned", "stopped", "refused", "partial"])
def test_a_plan_that_is_not_done_is_given_up_and_no_server_is_asked(tmp_path, plans, state):
    plan = kept(tmp_path, REJECTED, "1")
    if state != "planned":
        plans.note(plan, "started", NOW, who="ada")
        plans.note(plan, "ended", replace_minute(NOW), ending=state)
    done = backfill("cancel", plan, "--json", home=tmp_path)
    assert (done.exit_code, json.loads(done.stdout)["cancelled"]) == (0, [])
    assert plans.state(plan) == "cancelled"
    # The advice of this message can be followed.
    assert f"`backfill cancel {plan}`" in refused("run", plan, home=tmp_path)[1]


@pytest.mark.parametrize(
    ("state", "act"),
    [("done", ""), ("rolled_back", "rollback"), ("published", "publish"), ("discarded", "")],
)
def test_of_a_plan_that_is_done_nothing_is_left_to_give_up(tmp_path, plans, state, act):
    plan = kept(tmp_path, REJECTED, "1")
    plans.note(plan, "started", NOW, who="ada")
    plans.note(plan, "discarded" if state == "discarded" else "ended", NOW, ending="done")
    if act:
        record_act(tmp_path / "lake", act, plan)
    code, message = refused("cancel", plan, home=tmp_path)
    assert (code, plans.state(plan)) == (2, state)
    assert message.startswith(f"Plan {plan} is {state.replace('_', ' ')}.")


def test_a_cancelled_plan_launches_nothing_more_even_if_the_server_is_down_meanwhile(
    tmp_path, plans
):
    plans.note(plan := planned(tmp_path), "started", NOW, who="ada")
    code, said = refused("cancel", plan, home=tmp_path)
    assert (code, plan in said, "http://127.0.0.1:9" in said) == (3, True, True)
    assert [event.kind for event in plans.events(plan)] == ["started", "cancelled"]
