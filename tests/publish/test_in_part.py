"""Publishing days without conflict, and giving up days that live has newer rows of. No Spark."""

from collections.abc import Collection
from dataclasses import replace
from datetime import date

import pytest
from deltalake import DeltaTable

from backfill_assets.diff.sides import DiffRequest
from backfill_assets.errors import RefusedByGuard
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.recorded_acts import Acts, Stage
from backfill_assets.lake.shadow import Base, read_base
from backfill_assets.plan.lifecycle import is_in_shadow
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import WorkState, readers_left, remaining_reader
from backfill_assets.plan.store import PUBLISHED_IN_PART, event_words
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.part import staying
from backfill_assets.publish.pointers import NO_PREVIEW
from backfill_assets.publish.publish import Publication, Published
from backfill_assets.publish.rollback import Kind
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.tables.declaration import SliceDays, Table, Window
from backfill_assets.verbs.rollback import preview_rollback
from backfill_assets.verify.verify import require_verified, verify
from tests.worlds.depth import deep, each_write
from tests.worlds.small_lake import (
    CALENDAR,
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    approved,
    everywhere,
    gets,
    killed_after,
    killed_when,
    preview,
    publish,
    rebuilt_in_shadow,
    released,
    verdict_of,
)
from tests.worlds.tables import workspace_of

D0, D1, D2, D3 = DAYS
WRITES_OF_A_PUBLICATION = 10
# A table whose days read two days of A each.
TWO_DAYS = Table(
    "raw/two_days",
    lambda: None,
    "day",
    "n BIGINT, day DATE",
    {"days": SliceDays(), "a": Window(A, -1, 0, 0)},
    (),
    "1",
)


def in_part(lake: SmallLake, plan: Plan, approve=approved) -> Published:
    publication = Publication(plan, lake.workspace, "ada", "a part", without_conflicts=True)
    return publication.publish(approve)


def night(lake: SmallLake, values: dict[date, int], of: Collection[Table] = (A, B)) -> None:
    for table in of:
        lake.write(values, table=table.name)


def in_conflict(lake: SmallLake) -> Plan:
    """A plan of two days of both tables. A night has built the first one since."""
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    night(lake, {D1: 5})
    return plan


def test_a_preview_of_days_in_conflict_is_refused_as_one(lake):
    plan = in_conflict(lake)
    with pytest.raises(RefusedByGuard) as refused:
        preview(lake, plan)
    assert refused.value.unchanged == NO_PREVIEW


def test_days_without_a_conflict_are_published_and_the_others_stay(lake):
    plan = in_conflict(lake)
    published = in_part(lake, plan)
    assert {(b.table, b.day) for b in published.builds} == {(A.name, D2), (B.name, D2)}
    assert set(published.left) == {(A.name, D1), (B.name, D1)}
    assert everywhere(lake) == RELEASED | {D1: 5, D2: 8}
    assert (lake.plans.state(plan.id), lake.plans.left(plan.id)) == ("done", 2)
    assert is_in_shadow(plan.id, lake.plans)
    assert set(state_of(plan, lake.workspace).builds) == set(plan.partitions())


def test_the_rest_of_a_plan_is_published_once_it_is_rebased(lake):
    plan = in_conflict(lake)
    in_part(lake, plan)
    with pytest.raises(RefusedByGuard):
        publish(lake, plan)
    rebase(plan, lake.workspace, "ada")
    published = publish(lake, plan)
    assert {(b.table, b.day) for b in published.builds} == {(A.name, D1), (B.name, D1)}
    assert everywhere(lake) == RELEASED | {D1: 7, D2: 8}
    assert (lake.plans.state(plan.id), lake.plans.left(plan.id)) == ("published", 0)
    assert not (lake.root / "_shadow" / plan.id).exists()


