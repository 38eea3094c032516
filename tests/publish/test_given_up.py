"""A rebuild into live that was given up half way is released once it is finished, taken back, or
decided on. No Spark.
"""

from dataclasses import replace

import pytest

from backfill_assets.errors import RefusedByGuard
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.live import last_commits
from backfill_assets.publish.release_live import (
    NothingNew,
    Released,
    Withheld,
    release_as_it_stands,
    release_live,
)
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    half_published,
    publish,
    rebuilt_in_shadow,
    released,
)

D0, D1, D2, D3 = DAYS


def half_built(lake: SmallLake, ending: str) -> Plan:
    """A plan of a day of A and B in live, which has built A and ended so."""
    plan = lake.plan({A.name: [D1], B.name: [D1]})
    lake.plans.note(plan.id, "started", NOW, who="ada")
    lake.write({D1: 5}, plan=plan.id)
    if ending == "cancelled":
        lake.plans.note(plan.id, "cancelled", NOW, who="ada")
    else:
        lake.plans.note(plan.id, "ended", NOW, ending=ending, why="the budget")
    return plan


def decide(lake: SmallLake) -> object:
    return release_live(lake.workspace, who="sensor")


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("cancelled", "was cancelled"),
        ("stopped", "was stopped"),
        ("partial", "ended"),
        ("refused", "ended"),
    ],
)
def test_a_plan_that_ended_before_all_was_built_withholds_what_it_has_built(lake, ending, said):
    plan = half_built(lake, ending)
    decision = decide(lake)
    assert isinstance(decision, Withheld)
    assert [str(reason) for reason in decision.reasons] == [
        f"plan {plan.id} {said} with 1 of its 2 partition(s) not built, as {B.name} {D1}: `backfill"
        f" resume {plan.id}` builds them, `backfill rollback {plan.id}` takes back what is built"
    ]
    with pytest.raises(RefusedByGuard, match=f"plan {plan.id} {said} with 1 of its 2"):
        publish(lake, rebuilt_in_shadow(lake, {D2: 8}))
    assert released(lake) == released(lake, B.name) == RELEASED


@pytest.mark.parametrize("then", ["resumed", "built by a night", "failed", "taken back", "decided"])
def test_it_is_released_once_nothing_of_it_is_half_done_or_a_person_decides(lake, then):
    plan = half_built(lake, "cancelled")
    day_of_b = 5
    before = last_commits(lake.workspace)
    if then == "resumed":
        lake.plans.note(plan.id, "started", NOW, who="ada")
        lake.write({D1: 5}, table=B.name, plan=plan.id)
        lake.plans.note(plan.id, "ended", NOW, ending="done")
    elif then == "built by a night":
        lake.write({D1: 5}, table=B.name)
    elif then == "failed":
        lake.fail(D1, table=B.name)
        decision = decide(lake)
        assert isinstance(decision, Withheld)
        assert [reason.cause for reason in decision.reasons] == ["failed"]
        return
    elif then == "taken back":
        lake.roll_back(plan)
        day_of_b = 2
    else:
        day_of_b = 2
        decision = release_as_it_stands(lake.workspace, who="bo", reason="enough")
        assert isinstance(decision, Released)
        assert decision.release.reason.startswith(
            f"enough (in spite of plan {plan.id} was cancelled with 1 of its 2 "
        )
        lake.write({D3: 9})
    assert last_commits(lake.workspace) != before
    # A rollback has a release of its own.
    assert isinstance(decide(lake), NothingNew if then == "taken back" else Released)
    a = released(lake)[D1]
    b = released(lake, B.name)[D1]
    assert (a, b) == (2 if then == "taken back" else 5, day_of_b)


def test_a_plan_that_has_built_all_its_days_or_none_withholds_nothing(lake):
    plan = lake.plan({A.name: [D1], B.name: [D1]})
    lake.plans.note(plan.id, "cancelled", NOW, who="ada")
    lake.write({D3: 9})
    assert isinstance(decide(lake), Released)
    for table in (A.name, B.name):
        lake.write({D1: 5}, table=table, plan=plan.id)
    assert isinstance(decide(lake), Released)


