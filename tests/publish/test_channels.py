"""What readers of one channel get when plans were published to others, and when a person has
pointed them back. No Spark.
"""

from datetime import date

import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.channels import lagging_channels, release_of_plan
from backfill_assets.publish.publish import Publication, Published, channels_still_on_plan
from backfill_assets.publish.release_live import Released, release_as_it_stands, release_live
from backfill_assets.publish.switch import Switch
from tests.worlds.small_lake import DAYS, NOW, A, B, SmallLake

D0, D1, D2, D3 = DAYS
RELEASED = {D0: 1, D1: 2, D2: 3, D3: 4}


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path / "lake")
    lake.write(RELEASED)
    release_live(lake.workspace, who="sensor")
    return lake


def rebuilt(lake: SmallLake, values: dict[date, int]) -> Plan:
    plan = lake.shadow_plan({A.name: list(values)}, reason=str(values))
    lake.write(values, into=plan)
    return plan


def publish(
    lake: SmallLake, plan: Plan, channel: str = "stable", together_with: tuple[str, ...] = ()
) -> Published:
    publication = Publication(plan, lake.workspace, "ada", together_with=together_with)
    return publication.publish(channel, lambda: NOW, lambda state: None)


def gets(lake: SmallLake, channel: str = "stable") -> dict[date, int]:
    release = Releases(str(lake.root)).of_channel(channel)
    rows = ReleasedTable(str(lake.root), release, A.name).dataset().to_table().to_pydict()
    return dict(sorted(zip(rows["day"], rows["n"], strict=True)))


def night(lake: SmallLake, values: dict[date, int]) -> None:
    lake.write(values)
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)


def point(lake: SmallLake, channel: str, number: int) -> None:
    releases = Releases(str(lake.root))
    newest = releases.newest()
    assert newest
    releases.point(newest, channel, number, who="bo", reason="a wrong night")


def why_behind(lake: SmallLake) -> list[str]:
    return list(map(str, lagging_channels(str(lake.root), Releases(str(lake.root)).newest())))


def test_a_channel_without_the_plan_follows_live_again_after_its_rollback(lake):
    plan = rebuilt(lake, {D1: 7})
    publish(lake, plan, "candidate")
    assert why_behind(lake) == [
        f"stable stays at release 1: plan {plan.id} was not published to it (`backfill publish"
        f" {plan.id}`)"
    ]
    night(lake, {D3: 8})
    assert (gets(lake), gets(lake, "candidate")) == (RELEASED, RELEASED | {D1: 7, D3: 8})
    lake.roll_back(plan)
    release_live(lake.workspace, who="sensor")
    assert gets(lake) == gets(lake, "candidate") == RELEASED | {D3: 8}
    assert why_behind(lake) == []
    night(lake, {D2: 9})
    assert gets(lake) == RELEASED | {D2: 9, D3: 8}


def test_publishing_a_plan_again_to_the_same_readers_changes_nothing(lake):
    first = rebuilt(lake, {D1: 7})
    second = rebuilt(lake, {D2: 8})
    publish(lake, first)
    publish(lake, second, "candidate")
    again = publish(lake, first)
    assert (again.builds, again.release.number) == ((), 2)
    assert gets(lake) == RELEASED | {D1: 7}
    point(lake, "candidate", 2)
    publish(lake, first, "candidate")
    assert gets(lake, "candidate") == RELEASED | {D1: 7}


def test_a_plan_of_another_channel_is_not_published_along_unless_named(lake):
    tried = rebuilt(lake, {D1: 7})
    plan = rebuilt(lake, {D2: 8})
    publish(lake, tried, "candidate")
    said = (
        f"1 more plan.*{tried.id}. Nothing was published.*--channel stable --with"
        f" {tried.id}`.*rollback {tried.id}`"
    )
    with pytest.raises(RefusedByGuard, match=said):
        publish(lake, plan)
    assert (lake.values(), gets(lake)) == (RELEASED | {D1: 7}, RELEASED)
    publish(lake, plan, "candidate")
    for one, other in ((tried, plan), (plan, tried)):
        with pytest.raises(RefusedByGuard, match=other.id):
            publish(lake, one)
    published = publish(lake, plan, together_with=(tried.id,))
    assert gets(lake) == gets(lake, "candidate") == RELEASED | {D1: 7, D2: 8}
    assert Releases(str(lake.root)).newest().reason == f"plan {plan.id} (with plan {tried.id})"  # type: ignore[union-attr]
    assert published.staying == ()


def test_a_plan_that_readers_do_not_get_along_is_not_named_by_the_release(lake):
    in_shadow = rebuilt(lake, {D1: 7})
    plan = rebuilt(lake, {D2: 8})
    publish(lake, plan, together_with=(in_shadow.id,))
    newest = Releases(str(lake.root)).newest()
    assert newest
    assert (newest.reason, newest.plans, gets(lake)[D1]) == (f"plan {plan.id}", (plan.id,), 2)