def test_without_a_conflict_the_whole_plan_is_published(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    assert not in_part(lake, plan).left
    assert lake.plans.state(plan.id) == "published"


def test_a_plan_with_nothing_left_to_publish_is_refused(lake):
    plan = in_conflict(lake)
    in_part(lake, plan)
    before = lake.files()
    with pytest.raises(RefusedByGuard) as refused:
        in_part(lake, plan)
    assert "backfill rebase" in (refused.value.next_step or "")
    assert lake.files() == before


def test_days_that_are_not_built_are_refused_with_and_without_conflicts(lake):
    plan = lake.shadow_plan({A.name: [D1, D2]})
    lake.write({D1: 7}, into=plan)
    with pytest.raises(RefusedByGuard, match="not built"):
        in_part(lake, plan)


def test_the_input_of_a_day_in_conflict_stays_too(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    night(lake, {D1: 5}, of=[B])
    published = in_part(lake, plan)
    assert list(published.left) == [(B.name, D1), (A.name, D1)]
    assert lake.values() == RELEASED | {D2: 8}
    assert lake.values(B.name) == RELEASED | {D1: 5, D2: 8}


def test_an_input_with_the_same_rows_as_live_is_published_without_its_reader(lake):
    plan = lake.shadow_plan({A.name: [D1], B.name: [D1]})
    lake.write({D1: RELEASED[D1]}, into=plan)
    lake.write({D1: 7}, table=B.name, into=plan)
    night(lake, {D1: 5}, of=[B])
    published = in_part(lake, plan)
    assert [(b.table, b.day, b.outcome) for b in published.builds] == [(A.name, D1, "unchanged")]
    assert set(published.left) == {(B.name, D1)}


def test_days_that_are_connected_through_others_stay(lake):
    built = {
        (table.name, at): Build(table.name, at, "accepted", "run", "1", fingerprint="new")
        for table in (A, TWO_DAYS)
        for at in DAYS
    }
    workspace = workspace_of([A, TWO_DAYS], CALENDAR, str(lake.root))
    conflict = (TWO_DAYS.name, D0)
    assert set(staying(workspace, built, {conflict: "why"})) == built.keys()
    # Live has the rows of D1 already, which connect nothing.
    same = built | {(A.name, D1): replace(built[A.name, D1], fingerprint=str(RELEASED[D1]))}
    stay = staying(workspace, same, {conflict: "why"})
    assert set(stay) == {conflict, (A.name, D0), (TWO_DAYS.name, D1)}


@pytest.mark.scale
def test_what_a_night_builds_of_a_published_day_is_a_conflict_of_the_rest(lake):
    plan = in_conflict(lake)
    in_part(lake, plan)
    night(lake, {D2: 9})
    rebase(plan, lake.workspace, "ada", keep_live=True)
    assert lake.plans.state(plan.id) == "done"
    publish(lake, plan)
    assert everywhere(lake) == RELEASED | {D1: 5, D2: 9}


@each_write(WRITES_OF_A_PUBLICATION)
def test_a_killed_publication_in_part_is_finished_by_the_same_command(lake, writes):
    plan = in_conflict(lake)
    with killed_after(writes) as killed:
        in_part(lake, plan)
    assert killed
    assert gets(lake) in (RELEASED, RELEASED | {D1: 5}, RELEASED | {D1: 5, D2: 8})
    newest = Acts(str(lake.root)).newest()
    if newest and newest.stage == Stage.ENDED:
        with pytest.raises(RefusedByGuard):
            in_part(lake, plan)
    else:
        finished = in_part(lake, plan)
        assert {(b.table, b.day) for b in finished.builds} == {(A.name, D2), (B.name, D2)}
    assert everywhere(lake) == RELEASED | {D1: 5, D2: 8}
    of_plan = lake.events(plan, PUBLISHED_IN_PART)
    assert [event.facts["left"] for event in of_plan] == [2]
    assert (lake.plans.state(plan.id), lake.plans.left(plan.id)) == ("done", 2)


@pytest.mark.parametrize("stage", deep([Stage.RECORDED, Stage.COMMITTING], [Stage.COMMITTING]))
def test_the_next_writer_finishes_a_killed_publication_in_part(lake, stage):
    plan = in_conflict(lake)
    acts = Acts(str(lake.root))
    with killed_when(lambda: (entry := acts.newest()) and entry.stage == stage) as killed:
        in_part(lake, plan)
    assert killed
    night(lake, {D3: 9})
    assert lake.values() == lake.values(B.name) == RELEASED | {D1: 5, D2: 8, D3: 9}
    assert lake.plans.state(plan.id) == "done"
    (event,) = lake.events(plan, PUBLISHED_IN_PART)
    assert "2 stay" in event_words(event)


@pytest.mark.scale
def test_each_publication_in_part_has_its_event_if_the_first_was_killed(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8, D3: 9})
    night(lake, {D1: 5, D2: 6})
    acts = Acts(str(lake.root))
    with killed_when(lambda: (entry := acts.newest()) and entry.stage == Stage.ENDED) as killed:
        in_part(lake, plan)
    assert killed
    night(lake, {D2: 8})
    in_part(lake, plan)
    of_plan = lake.events(plan, PUBLISHED_IN_PART)
    assert [event.facts["left"] for event in of_plan] == [4, 2]
    with pytest.raises(RefusedByGuard):
        in_part(lake, plan)


WRITES_OF_A_ROLLBACK = 8


@each_write(WRITES_OF_A_ROLLBACK)
def test_a_killed_rollback_of_a_part_is_finished_by_the_same_command(lake, writes):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    preview(lake, plan)
    night(lake, {D1: 5})
    in_part(lake, plan)
    with killed_after(writes) as killed:
        lake.roll_back(plan)
    assert killed
    lake.roll_back(plan)
    assert everywhere(lake) == released(lake, channel="candidate") == RELEASED | {D1: 5}
    assert not (lake.root / "_shadow" / plan.id).exists()
    assert len(lake.events(plan, "rolled_back")) == 1


def test_a_rollback_takes_back_what_was_published_and_deletes_the_rest(lake):
    plan = in_conflict(lake)
    preview(lake, rebuilt := rebuilt_in_shadow(lake, {D3: 6}))
    in_part(lake, plan)
    decided = lake.roll_back(plan)
    assert decided == {(A.name, D2): Kind.RESTORE, (B.name, D2): Kind.RESTORE}
    assert everywhere(lake) == RELEASED | {D1: 5}
    assert (lake.plans.state(plan.id), lake.plans.left(plan.id)) == ("rolled_back", 0)
    assert not (lake.root / "_shadow" / plan.id).exists()
    assert is_in_shadow(rebuilt.id, lake.plans)


def test_a_rollback_asks_before_it_deletes_the_rest(lake):
    plan = in_conflict(lake)
    in_part(lake, plan)
    ours = preview_rollback(plan, lake.workspace, force=False)
    assert (ours.has_rest, "shadow" in ours.question) == (True, True)
    discard(plan, lake.workspace, who="ada", now=lambda: NOW)
    assert not preview_rollback(plan, lake.workspace, force=False).has_rest


@pytest.mark.scale
def test_the_rest_is_discarded_and_the_part_can_still_be_taken_back(lake):
    plan = in_conflict(lake)
    in_part(lake, plan)
    discard(plan, lake.workspace, who="ada", now=lambda: NOW)
    assert everywhere(lake) == RELEASED | {D1: 5, D2: 8}
    assert lake.plans.state(plan.id) == "discarded"
    diff = DiffRequest(plan.id).run(lake.workspace)
    assert {table.name: [day.day for day in table.days] for table in diff.tables} == {
        A.name: [str(D2)],
        B.name: [str(D2)],
    }
    lake.roll_back(plan)
    assert everywhere(lake) == RELEASED | {D1: 5}


def test_the_preview_of_a_plan_stays_until_all_of_it_is_published(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    preview(lake, plan)
    night(lake, {D1: 5})
    in_part(lake, plan)
    assert released(lake, channel="candidate") == RELEASED | {D1: 7, D2: 8}
    assert gets(lake) == RELEASED | {D1: 5, D2: 8}
    lake.roll_back(plan)
    assert released(lake, channel="candidate") == RELEASED | {D1: 5}


@pytest.mark.parametrize("is_earlier", deep([True, False], [True]))
def test_a_verdict_before_or_after_the_conflict_covers_the_part(lake, is_earlier):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    if is_earlier:
        verdict_of(plan, lake.workspace)
    night(lake, {D1: 5})
    if not is_earlier:
        verdict_of(plan, lake.workspace)
    approve = require_verified(plan, lake.workspace)
    in_part(lake, plan, approve)
    assert everywhere(lake) == RELEASED | {D1: 5, D2: 8}
    rebase(plan, lake.workspace, "ada")
    with pytest.raises(RefusedByGuard):  # the shadow reads other versions of live
        in_part(lake, plan, require_verified(plan, lake.workspace))


def test_live_keeps_its_newer_rows_and_the_plan_publishes_the_others(lake):
    plan = in_conflict(lake)
    state = rebase(plan, lake.workspace, "ada", keep_live=True)
    assert (state.unbuilt, set(state.builds)) == ({}, {(A.name, D2), (B.name, D2)})
    publish(lake, plan)
    assert everywhere(lake) == RELEASED | {D1: 5, D2: 8}
    assert lake.plans.state(plan.id) == "published"


def test_days_that_read_kept_rows_are_built_again_on_them(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    night(lake, {D1: 5}, of=[A])
    state = rebase(plan, lake.workspace, "ada", keep_live=True)
    assert list(state.unbuilt) == [(B.name, D1)]
    remaining = remaining_reader(plan, lake.workspace)({}, {})
    assert remaining.of(WorkState.PENDING) == [(B.name, D1)]
    lake.write({D1: 5}, table=B.name, into=plan)
    assert state_of(plan, lake.workspace).unbuilt == {}
    publish(lake, plan)
    assert everywhere(lake) == RELEASED | {D1: 5, D2: 8}


@pytest.mark.scale
def test_days_that_were_given_up_stay_so_after_another_rebase(lake):
    plan = in_conflict(lake)
    rebase(plan, lake.workspace, "ada", keep_live=True)
    night(lake, {D1: 6, D2: 9})
    state = rebase(plan, lake.workspace, "ada")
    assert set(state.conflicts) == {(A.name, D2), (B.name, D2)}
    publish(lake, plan)
    assert everywhere(lake) == RELEASED | {D1: 6, D2: 8}


def test_a_kept_day_that_reads_what_was_published_is_named(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    night(lake, {D1: 5}, of=[B])
    rebase(plan, lake.workspace, "ada", keep_live=True)
    published = publish(lake, plan)
    assert published.kept == {(B.name, D1)}
    readers = readers_left(plan, lake.workspace, published.kept)
    assert readers.outdated == {B.name: [D1]}


@pytest.mark.scale
def test_a_killed_publication_names_a_kept_day_too(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    night(lake, {D1: 5}, of=[B])
    rebase(plan, lake.workspace, "ada", keep_live=True)
    with killed_when(lambda: lake.plans.state(plan.id) == "published") as killed:
        publish(lake, plan)
    assert killed
    assert publish(lake, plan).kept == {(B.name, D1)}


def test_rows_that_no_build_has_accepted_cannot_be_kept(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    DeltaTable(str(lake.root / A.name)).delete(f"day = '{D1}'")
    before = read_base(str(lake.root), plan.id)
    with pytest.raises(RefusedByGuard, match="cannot be kept"):
        rebase(plan, lake.workspace, "ada", keep_live=True)
    assert read_base(str(lake.root), plan.id) == before


def test_the_days_given_up_are_kept_with_the_shadow():
    base = Base({A.name: 1}, NOW, kept=frozenset({(A.name, D1)}))
    assert Base.from_json(base.to_json().encode()) == base
    older = base.to_json().replace("kept", "unknown")
    assert Base.from_json(older.encode()).kept == frozenset()


def test_a_given_up_day_is_in_no_verdict(lake):
    plan = in_conflict(lake)
    rebase(plan, lake.workspace, "ada", keep_live=True)
    verdict = verify(plan, lake.workspace, who="ada", now=lambda: NOW)
    assert not [line for line in verdict.lines if D1 in line.days]
