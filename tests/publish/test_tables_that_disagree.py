"""Live is released once its tables agree: after half a rebuild once it is finished, taken back, or
decided on. No Spark.
"""

from dataclasses import replace

import pytest

from backfill_assets.errors import RefusedByGuard
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.live import last_commits
from backfill_assets.publish.release_live import (
    Cause,
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
    gets,
    half_published,
    publish,
    rebuilt_in_shadow,
    released,
)

D0, D1, D2, D3 = DAYS


def half_built(lake: SmallLake) -> Plan:
    """A plan of a day of A and B in live, which has built A and was cancelled."""
    plan = lake.plan({A.name: [D1], B.name: [D1]})
    lake.plans.note(plan.id, "started", NOW, who="ada")
    lake.write({D1: 5}, plan=plan.id)
    lake.plans.note(plan.id, "cancelled", NOW, who="ada")
    return plan


def decide(lake: SmallLake) -> object:
    return release_live(lake.workspace, who="sensor")


def test_a_day_that_was_made_from_rows_of_before_withholds_live(lake, golden):
    half_built(lake)
    lake.write({D2: 9})
    decision = decide(lake)
    assert isinstance(decision, Withheld)
    assert [(each.cause, each.table, each.days) for each in decision.failures] == [
        (Cause.OUTDATED, B.name, (D1, D2))
    ]
    with pytest.raises(RefusedByGuard) as refused:
        publish(lake, rebuilt_in_shadow(lake, {D0: 8}))
    golden(str(refused.value))
    assert gets(lake) == RELEASED


def test_a_day_that_was_outdated_at_the_release_before_withholds_nothing(lake):
    lake.write({D1: 5})
    assert isinstance(release_as_it_stands(lake.workspace, who="bo", reason="due"), Released)
    for table in (A.name, B.name):
        lake.write({D3: 9}, table=table)
    assert isinstance(decide(lake), Released)
    lake.write({D1: 6})
    assert isinstance(decide(lake), Withheld)


def test_a_table_with_a_schedule_of_its_own_withholds_nothing(tmp_path):
    lake = SmallLake(tmp_path / "lake", tables=(A, replace(B, cron="0 5 * * 1")))
    for table in (A.name, B.name):
        lake.write(RELEASED, table=table)
    assert isinstance(decide(lake), Released)
    lake.write({D1: 5})
    assert isinstance(decide(lake), Released)


def test_a_day_that_was_never_built_withholds_nothing(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    for table in (A.name, B.name):
        lake.write({D0: 1}, table=table)
    assert isinstance(decide(lake), Released)
    lake.write({D1: 5})
    lake.fail(D1, table=B.name)
    assert isinstance(decide(lake), Released)


@pytest.mark.parametrize("then", ["resumed", "built by a night", "failed", "taken back", "decided"])
def test_it_is_released_once_nothing_of_it_is_half_done_or_a_person_decides(lake, then, golden):
    plan = half_built(lake)
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
        (reason,) = decision.failures
        golden(str(reason))
        return
    elif then == "taken back":
        lake.roll_back(plan)
        day_of_b = 2
    else:
        day_of_b = 2
        decision = release_as_it_stands(lake.workspace, who="bo", reason="enough")
        assert isinstance(decision, Released)
        golden(decision.release.reason)
        lake.write({D3: 9})
        lake.write({D3: 9}, table=B.name)
    assert last_commits(lake.workspace) != before
    # A rollback has a release of its own.
    assert isinstance(decide(lake), NothingNew if then == "taken back" else Released)
    a = released(lake)[D1]
    b = released(lake, B.name)[D1]
    assert (a, b) == (2 if then == "taken back" else 5, day_of_b)


@pytest.mark.parametrize(
    "problem",
    ["a day that is outdated", "an open plan that has not written yet", "rows that differ"],
)
def test_what_would_keep_live_from_being_released_is_asked_before_the_first_commit(
    lake, problem, golden
):
    plan = other = rebuilt_in_shadow(lake, {D1: 7})
    files = lake.files()
    if problem == "a day that is outdated":
        lake.write({D3: 9})
        files = lake.files()
    elif problem == "rows that differ":
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
    with pytest.raises(RefusedByGuard) as refused:
        publish(lake, plan)
    golden(str(refused.value), PLAN=other.id)
    assert lake.files() == files
    assert lake.plans.state(plan.id) == "done"
    if problem != "an open plan that has not written yet":
        # A person decides on it, as the message says.
        assert isinstance(release_as_it_stands(lake.workspace, who="bo", reason="known"), Released)
        publish(lake, plan)
        assert released(lake)[D1] == 7


def test_an_outdated_day_does_not_keep_a_killed_publication_from_being_finished(lake):
    half_published(lake, {D1: 7})
    lake.write({D3: 9})
    release_live(lake.workspace, who="sensor")
    assert gets(lake) == RELEASED | {D1: 7}


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
