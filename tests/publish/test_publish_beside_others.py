"""Publishing while live, releases and other plans are not at rest: what readers of each channel get. No Spark."""

from datetime import date
from threading import Thread

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.decision import Kind
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.publish.release_plan import left_with_plan
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.verify.verify import verify
from tests.publish.site import DAYS, NOW, A, B, Site
from tests.publish.two_tables import RELEASED, approved, half_published, publish, rebuilt, released, released_site

D0, D1, D2, D3 = DAYS


@pytest.fixture
def site(tmp_path) -> Site:
    return released_site(tmp_path)


def test_beside_half_a_publication_of_another_plan_nothing_is_released(site):
    half, plan = half_published(site, {D1: 7}), rebuilt(site, {D2: 8})
    with pytest.raises(Guarded, match=f"plan {half.id} is published in part .*Nothing was published"):
        publish(site, plan)
    assert released(site) == released(site, B.name) == RELEASED
    publish(site, half)
    publish(site, plan)
    assert released(site) == released(site, B.name) == RELEASED | {D1: 7, D2: 8}


def test_half_a_publication_that_is_taken_back_leaves_no_shadow_and_lets_live_be_released(site):
    half = half_published(site, {D1: 7})
    site.roll_back(half)
    assert site.values() == site.values(B.name) == RELEASED
    assert not (site.root / "_shadow" / half.id).exists()
    site.write({D3: 9})
    release_live(site.workspace, who="sensor")
    assert released(site) == RELEASED | {D3: 9}


@pytest.mark.parametrize("force", [False, True])
def test_half_a_publication_is_given_up_and_what_a_night_has_built_since_stays_whole(site, force):
    half = half_published(site, {D1: 7})
    site.workspace.lake.recover([A.name, B.name])  # as every step does
    for table in (A.name, B.name):
        site.write({D1: 5}, table=table)
    assert set(site.roll_back(half, force=force).values()) == {Kind.CONFLICT}
    assert (site.plans.state(half.id), site.plans.half_published()) == ("rolled_back", [])
    assert isinstance(release_live(site.workspace, who="sensor"), Released)
    assert released(site) == released(site, B.name) == RELEASED | {D1: 5}


def test_half_a_publication_of_which_rows_would_stay_is_not_given_up_without_force(site):
    half = half_published(site, {D1: 7})
    DeltaTable(str(site.root / A.name)).update(updates={"n": "n"}, predicate=f"day = '{D1}'")
    with pytest.raises(Guarded, match=f"1 of its partition.*{A.name} {D1}: built since.*publish {half.id}`.*--force"):
        site.roll_back(half)
    assert site.plans.half_published() == [half.id]


def test_after_half_a_publication_plans_are_taken_back_to_what_none_of_them_has_made(site):
    plan = half_published(site, {D1: 9})
    site.workspace.lake.recover([A.name, B.name])
    other = site.plan({A.name: [D1], B.name: [D1]})
    for table in (A.name, B.name):
        site.write({D1: 5}, table=table, plan=other.id)
    rebase(plan, site.workspace, "ada")
    publish(site, plan)
    assert site.values() == site.values(B.name) == RELEASED | {D1: 9}
    for each, left in ((plan, 5), (other, 2), (plan, 2)):
        site.roll_back(each)
        assert site.values() == site.values(B.name) == RELEASED | {D1: left}


def test_of_two_publications_that_begin_at_once_one_is_published_and_then_the_other(site):
    one, other = rebuilt(site, {D1: 7}), rebuilt(site, {D2: 8})
    refusals: list[str | None] = []
    threads: list[Thread] = []

    def begins_meanwhile():
        if not refusals:
            refusals.append(None)
            second = Thread(target=lambda: refusals.append(refused(site, other)))
            second.start()
            second.join(timeout=0.5)  # it waits for the first to have begun
            threads.append(second)
        return NOW

    Publication(one, site.workspace, "ada").publish("stable", begins_meanwhile, approved)
    threads[0].join()
    assert released(site) == RELEASED | {D1: 7} | ({} if refusals[1] else {D2: 8})
    publish(site, other)
    assert released(site) == released(site, B.name) == RELEASED | {D1: 7, D2: 8}
    assert site.plans.half_published() == []


def refused(site: Site, plan: Plan) -> str:
    try:
        publish(site, plan)
    except Guarded as error:
        return str(error)
    return ""


def test_a_run_that_begins_while_files_are_copied_is_asked_for_again(site):
    plan, asked = rebuilt(site, {D1: 7}), []

    def runs():
        asked.append(site.values()[D1])
        return ["run 1b9d6bcd"] if site.values()[D1] == 7 else []

    with pytest.raises(Guarded, match="run 1b9d6bcd is not finished"):
        publish(site, plan, runs=runs)
    assert asked == [2, 7]
    assert released(site) == RELEASED
    publish(site, plan)
    assert released(site) == RELEASED | {D1: 7}


