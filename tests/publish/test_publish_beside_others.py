"""Publishing while live, releases and other plans are not at rest: what readers of each channel
get. No Spark.
"""

from datetime import date
from threading import Thread

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.publish import Publication, left_with_plan
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.publish.rollback import Kind
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.verify.verify import verify
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    approved,
    half_published,
    publish,
    rebuilt_in_shadow,
    released,
    released_lake,
)

D0, D1, D2, D3 = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return released_lake(tmp_path)


def test_beside_half_a_publication_of_another_plan_nothing_is_released(lake):
    half = half_published(lake, {D1: 7})
    plan = rebuilt_in_shadow(lake, {D2: 8})
    with pytest.raises(
        Guarded, match=f"plan {half.id} is published in part .*Nothing was published"
    ):
        publish(lake, plan)
    assert released(lake) == released(lake, B.name) == RELEASED
    publish(lake, half)
    publish(lake, plan)
    assert released(lake) == released(lake, B.name) == RELEASED | {D1: 7, D2: 8}


def test_rolling_back_half_a_publication_lets_live_be_released(lake):
    half = half_published(lake, {D1: 7})
    lake.roll_back(half)
    assert lake.values() == lake.values(B.name) == RELEASED
    assert not (lake.root / "_shadow" / half.id).exists()
    lake.write({D3: 9})
    release_live(lake.workspace, who="sensor")
    assert released(lake) == RELEASED | {D3: 9}


@pytest.mark.parametrize("force", [False, True])
def test_half_a_publication_is_given_up_and_what_a_night_has_built_since_stays_whole(lake, force):
    half = half_published(lake, {D1: 7})
    lake.workspace.lake.recover([A.name, B.name])  # as every step does
    for table in (A.name, B.name):
        lake.write({D1: 5}, table=table)
    assert set(lake.roll_back(half, force=force).values()) == {Kind.CONFLICT}
    assert (lake.plans.state(half.id), lake.plans.half_published()) == ("rolled_back", [])
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)
    assert released(lake) == released(lake, B.name) == RELEASED | {D1: 5}


def test_half_a_publication_of_which_rows_would_stay_is_not_given_up_without_force(lake):
    half = half_published(lake, {D1: 7})
    DeltaTable(str(lake.root / A.name)).update(updates={"n": "n"}, predicate=f"day = '{D1}'")
    with pytest.raises(
        Guarded,
        match=f"1 of its partition.*{A.name} {D1}: built since.*publish {half.id}`.*--force",
    ):
        lake.roll_back(half)
    assert lake.plans.half_published() == [half.id]


def test_after_half_a_publication_plans_are_taken_back_to_what_none_of_them_has_made(lake):
    plan = half_published(lake, {D1: 9})
    lake.workspace.lake.recover([A.name, B.name])
    other = lake.plan({A.name: [D1], B.name: [D1]})
    for table in (A.name, B.name):
        lake.write({D1: 5}, table=table, plan=other.id)
    rebase(plan, lake.workspace, "ada")
    publish(lake, plan)
    assert lake.values() == lake.values(B.name) == RELEASED | {D1: 9}
    for each, left in ((plan, 5), (other, 2), (plan, 2)):
        lake.roll_back(each)
        assert lake.values() == lake.values(B.name) == RELEASED | {D1: left}


def test_of_two_publications_that_begin_at_once_one_is_published_and_then_the_other(lake):
    one = rebuilt_in_shadow(lake, {D1: 7})
    other = rebuilt_in_shadow(lake, {D2: 8})
    refusals: list[str | None] = []
    threads: list[Thread] = []

    def begins_meanwhile():
        if not refusals:
            refusals.append(None)
            second = Thread(target=lambda: refusals.append(refused(lake, other)))
            second.start()
            second.join(timeout=0.5)  # it waits for the first to have begun
            threads.append(second)
        return NOW

    Publication(one, lake.workspace, "ada").publish("stable", begins_meanwhile, approved)
    threads[0].join()
    assert released(lake) == RELEASED | {D1: 7} | ({} if refusals[1] else {D2: 8})
    publish(lake, other)
    assert released(lake) == released(lake, B.name) == RELEASED | {D1: 7, D2: 8}
    assert lake.plans.half_published() == []


def refused(lake: SmallLake, plan: Plan) -> str:
    try:
        publish(lake, plan)
    except Guarded as error:
        return str(error)
    return ""