def test_releases_of_before_they_named_plans_are_read(lake):
    path = Releases(str(lake.root)).path
    plan = rebuilt(lake, {D1: 7})
    older = DeltaTable(path).to_pyarrow_table().drop_columns(["plans"])
    write_deltalake(path, older, mode="overwrite", schema_mode="overwrite")
    assert (Releases(str(lake.root)).get(1).plans, release_of_plan(str(lake.root), plan.id)) == (
        (),
        0,
    )
    publish(lake, plan)
    assert (gets(lake), release_of_plan(str(lake.root), plan.id)) == (RELEASED | {D1: 7}, 2)


def test_what_was_published_with_another_plan_is_released_to_all_who_follow(lake):
    tried = rebuilt(lake, {D1: 7})
    plan = rebuilt(lake, {D2: 8})
    publish(lake, tried, "candidate")
    publish(lake, plan, together_with=(tried.id,))
    night(lake, {D3: 9})
    assert gets(lake) == gets(lake, "candidate") == RELEASED | {D1: 7, D2: 8, D3: 9}


@pytest.mark.parametrize("tried_first", [False, True])
def test_readers_who_were_pointed_back_get_no_plan_before_they_are_pointed_forward(
    lake, tried_first
):
    publish(lake, rebuilt(lake, {D1: 7}), "candidate")
    publish(lake, lake.plans.read(lake.plans.ids()[0]))  # both channels get release 2
    night(lake, {D3: 666})
    point(lake, "stable", 2)
    plan = rebuilt(lake, {D2: 8})
    if tried_first:
        publish(lake, plan, "candidate")
    with pytest.raises(
        RefusedByGuard, match=r"stable were pointed back to release 2: a wrong night \(bo\)"
    ) as refused:
        publish(lake, plan)
    assert gets(lake) == RELEASED | {D1: 7}
    number = int(str(refused.value).rpartition("--release ")[2].split()[0])
    point(lake, "stable", number)
    publish(lake, plan)
    assert gets(lake) == RELEASED | {D1: 7, D2: 8, D3: 666}


def test_a_record_of_where_a_channel_was_pointed_is_no_release_to_go_back_to(lake):
    night(lake, {D3: 666})
    point(lake, "stable", 1)
    releases = Releases(str(lake.root))
    with pytest.raises(
        UsageError,
        match=r"Release 3 has no tables of its own: it records that stable got release 1 \(a wrong",
    ):
        point(lake, "stable", 3)
    with pytest.raises(UsageError, match="Name the release that readers got"):
        releases.readable(3)
    assert gets(lake) == RELEASED


def test_the_command_that_takes_a_plan_back_gives_readers_what_they_had_before(lake):
    lake.write(dict.fromkeys(DAYS, 5), table=B.name)
    release_live(lake.workspace, who="sensor")
    first = rebuilt(lake, {D1: 7})
    second = rebuilt(lake, {D2: 8})
    publish(lake, rebuilt(lake, {D0: 3}), "candidate")
    # The release just before the plan's.
    assert Switch(A.name, B.name, "candidate").carry_out(lake.workspace, "ada")
    others = [plan for plan in lake.plans.ids() if lake.plans.state(plan) == "published"]
    publish(lake, first, together_with=tuple(others))
    publish(lake, second, "candidate")
    lake.roll_back(first)
    said = channels_still_on_plan(first, lake.workspace)
    number = int(said.rpartition("--release ")[2].split()[0])
    assert number == 2
    point(lake, "stable", number)
    assert gets(lake) == RELEASED


def test_a_person_who_releases_live_learns_which_plans_stable_gets_by_it(lake):
    plan = rebuilt(lake, {D1: 7})
    publish(lake, plan, "candidate")
    lake.write({D3: 9})
    decision = release_as_it_stands(lake.workspace, who="bo", reason="due")
    assert isinstance(decision, Released)
    assert (
        decision.release.reason == f"due (in spite of plan {plan.id} was not published to stable)"
    )
    assert gets(lake) == RELEASED | {D1: 7, D3: 9}


def test_a_person_who_releases_live_gives_stable_what_it_was_pointed_back_from(lake):
    night(lake, {D3: 666})
    point(lake, "stable", 1)
    night_is_withheld = release_live(lake.workspace, who="sensor")
    assert not isinstance(night_is_withheld, Released)
    lake.write({D3: 5})
    assert isinstance(release_as_it_stands(lake.workspace, who="bo", reason="mended"), Released)
    assert (gets(lake), why_behind(lake)) == (RELEASED | {D3: 5}, [])


def test_in_a_new_lake_stable_begins_once_no_plan_that_others_got_is_missing_from_it(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    plan = rebuilt(lake, RELEASED)
    publish(lake, plan, "candidate")
    assert why_behind(lake) == [
        f"stable has no release yet: plan {plan.id} was not published to it (`backfill publish"
        f" {plan.id}`)"
    ]
    night(lake, {D3: 8})
    assert gets(lake, "candidate") == RELEASED | {D3: 8}
    publish(lake, plan)
    assert gets(lake) == RELEASED | {D3: 8}
    night(lake, {D2: 9})
    assert gets(lake) == gets(lake, "candidate") == RELEASED | {D2: 9, D3: 8}
