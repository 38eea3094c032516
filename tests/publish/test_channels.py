"""What readers of one channel get when plans were published to others, and when a person has pointed them back. No Spark."""

from datetime import date

import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.channels import behind, came_with
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.published import Published
from backfill_assets.publish.release_live import Released, release_as_it_stands, release_live
from backfill_assets.publish.release_plan import left_with_plan
from backfill_assets.publish.switch import Switch
from tests.publish.site import DAYS, NOW, A, B, Site

D0, D1, D2, D3 = DAYS
RELEASED = {D0: 1, D1: 2, D2: 3, D3: 4}


@pytest.fixture
def site(tmp_path) -> Site:
    site = Site(tmp_path / "lake")
    site.write(RELEASED)
    release_live(site.workspace, who="sensor")
    return site


def rebuilt(site: Site, values: dict[date, int]) -> Plan:
    plan = site.shadow_plan({A.name: list(values)}, reason=str(values))
    site.write(values, into=plan)
    return plan


def publish(site: Site, plan: Plan, channel: str = "stable", together_with: tuple[str, ...] = ()) -> Published:
    publication = Publication(plan, site.workspace, "ada", together_with=together_with)
    return publication.publish(channel, lambda: NOW, lambda state: None)


def gets(site: Site, channel: str = "stable") -> dict[date, int]:
    release = Releases(str(site.root)).of_channel(channel)
    rows = ReleasedTable(str(site.root), release, A.name).dataset().to_table().to_pydict()
    return dict(sorted(zip(rows["day"], rows["n"], strict=True)))


def night(site: Site, values: dict[date, int]) -> None:
    site.write(values)
    assert isinstance(release_live(site.workspace, who="sensor"), Released)


def point(site: Site, channel: str, number: int) -> None:
    releases = Releases(str(site.root))
    newest = releases.newest()
    assert newest
    releases.point(newest, channel, number, who="bo", reason="a wrong night")


def why_behind(site: Site) -> list[str]:
    return list(map(str, behind(str(site.root), Releases(str(site.root)).newest())))


def test_a_channel_that_a_plan_was_not_published_to_gets_live_again_once_that_is_taken_back(site):
    plan = rebuilt(site, {D1: 7})
    publish(site, plan, "candidate")
    assert why_behind(site) == [
        f"stable stays at release 1: plan {plan.id} was not published to it (`backfill publish {plan.id}`)"
    ]
    night(site, {D3: 8})
    assert (gets(site), gets(site, "candidate")) == (RELEASED, RELEASED | {D1: 7, D3: 8})
    site.roll_back(plan)
    release_live(site.workspace, who="sensor")
    assert gets(site) == gets(site, "candidate") == RELEASED | {D3: 8}
    assert why_behind(site) == []
    night(site, {D2: 9})
    assert gets(site) == RELEASED | {D2: 9, D3: 8}


def test_readers_who_have_a_plan_keep_what_they_get_when_it_is_published_to_them_again(site):
    first, second = rebuilt(site, {D1: 7}), rebuilt(site, {D2: 8})
    publish(site, first)
    publish(site, second, "candidate")
    again = publish(site, first)
    assert (again.builds, again.release.number) == ((), 2)
    assert gets(site) == RELEASED | {D1: 7}
    point(site, "candidate", 2)
    publish(site, first, "candidate")
    assert gets(site, "candidate") == RELEASED | {D1: 7}


def test_a_plan_in_live_that_only_another_channel_gets_is_not_given_along_unless_it_is_named(site):
    tried, plan = rebuilt(site, {D1: 7}), rebuilt(site, {D2: 8})
    publish(site, tried, "candidate")
    said = f"1 more plan.*{tried.id}. Nothing was published.*--channel stable --with {tried.id}`.*rollback {tried.id}`"
    with pytest.raises(Guarded, match=said):
        publish(site, plan)
    assert (site.values(), gets(site)) == (RELEASED | {D1: 7}, RELEASED)
    publish(site, plan, "candidate")
    for one, other in ((tried, plan), (plan, tried)):
        with pytest.raises(Guarded, match=f"would get 1 more plan.*{other.id}"):
            publish(site, one)
    published = publish(site, plan, together_with=(tried.id,))
    assert gets(site) == gets(site, "candidate") == RELEASED | {D1: 7, D2: 8}
    assert Releases(str(site.root)).newest().reason == f"plan {plan.id} (with plan {tried.id})"  # type: ignore[union-attr]
    assert published.staying == ()


def test_a_plan_that_readers_do_not_get_along_is_not_named_by_the_release(site):
    in_shadow, plan = rebuilt(site, {D1: 7}), rebuilt(site, {D2: 8})
    publish(site, plan, together_with=(in_shadow.id,))
    newest = Releases(str(site.root)).newest()
    assert newest
    assert (newest.reason, newest.plans, gets(site)[D1]) == (f"plan {plan.id}", (plan.id,), 2)