def test_beside_an_open_plan_in_live_or_a_run_that_goes_on_nothing_is_released(site):
    plan, other = rebuilt(site, {D1: 7}), site.plan({A.name: [D2]})
    site.plans.note(other.id, "started", NOW)
    site.write({D2: 9}, plan=other.id)
    with pytest.raises(Guarded, match=f"plan {other.id} is open"):
        publish(site, plan)
    site.plans.note(other.id, "ended", NOW, ending="done")
    with pytest.raises(Guarded, match="run 1b9d6bcd is not finished"):
        publish(site, plan, runs=lambda: ["run 1b9d6bcd"])
    assert released(site) == RELEASED


def test_readers_whom_a_person_has_pointed_back_are_not_given_what_they_were_taken_from(site):
    site.write({D3: 666})
    release_live(site.workspace, who="sensor")
    releases, plan = Releases(str(site.root)), rebuilt(site, {D1: 7})
    releases.point(releases.newest(), "stable", 1, who="bo", reason="a wrong night")  # type: ignore[arg-type]
    with pytest.raises(
        Guarded, match=r"stable were pointed back to release 1: a wrong night \(bo\).*--release 2 --channel stable"
    ):
        publish(site, plan)
    assert released(site) == RELEASED


def test_the_second_channel_gets_what_the_first_has_and_nothing_of_live_that_is_not_released(site):
    plan = rebuilt(site, {D1: 7})
    publish(site, plan, "candidate")
    assert (released(site), released(site, channel="candidate")) == (RELEASED, RELEASED | {D1: 7})
    site.write({D3: 9})
    site.fail(D3, table=B.name)
    DeltaTable(str(site.root / A.name)).delete(f"day = '{D0}'")
    publish(site, plan, "stable")
    assert released(site) == RELEASED | {D1: 7}


def test_what_live_has_without_the_plan_is_released_before_it_to_those_who_do_not_get_the_plan(site):
    plan = rebuilt(site, {D1: 7})
    site.write({D3: 9})
    publish(site, plan, "candidate")
    assert (released(site), released(site, channel="candidate")) == (RELEASED | {D3: 9}, RELEASED | {D1: 7, D3: 9})


def test_a_lake_that_was_never_released_gives_stable_what_it_had_before_the_plan(tmp_path):
    site = Site(tmp_path / "lake")
    site.write(RELEASED)
    publish(site, rebuilt(site, {D1: 7}), "candidate")
    assert (released(site), released(site, channel="candidate")) == (RELEASED, RELEASED | {D1: 7})


def test_a_channel_is_not_given_a_plan_that_readers_were_pointed_back_from(site):
    plan = rebuilt(site, {D1: 7})
    publish(site, plan, "candidate")
    releases = Releases(str(site.root))
    releases.point(releases.newest(), "candidate", 1, who="bo", reason="wrong")  # type: ignore[arg-type]
    with pytest.raises(Guarded, match=f"No readers get plan {plan.id} any more: they were pointed back to release 1"):
        publish(site, plan, "stable")


def test_readers_who_keep_a_plan_that_was_taken_back_are_named_with_the_command_that_takes_it_from_them(site):
    first, second = rebuilt(site, {D1: 7}), rebuilt(site, {D2: 8})
    publish(site, first)
    publish(site, second, "candidate")
    site.roll_back(first)
    said = left_with_plan(first, site.workspace)
    assert said.startswith("Readers of stable still get the plan, with release 2. `backfill rollback --release 1 ")
    release_live(site.workspace, who="sensor")
    assert (released(site)[D1], released(site, channel="candidate")[D1]) == (7, 2)


def test_a_published_plan_is_taken_back_by_a_rollback_and_by_nothing_else(site):
    plan = rebuilt(site, {D1: 7})
    publish(site, plan)
    for act in (
        lambda: discard(plan, site.workspace, who="ada", now=lambda: NOW),
        lambda: rebase(plan, site.workspace, "ada"),
        lambda: verify(plan, site.workspace, who="ada", now=lambda: NOW),
    ):
        with pytest.raises(UsageError, match=f"Plan {plan.id} is published.*backfill rollback {plan.id}"):
            act()
    assert site.plans.state(plan.id) == "published"
    site.roll_back(plan)
    assert site.values() == RELEASED


def test_a_day_of_live_whose_file_is_gone_is_written_although_the_shadow_has_the_same_rows(site):
    (path,) = site.files()[D1] - site.files()[D0]
    (site.root / A.name / path).unlink()
    plan = rebuilt(site, {D1: 2})
    published = publish(site, plan)
    assert {(b.table, b.outcome) for b in published.builds} == {(A.name, "accepted"), (B.name, "unchanged")}
    assert site.values() == RELEASED == released(site)


def test_a_night_without_any_row_of_a_day_beside_the_plan_does_not_fail_its_verdict(site):
    plan = rebuilt(site, {D1: 2})
    for table in (A.name, B.name):
        site.write({date(2019, 8, 19): 0}, table=table)
    verdict = verify(plan, site.workspace, who="ada", now=lambda: NOW)
    assert verdict.passed, [line for line in verdict.lines if line.outcome != "passed"]
