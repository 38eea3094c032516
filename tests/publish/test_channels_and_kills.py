"""Who gets a plan follows from the releases and from the rows of live: not from notes, which a
killed command leaves out.
"""

from collections.abc import Callable

import pytest

from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.channels import lagging_channels
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.publish.live import live_state
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import (
    NothingNew,
    Released,
    Withheld,
    release_as_it_stands,
    release_live,
)
from backfill_assets.publish.shadows import rebase
from backfill_assets.publish.switch import Switch
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    killed_when,
    publish,
    rebuilt_in_shadow,
    released,
)

D0, D1, D2, D3 = DAYS


def killed_in(lake: SmallLake, when: Callable[[SmallLake], object]) -> Plan:
    """A plan whose publication to candidate was killed as soon as `when` held."""
    plan = rebuilt_in_shadow(lake, {D1: 7})
    with killed_when(lambda: when(lake)) as killed:
        publish(lake, plan, "candidate")
    assert killed
    return plan


def is_released(lake: SmallLake) -> bool:
    return "candidate" in Releases(str(lake.root)).newest().channels and bool(  # type: ignore[union-attr]
        not list((lake.root / "_plans").glob("*/*-published-*"))
    )


def why_behind(lake: SmallLake) -> list[str]:
    return list(map(str, lagging_channels(str(lake.root), Releases(str(lake.root)).newest())))


def night(lake: SmallLake, values) -> None:
    for table in (A.name, B.name):
        lake.write(values, table=table)


def a_night(lake: SmallLake, plan: Plan) -> None:
    night(lake, {D3: 9})


def a_release(lake: SmallLake, plan: Plan) -> None:
    release_live(lake.workspace, who="sensor")


def the_same_command(lake: SmallLake, plan: Plan) -> None:
    assert publish(lake, plan, "candidate").count("accepted") == 2


def test_a_publication_to_candidate_killed_before_its_note_leaves_stable(lake):
    plan = killed_in(lake, is_released)
    assert isinstance(release_live(lake.workspace, who="sensor"), NothingNew)
    assert (released(lake), released(lake, channel="candidate")) == (RELEASED, RELEASED | {D1: 7})
    with pytest.raises(UsageError, match=f"Plan {plan.id} is published"):
        # What it built anew, nobody would get.
        rebase(plan, lake.workspace, "ada")
    assert publish(lake, plan, "candidate").count("accepted") == 2
    assert lake.plans.state(plan.id) == "published"
    assert released(lake) == RELEASED


def test_a_publication_whose_note_was_lost_is_finished_as_it_was_released(lake):
    plan = killed_in(lake, is_released)
    publish(lake, plan, "candidate")
    (note,) = (lake.root / "_plans" / plan.id).glob("*-published-*")
    note.unlink()
    assert isinstance(release_live(lake.workspace, who="sensor"), NothingNew)
    publish(lake, plan, "candidate")
    assert (released(lake), released(lake, channel="candidate")) == (RELEASED, RELEASED | {D1: 7})


@pytest.mark.parametrize(
    "next_act", [a_night, a_release, the_same_command], ids=lambda act: act.__name__
)
def test_a_killed_publication_is_finished_for_its_channel_by_whoever_comes_next(lake, next_act):
    plan = killed_in(lake, lambda lake: lake.values() != RELEASED)
    next_act(lake, plan)
    assert lake.plans.state(plan.id) == "published"
    assert (released(lake), released(lake, channel="candidate")) == (RELEASED, RELEASED | {D1: 7})
    assert released(lake, B.name, "candidate") == RELEASED | {D1: 7}


def test_a_plan_is_missing_from_a_channel_as_long_as_live_has_rows_of_it(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    publish(lake, plan, "candidate")
    night(lake, {D1: 5})
    release_live(lake.workspace, who="sensor")
    assert (released(lake), len(why_behind(lake))) == (RELEASED, 1)
    lake.write({D1: 5, D2: 8})  # what is found as it was stays the plan's
    assert released(lake) == RELEASED
    night(lake, {D2: 6})
    release_live(lake.workspace, who="sensor")
    assert released(lake) == released(lake, B.name) == RELEASED | {D1: 5, D2: 6}
    assert why_behind(lake) == []


def test_rows_that_a_rollback_of_another_plan_puts_back_are_still_those_of_the_plan(lake):
    tried = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, tried, "candidate")
    other = lake.plan({A.name: [D1], B.name: [D1]})
    for table in (A.name, B.name):
        lake.write({D1: 5}, table=table, plan=other.id)
    lake.roll_back(other)
    release_live(lake.workspace, who="sensor")
    assert lake.values()[D1] == 7
    assert (released(lake), len(why_behind(lake))) == (RELEASED, 1)


def test_a_channel_whose_missing_plan_was_overwritten_is_released_to_by_a_person_too(lake):
    publish(lake, rebuilt_in_shadow(lake, {D1: 7}), "candidate")
    night(lake, {D1: 5})
    newest = Releases(str(lake.root)).newest()
    tables = live_state(lake.workspace).tables
    Releases(str(lake.root)).add(
        newest, tables, kind="live", who="bo", reason="", channels=["candidate"]
    )
    assert isinstance(release_as_it_stands(lake.workspace, who="bo", reason="now"), Released)
    assert released(lake) == RELEASED | {D1: 5}