def test_releases_of_before_they_named_plans_are_read(site):
    path, plan = Releases(str(site.root)).path, rebuilt(site, {D1: 7})
    older = DeltaTable(path).to_pyarrow_table().drop_columns(["plans"])
    write_deltalake(path, older, mode="overwrite", schema_mode="overwrite")
    assert (Releases(str(site.root)).get(1).plans, came_with(str(site.root), plan.id)) == ((), 0)
    publish(site, plan)
    assert (gets(site), came_with(str(site.root), plan.id)) == (RELEASED | {D1: 7}, 2)


def test_what_was_published_with_another_plan_is_released_to_all_who_follow(site):
    tried, plan = rebuilt(site, {D1: 7}), rebuilt(site, {D2: 8})
    publish(site, tried, "candidate")
    publish(site, plan, together_with=(tried.id,))
    night(site, {D3: 9})
    assert gets(site) == gets(site, "candidate") == RELEASED | {D1: 7, D2: 8, D3: 9}


@pytest.mark.parametrize("tried_first", [False, True])
def test_readers_who_were_pointed_back_get_no_plan_before_they_are_pointed_forward(site, tried_first):
    publish(site, rebuilt(site, {D1: 7}), "candidate")
    publish(site, site.plans.read(site.plans.ids()[0]))  # both channels get release 2
    night(site, {D3: 666})
    point(site, "stable", 2)
    plan = rebuilt(site, {D2: 8})
    if tried_first:
        publish(site, plan, "candidate")
    with pytest.raises(Guarded, match=r"stable were pointed back to release 2: a wrong night \(bo\)") as refused:
        publish(site, plan)
    assert gets(site) == RELEASED | {D1: 7}
    number = int(str(refused.value).rpartition("--release ")[2].split()[0])
    point(site, "stable", number)
    publish(site, plan)
    assert gets(site) == RELEASED | {D1: 7, D2: 8, D3: 666}


def test_a_record_of_where_a_channel_was_pointed_is_no_release_to_go_back_to(site):
    night(site, {D3: 666})
    point(site, "stable", 1)
    releases = Releases(str(site.root))
    with pytest.raises(UsageError, match=r"Release 3 has no tables of its own: it records that stable got release 1 \(a wrong"):
        point(site, "stable", 3)
    with pytest.raises(UsageError, match="Name the release that readers got"):
        releases.readable(3)
    assert gets(site) == RELEASED


def test_the_command_that_takes_a_plan_from_readers_gives_them_what_they_had_before_it(site):
    site.write(dict.fromkeys(DAYS, 5), table=B.name)
    release_live(site.workspace, who="sensor")
    first, second = rebuilt(site, {D1: 7}), rebuilt(site, {D2: 8})
    publish(site, rebuilt(site, {D0: 3}), "candidate")
    assert Switch(A.name, B.name, "candidate").carry_out(site.workspace, "ada")  # the release just before the plan's
    others = [plan for plan in site.plans.ids() if site.plans.state(plan) == "published"]
    publish(site, first, together_with=tuple(others))
    publish(site, second, "candidate")
    site.roll_back(first)
    said = left_with_plan(first, site.workspace)
    number = int(said.rpartition("--release ")[2].split()[0])
    assert number == 2
    point(site, "stable", number)
    assert gets(site) == RELEASED


def test_a_person_who_releases_live_learns_which_plans_stable_gets_by_it(site):
    plan = rebuilt(site, {D1: 7})
    publish(site, plan, "candidate")
    site.write({D3: 9})
    decision = release_as_it_stands(site.workspace, who="bo", reason="due")
    assert isinstance(decision, Released)
    assert decision.release.reason == f"due (in spite of plan {plan.id} was not published to stable)"
    assert gets(site) == RELEASED | {D1: 7, D3: 9}


def test_a_person_who_releases_live_gives_stable_what_it_was_pointed_back_from(site):
    night(site, {D3: 666})
    point(site, "stable", 1)
    night_is_withheld = release_live(site.workspace, who="sensor")
    assert not isinstance(night_is_withheld, Released)
    site.write({D3: 5})
    assert isinstance(release_as_it_stands(site.workspace, who="bo", reason="mended"), Released)
    assert (gets(site), why_behind(site)) == (RELEASED | {D3: 5}, [])


def test_in_a_new_lake_stable_begins_once_no_plan_that_others_got_is_missing_from_it(tmp_path):
    site = Site(tmp_path / "lake")
    plan = rebuilt(site, RELEASED)
    publish(site, plan, "candidate")
    assert why_behind(site) == [
        f"stable has no release yet: plan {plan.id} was not published to it (`backfill publish {plan.id}`)"
    ]
    night(site, {D3: 8})
    assert gets(site, "candidate") == RELEASED | {D3: 8}
    publish(site, plan)
    assert gets(site) == RELEASED | {D3: 8}
    night(site, {D2: 9})
    assert gets(site) == gets(site, "candidate") == RELEASED | {D2: 9, D3: 8}