def test_rows_that_a_night_finds_as_a_plan_wrote_them_are_still_half_of_that_plan(lake):
    half_built(lake, "cancelled")
    lake.write({D1: 5})
    assert isinstance(decide(lake), Withheld)
    assert released(lake) == released(lake, B.name) == RELEASED


def test_a_plan_that_has_found_all_rows_as_they_were_keeps_nothing_from_readers(lake):
    plan = lake.plan({A.name: [D1], B.name: [D1]})
    lake.write({D1: RELEASED[D1]}, plan=plan.id)
    lake.plans.note(plan.id, "cancelled", NOW, who="ada")
    lake.write({D3: 9})
    assert isinstance(decide(lake), Released)
    assert released(lake) == RELEASED | {D3: 9}


@pytest.mark.parametrize(
    "beside", ["a failed day", "an open plan that has not written yet", "rows that differ"]
)
def test_what_would_keep_live_from_being_released_is_asked_before_the_first_commit(lake, beside):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    files = lake.files()
    if beside == "a failed day":
        lake.fail(D3)
    elif beside == "rows that differ":
        ledger = lake.workspace.lake.ledger
        built = ledger.builds({A.name: [D3]})[-1]
        found = replace(
            built,
            outcome="refused",
            finding="other_rows",
            message="the rows are others",
            fingerprint="other",
            at=ledger.next_time(A.name),
        )
        ledger.append([found])
    else:
        other = lake.plan({A.name: [D3]}, reason="another")
        lake.plans.note(other.id, "started", NOW, who="ben")
    with pytest.raises(
        RefusedByGuard, match=r"Live has changes that are not released.*Nothing was published"
    ):
        publish(lake, plan)
    assert lake.files() == files
    assert lake.plans.state(plan.id) == "done"
    if beside != "an open plan that has not written yet":
        # A person decides on it, as the message says.
        assert isinstance(release_as_it_stands(lake.workspace, who="bo", reason="known"), Released)
        publish(lake, plan)
        assert released(lake)[D1] == 7


def test_a_failed_day_does_not_keep_a_killed_publication_from_being_finished(lake):
    half_published(lake, {D1: 7})
    lake.fail(D3)
    release_live(lake.workspace, who="sensor")
    assert released(lake) == released(lake, B.name) == RELEASED | {D1: 7}


@pytest.mark.parametrize("finish", [publish, SmallLake.roll_back])
def test_half_a_publication_of_an_older_version_is_finished_by_its_command(lake, finish):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    lake.plans.note(plan.id, "publishing", NOW, who="ada", reason="", channel="stable")
    # As the older version left it: A is in live, B is not.
    lake.write({D1: 7}, plan=plan.id)
    decision = release_live(lake.workspace, who="sensor")
    assert isinstance(decision, Withheld)
    assert [reason.cause for reason in decision.reasons][:1] == ["open plan"]
    assert released(lake) == RELEASED
    finish(lake, plan)
    release_live(lake.workspace, who="sensor")
    value = 7 if finish is publish else 2
    assert released(lake)[D1] == released(lake, B.name)[D1] == value


def test_a_plan_is_not_taken_back_under_one_that_builds_the_same_days_in_live(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan)
    other = lake.plan({A.name: [D1]}, reason="another")
    lake.plans.note(other.id, "started", NOW, who="ben")
    with pytest.raises(RefusedByGuard, match=f"(?s){A.name}.*{D1}.*{other.id}"):
        lake.roll_back(plan)
    assert lake.values()[D1] == 7


def test_a_night_that_found_the_same_rows_changes_nothing_of_what_the_shadow_reads(lake):
    plan = lake.shadow_plan({A.name: [D1], B.name: [D1, D2]}, force=False)
    for table in (A.name, B.name):
        lake.write({D1: 7}, table=table, into=plan)
    ledger = lake.workspace.lake.ledger
    night = replace(
        ledger.builds({B.name: [D2]})[-1],
        outcome="unchanged",
        run="a night",
        inputs={A.name: {str(D2): "other"}},
    )
    # As after an input that was other, and is so no more.
    ledger.append([replace(night, at=ledger.next_time(B.name))])
    assert state_of(plan, lake.workspace).unbuilt == {}