def test_a_channel_that_was_pointed_back_comes_forward_by_the_command_that_is_named(lake):
    night(lake, {D3: 6})
    release_live(lake.workspace, who="sensor")
    publish(lake, rebuilt_in_shadow(lake, {D1: 7}))
    publish(lake, lake.plans.read(lake.plans.ids()[0]), "candidate")
    night(lake, {D3: 66})
    release_live(lake.workspace, who="sensor")
    releases = Releases(str(lake.root))
    releases.point(releases.newest(), "candidate", 2, who="bo", reason="a wrong night")  # type: ignore[arg-type]
    (said,) = why_behind(lake)
    assert said.startswith(
        "candidate stays at release 2: it was put there: a wrong night (bo). `backfill rollback"
        " --release "
    )
    number = int(said.rpartition("--release ")[2].split()[0])
    releases.point(releases.newest(), "candidate", number, who="bo", reason="over")  # type: ignore[arg-type]
    night(lake, {D3: 5})
    release_live(lake.workspace, who="sensor")
    assert released(lake) == released(lake, channel="candidate") == RELEASED | {D1: 7, D3: 5}


def test_an_event_of_another_plan_that_cannot_be_read_concerns_that_plan_only(lake):
    old = lake.plan({A.name: [D3]}, reason="long ago")
    plan = rebuilt_in_shadow(lake, {D1: 7})
    (ended,) = (lake.root / "_plans" / old.id).glob("*-ended-*")
    ended.write_text("")
    publish(lake, plan, "candidate")
    assert why_behind(lake) == [
        f"stable stays at release 1: plan {plan.id} was not published to it (`backfill publish"
        f" {plan.id}`)"
    ]
    night(lake, {D3: 9})
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)
    publish(lake, plan)
    assert released(lake) == RELEASED | {D1: 7, D3: 9}


def test_what_others_were_given_meanwhile_is_asked_for_before_the_first_commit(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    other = rebuilt_in_shadow(lake, {D2: 8})
    publication = Publication(plan, lake.workspace, "ada")
    files = lake.files()

    def meanwhile(_: ShadowState) -> None:
        publish(lake, other, "candidate")

    with pytest.raises(
        RefusedByGuard, match=f"stable would get 1 more plan.*{other.id}. Nothing was published"
    ):
        publication.publish("stable", lambda: NOW, meanwhile)
    assert lake.files()[D1] == files[D1]
    assert released(lake) == RELEASED


def test_readers_who_are_pointed_back_while_a_plan_is_put_into_live_stay_there(lake):
    first = rebuilt_in_shadow(lake, {D0: 5})
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, first, "candidate")
    publish(lake, first)
    night(lake, {D3: 66})
    release_live(lake.workspace, who="sensor")
    releases = Releases(str(lake.root))

    with killed_when(lambda: lake.values()[D1] == 7) as killed:
        publish(lake, plan)
    assert killed
    releases.point(releases.newest(), "stable", 2, who="bo", reason="a wrong night")  # type: ignore[arg-type]
    publish(lake, plan, "candidate")
    assert lake.plans.state(plan.id) == "published"
    assert released(lake) == released(lake, B.name) == RELEASED | {D0: 5}


@pytest.mark.parametrize("nights_since", [False, True])
def test_a_fix_reaches_readers_without_showing_them_the_fault_again(lake, nights_since):
    night(lake, {D3: 66})
    release_live(lake.workspace, who="sensor")
    releases = Releases(str(lake.root))
    releases.point(releases.newest(), "stable", 1, who="bo", reason="a wrong night")  # type: ignore[arg-type]
    if nights_since:
        night(lake, {D2: 5})
        assert isinstance(release_live(lake.workspace, who="sensor"), Withheld)
    plan = rebuilt_in_shadow(lake, {D3: 6})
    right = RELEASED | {D3: 6} | ({D2: 5} if nights_since else {})
    with pytest.raises(
        RefusedByGuard,
        match=f"If the plan fixes it.*`backfill publish {plan.id} --channel candidate`",
    ):
        publish(lake, plan)
    number = publish(lake, plan, "candidate").release.number
    assert (released(lake), released(lake, channel="candidate")) == (RELEASED, right)
    with pytest.raises(
        RefusedByGuard,
        match=f"point them at release {number} first: `backfill rollback --release {number} ",
    ):
        publish(lake, plan)
    releases.point(releases.newest(), "stable", number, who="bo", reason="mended")  # type: ignore[arg-type]
    night(lake, {D0: 7})
    release_live(lake.workspace, who="sensor")
    assert released(lake) == released(lake, B.name) == right | {D0: 7}


def test_a_switch_gives_readers_without_a_release_nothing(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    publish(lake, rebuilt_in_shadow(lake, RELEASED), "candidate")
    with pytest.raises(RefusedByGuard, match=r"stable have no release yet.*Nothing was switched"):
        Switch(A.name, B.name).carry_out(lake.workspace, "ada")
    assert list(Releases(str(lake.root)).newest().channels) == ["candidate"]  # type: ignore[union-attr]
