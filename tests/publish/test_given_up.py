"""A rebuild into live that was given up half way is released once it is finished, taken back, or decided on. No Spark."""

import pytest

from backfill_assets.errors import Guarded
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.live import last_commits
from backfill_assets.publish.release_live import Released, Withheld, release_as_it_stands, release_live
from tests.publish.site import DAYS, NOW, A, B, Site
from tests.publish.two_tables import RELEASED, publish, rebuilt, released, released_site

D0, D1, D2, D3 = DAYS


@pytest.fixture
def site(tmp_path) -> Site:
    return released_site(tmp_path)


def half_built(site: Site, ending: str) -> Plan:
    """A plan of a day of A and B in live, which has built A and ended so."""
    plan = site.plan({A.name: [D1], B.name: [D1]})
    site.plans.note(plan.id, "started", NOW, who="ada")
    site.write({D1: 5}, plan=plan.id)
    if ending == "cancelled":
        site.plans.note(plan.id, "cancelled", NOW, who="ada")
    else:
        site.plans.note(plan.id, "ended", NOW, ending=ending, why="the budget")
    return plan


def decide(site: Site) -> object:
    return release_live(site.workspace, who="sensor")


@pytest.mark.parametrize(
    ("ending", "said"), [("cancelled", "was cancelled"), ("stopped", "was stopped"), ("partial", "ended"), ("refused", "ended")]
)
def test_a_plan_that_ended_before_all_was_built_withholds_what_it_has_built(site, ending, said):
    plan = half_built(site, ending)
    decision = decide(site)
    assert isinstance(decision, Withheld)
    assert [str(reason) for reason in decision.reasons] == [
        f"plan {plan.id} {said} with 1 of its 2 partition(s) not built, as {B.name} {D1}: `backfill resume {plan.id}` builds "
        f"them, `backfill rollback {plan.id}` takes back what is built"
    ]
    with pytest.raises(Guarded, match=f"plan {plan.id} {said} with 1 of its 2"):
        publish(site, rebuilt(site, {D2: 8}))
    assert released(site) == released(site, B.name) == RELEASED


@pytest.mark.parametrize("then", ["resumed", "built by a night", "failed", "taken back", "decided"])
def test_it_is_released_once_nothing_of_it_is_half_done_or_a_person_decides(site, then):
    plan, day_of_b = half_built(site, "cancelled"), 5
    before = last_commits(site.workspace)
    if then == "resumed":
        site.plans.note(plan.id, "started", NOW, who="ada")
        site.write({D1: 5}, table=B.name, plan=plan.id)
        site.plans.note(plan.id, "ended", NOW, ending="done")
    elif then == "built by a night":
        site.write({D1: 5}, table=B.name)
    elif then == "failed":
        site.fail(D1, table=B.name)
        decision = decide(site)
        assert isinstance(decision, Withheld)
        assert [reason.cause for reason in decision.reasons] == ["failed"]
        return
    elif then == "taken back":
        site.roll_back(plan)
        day_of_b = 2
    else:
        day_of_b = 2
        decision = release_as_it_stands(site.workspace, who="bo", reason="enough")
        assert isinstance(decision, Released)
        assert decision.release.reason.startswith(f"enough (in spite of plan {plan.id} was cancelled with 1 of its 2 ")
        site.write({D3: 9})
    assert last_commits(site.workspace) != before
    assert isinstance(decide(site), Released)
    a, b = released(site)[D1], released(site, B.name)[D1]
    assert (a, b) == (2 if then == "taken back" else 5, day_of_b)


def test_a_plan_that_has_built_all_its_days_or_none_withholds_nothing(site):
    plan = site.plan({A.name: [D1], B.name: [D1]})
    site.plans.note(plan.id, "cancelled", NOW, who="ada")
    site.write({D3: 9})
    assert isinstance(decide(site), Released)
    for table in (A.name, B.name):
        site.write({D1: 5}, table=table, plan=plan.id)
    assert isinstance(decide(site), Released)


def test_rows_that_a_night_finds_as_a_plan_wrote_them_are_still_half_of_that_plan(site):
    half_built(site, "cancelled")
    site.write({D1: 5})
    assert isinstance(decide(site), Withheld)
    assert released(site) == released(site, B.name) == RELEASED


def test_a_plan_that_has_found_all_rows_as_they_were_keeps_nothing_from_readers(site):
    plan = site.plan({A.name: [D1], B.name: [D1]})
    site.write({D1: RELEASED[D1]}, plan=plan.id)
    site.plans.note(plan.id, "cancelled", NOW, who="ada")
    site.write({D3: 9})
    assert isinstance(decide(site), Released)
    assert released(site) == RELEASED | {D3: 9}