def test_a_run_that_begins_while_files_are_copied_is_asked_for_again(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    asked = []

    def runs():
        asked.append(lake.values()[D1])
        return ["run 1b9d6bcd"] if lake.values()[D1] == 7 else []

    with pytest.raises(Guarded, match="run 1b9d6bcd is not finished"):
        publish(lake, plan, runs=runs)
    assert asked == [2, 7]
    assert released(lake) == RELEASED
    publish(lake, plan)
    assert released(lake) == RELEASED | {D1: 7}


def test_beside_an_open_plan_in_live_or_a_run_that_goes_on_nothing_is_released(lake):
    plan, other = rebuilt_in_shadow(lake, {D1: 7}), lake.plan({A.name: [D2]})
    lake.plans.note(other.id, "started", NOW)
    lake.write({D2: 9}, plan=other.id)
    with pytest.raises(Guarded, match=f"plan {other.id} is open"):
        publish(lake, plan)
    lake.plans.note(other.id, "ended", NOW, ending="done")
    with pytest.raises(Guarded, match="run 1b9d6bcd is not finished"):
        publish(lake, plan, runs=lambda: ["run 1b9d6bcd"])
    assert released(lake) == RELEASED


def test_readers_who_were_pointed_back_do_not_get_that_release_again(lake):
    lake.write({D3: 666})
    release_live(lake.workspace, who="sensor")
    releases = Releases(str(lake.root))
    plan = rebuilt_in_shadow(lake, {D1: 7})
    releases.point(releases.newest(), "stable", 1, who="bo", reason="a wrong night")  # type: ignore[arg-type]
    with pytest.raises(
        Guarded,
        match=(
            r"stable were pointed back to release 1: a wrong night \(bo\).*--release 2 --channel"
            r" stable"
        ),
    ):
        publish(lake, plan)
    assert released(lake) == RELEASED


def test_the_second_channel_gets_the_release_of_the_first(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan, "candidate")
    assert (released(lake), released(lake, channel="candidate")) == (RELEASED, RELEASED | {D1: 7})
    lake.write({D3: 9})
    lake.fail(D3, table=B.name)
    DeltaTable(str(lake.root / A.name)).delete(f"day = '{D0}'")
    publish(lake, plan, "stable")
    assert released(lake) == RELEASED | {D1: 7}


def test_changes_of_live_are_released_first_to_readers_without_the_plan(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    lake.write({D3: 9})
    publish(lake, plan, "candidate")
    assert (released(lake), released(lake, channel="candidate")) == (
        RELEASED | {D3: 9},
        RELEASED | {D1: 7, D3: 9},
    )


def test_a_lake_that_was_never_released_gives_stable_what_it_had_before_the_plan(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    lake.write(RELEASED)
    publish(lake, rebuilt_in_shadow(lake, {D1: 7}), "candidate")
    assert (released(lake), released(lake, channel="candidate")) == (RELEASED, RELEASED | {D1: 7})


def test_a_channel_is_not_given_a_plan_that_readers_were_pointed_back_from(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan, "candidate")
    releases = Releases(str(lake.root))
    releases.point(releases.newest(), "candidate", 1, who="bo", reason="wrong")  # type: ignore[arg-type]
    with pytest.raises(
        Guarded,
        match=f"No readers get plan {plan.id} any more: they were pointed back to release 1",
    ):
        publish(lake, plan, "stable")


def test_channels_that_keep_a_rolled_back_plan_are_named_with_a_command(lake):
    first = rebuilt_in_shadow(lake, {D1: 7})
    second = rebuilt_in_shadow(lake, {D2: 8})
    publish(lake, first)
    publish(lake, second, "candidate")
    lake.roll_back(first)
    said = left_with_plan(first, lake.workspace)
    assert said.startswith(
        "Readers of stable still get the plan, with release 2. `backfill rollback --release 1 "
    )
    release_live(lake.workspace, who="sensor")
    assert (released(lake)[D1], released(lake, channel="candidate")[D1]) == (7, 2)


def test_a_published_plan_is_taken_back_by_a_rollback_and_by_nothing_else(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan)
    for act in (
        lambda: discard(plan, lake.workspace, who="ada", now=lambda: NOW),
        lambda: rebase(plan, lake.workspace, "ada"),
        lambda: verify(plan, lake.workspace, who="ada", now=lambda: NOW),
    ):
        with pytest.raises(
            UsageError, match=f"Plan {plan.id} is published.*backfill rollback {plan.id}"
        ):
            act()
    assert lake.plans.state(plan.id) == "published"
    lake.roll_back(plan)
    assert lake.values() == RELEASED


def test_a_day_of_live_that_lost_its_file_is_written_even_with_equal_rows(lake):
    (path,) = lake.files()[D1] - lake.files()[D0]
    (lake.root / A.name / path).unlink()
    plan = rebuilt_in_shadow(lake, {D1: 2})
    published = publish(lake, plan)
    assert {(b.table, b.outcome) for b in published.builds} == {
        (A.name, "accepted"),
        (B.name, "unchanged"),
    }
    assert lake.values() == RELEASED == released(lake)


def test_a_night_without_any_row_of_a_day_beside_the_plan_does_not_fail_its_verdict(lake):
    plan = rebuilt_in_shadow(lake, {D1: 2})
    for table in (A.name, B.name):
        lake.write({date(2019, 8, 19): 0}, table=table)
    verdict = verify(plan, lake.workspace, who="ada", now=lambda: NOW)
    assert verdict.passed, [line for line in verdict.lines if line.outcome != "passed"]
