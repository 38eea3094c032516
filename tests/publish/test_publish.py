"""Publishing a shadow: which days of live change, what is refused, and what a publication that was
killed leaves. No Spark.
"""

import shutil
from datetime import date
from threading import Thread

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import Conflict, RefusedByGuard, UsageError
from backfill_assets.lake.acts import finish
from backfill_assets.lake.damage import Depth
from backfill_assets.lake.ledger import BUILD_SCHEMA
from backfill_assets.lake.recorded_acts import Acts, Stage
from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.status import latest_builds
from backfill_assets.publish.conflicts import ShadowState, state_of
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import NothingNew, Released, release_live
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.verify.verify import verify
from tests.worlds.depth import each_write
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    everywhere,
    files_on_disk,
    gets,
    half_published,
    killed_after,
    killed_when,
    publish,
    rebuilt_in_shadow,
    released,
    timeless,
)

D0, D1, D2, D3 = DAYS
WRITES_OF_A_PUBLICATION = 11
WRITES_OF_A_ROLLBACK = 7


def test_what_is_built_in_a_shadow_is_seen_by_nobody_before_it_is_published(lake):
    before = lake.values()
    files = lake.files()
    plan = rebuilt_in_shadow(lake, {D1: 7})
    assert (lake.values(), lake.files(), released(lake)) == (before, files, before)
    assert isinstance(release_live(lake.workspace, who="sensor"), NothingNew)
    state = state_of(plan, lake.workspace)
    assert (state.unbuilt, state.conflicts) == ({}, {})


def test_publishing_changes_the_plans_days_in_every_table_and_no_other_file(lake):
    files = {table: lake.files(table) for table in (A.name, B.name)}
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    published = publish(lake, plan)
    assert everywhere(lake) == RELEASED | {D1: 7, D2: 8}
    for table in (A.name, B.name):
        assert {day: of for day, of in lake.files(table).items() if day not in (D1, D2)} == {
            day: of for day, of in files[table].items() if day not in (D1, D2)
        }
    assert published.count("accepted") == 4
    assert published.release
    assert (published.release.number, published.release.kind) == (2, "publish")
    assert lake.plans.state(plan.id) == "published"


def test_a_published_day_is_recorded_with_its_plan_its_code_and_its_inputs(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan)
    build = lake.workspace.lake.latest(
        {B.name: [D1]},
        BUILD_SCHEMA.names,
    ).accepted[B.name, D1]
    assert (build.plan, build.who, build.reason, build.code_version) == (
        plan.id,
        "ada",
        "a new rule",
        "1",
    )
    assert build.inputs == {A.name: {str(D1): "7"}}
    assert build.input_versions == {
        A.name: 1
    }  # live's version, with the days that were published just before
    assert build.delta_version == DeltaTable(str(lake.root / B.name)).version() == 1
    assert build.run.startswith(f"publish-{plan.id}-")


def test_a_day_that_live_has_already_is_recorded_and_not_written(lake):
    plan = rebuilt_in_shadow(lake, {D0: 1, D1: 7})
    files = lake.files()
    published = publish(lake, plan)
    assert {(b.table, b.day): b.outcome for b in published.builds} == {
        (A.name, D0): "unchanged",
        (A.name, D1): "accepted",
        (B.name, D0): "unchanged",
        (B.name, D1): "accepted",
    }
    assert lake.files()[D0] == files[D0]


def test_files_are_linked_on_one_disk_and_stay_when_the_shadow_is_deleted(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    shadow = lake.root / "_shadow" / plan.id
    [written] = list((shadow / A.name).rglob("*.parquet"))
    inode = written.stat().st_ino
    publish(lake, plan)
    assert not shadow.exists()
    assert inode in {path.stat().st_ino for path in (lake.root / A.name).rglob("*.parquet")}


def test_a_night_that_lands_meanwhile_on_other_days_stays_and_is_no_conflict(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    for table in (A.name, B.name):
        lake.write({D3: 9}, table=table)
    publish(lake, plan)
    assert lake.values() == released(lake) == RELEASED | {D1: 7, D3: 9}


def test_a_night_on_the_plans_day_is_a_conflict_and_rebasing_solves_it(lake, golden):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    for table in (A.name, B.name):
        lake.write({D1: 5}, table=table)
    with pytest.raises(RefusedByGuard) as refused:
        publish(lake, plan)
    golden(timeless(str(refused.value)), PLAN=plan.id)
    assert lake.values() == RELEASED | {D1: 5}
    state = rebase(plan, lake.workspace, "ada")
    assert (list(state.conflicts), list(state.unbuilt)) == ([(A.name, D1), (B.name, D1)], [])
    publish(lake, plan)
    assert lake.values() == RELEASED | {D1: 7, D2: 8}


def test_a_night_that_brought_the_same_rows_is_no_conflict(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    for table in (A.name, B.name):
        lake.write({D1: 7}, table=table)
    published = publish(lake, plan)
    assert {build.outcome for build in published.builds} == {"unchanged"}


def test_a_changed_input_is_a_conflict_and_rebase_makes_its_day_due(lake, is_refused):
    plan = lake.shadow_plan({B.name: [D1]})
    lake.write({D1: 7}, table=B.name, into=plan)
    lake.write({D1: 5}, table=A.name)
    is_refused(publish, lake, plan, part="changed")
    state = rebase(plan, lake.workspace, "ada")
    assert list(state.unbuilt) == [(B.name, D1)]
    is_refused(publish, lake, plan, part="rebased")
    lake.write({D1: 8}, table=B.name, into=plan)
    publish(lake, plan)
    assert lake.values(B.name)[D1] == 8


def test_a_hand_made_commit_on_the_plans_day_is_a_conflict(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    DeltaTable(str(lake.root / A.name)).update(updates={"n": "n + 100"}, predicate=f"day = '{D1}'")
    with pytest.raises(RefusedByGuard, match=f"(?s)raw/a.*{D1}"):
        publish(lake, plan)


def test_days_that_failed_or_are_missing_in_the_shadow_are_not_published(lake, is_refused):
    plan = lake.shadow_plan({A.name: [D1, D2]})
    lake.write({D1: 7}, into=plan)
    is_refused(publish, lake, plan)
    assert lake.values() == RELEASED


def test_days_whose_inputs_are_not_built_yet_wait_for_them_although_live_has_them(lake):
    plan = lake.shadow_plan({A.name: [D1, D2], B.name: [D1, D2]}, force=False)
    lake.write({D1: 7}, into=plan)
    lake.write({D1: 7}, into=plan, table=B.name)
    assert state_of(plan, lake.workspace).unbuilt == {}  # D2 is up to date in live
    lake.write({D2: 9})
    rebase(plan, lake.workspace, "ada")
    DeltaTable(str(lake.root / A.name)).delete(f"day = '{D2}'")
    rebase(plan, lake.workspace, "ada")
    unbuilt = state_of(plan, lake.workspace).unbuilt
    assert list(unbuilt) == [(A.name, D2), (B.name, D2)]


def test_a_file_of_the_shadow_that_is_gone_keeps_it_from_being_published(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    for file in (lake.root / "_shadow" / plan.id / A.name).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(RefusedByGuard, match="not built"):
        publish(lake, plan)
    assert lake.values() == RELEASED


def test_who_objects_keeps_a_shadow_from_being_published(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    files = lake.files()

    def refuse(state: ShadowState) -> None:
        raise RefusedByGuard("not verified")

    with pytest.raises(RefusedByGuard, match="not verified"):
        Publication(plan, lake.workspace, "ada").publish(refuse)
    assert (lake.files(), lake.plans.state(plan.id)) == (files, "done")


@each_write(WRITES_OF_A_PUBLICATION)
def test_a_publication_killed_after_any_write_is_finished_by_the_same_command(lake, writes):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    before = lake.values()
    with killed_after(writes) as killed:
        publish(lake, plan)
    assert killed
    half_way = gets(lake)
    assert half_way in (before, before | {D1: 7, D2: 8})
    if half_way == before:  # whatever is in live by now: readers get all of it, or nothing
        assert not isinstance(release_live(lake.workspace, who="sensor"), Released)
    finished = publish(lake, plan)
    # All that is to be shown in Dagster, whichever of the two commands has committed it; once all
    # was published, nothing.
    assert {(b.table, b.day) for b in finished.builds} in [
        {(t.name, d) for t in (A, B) for d in (D1, D2)},
        set(),
    ]
    assert everywhere(lake) == RELEASED | {D1: 7, D2: 8}
    for table in (A.name, B.name):
        outcomes = [
            b.outcome for b in lake.workspace.lake.ledger.builds({table: [D1]}) if b.plan == plan.id
        ]
        assert outcomes == ["accepted"]
    assert isinstance(release_live(lake.workspace, who="sensor"), NothingNew)
    assert not (lake.root / "_shadow" / plan.id).exists()


@each_write(WRITES_OF_A_PUBLICATION)
def test_a_night_after_a_killed_publication_gives_readers_all_of_it_or_nothing(lake, writes):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    with killed_after(writes):
        publish(lake, plan)
    for table in (A.name, B.name):
        lake.write({D3: 9}, table=table)
    release_live(lake.workspace, who="sensor")
    is_published = lake.plans.state(plan.id) == "published"
    releases = [event.facts["release"] for event in lake.events(plan, "published")]
    assert releases == ([2] if is_published else [])
    rows = {D1: 7, D2: 8} if is_published else {}
    assert everywhere(lake) == RELEASED | {D3: 9} | rows


@pytest.mark.parametrize("stage", [Stage.RECORDED, Stage.COMMITTING])
def test_an_act_whose_shadow_was_deleted_ends_and_blocks_no_writer(lake, stage):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    acts = Acts(str(lake.root))
    with killed_when(lambda: (entry := acts.newest()) and entry.stage == stage) as killed:
        publish(lake, plan)
    assert killed
    delete_shadow(str(lake.root), plan.id)
    lake.write({D3: 9})
    is_decided = stage == Stage.COMMITTING
    assert lake.values() == RELEASED | {D3: 9} | ({D1: 7} if is_decided else {})
    assert gets(lake) == RELEASED | ({D1: 7} if is_decided else {})
    newest = acts.newest()
    assert newest is not None
    assert newest.stage == (Stage.ENDED if is_decided else Stage.ABORTED)


def test_a_decided_act_is_finished_without_its_files_and_the_days_are_built_again(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    acts = Acts(str(lake.root))
    before = files_on_disk(lake)
    with killed_when(lambda: (entry := acts.newest()) and entry.stage == Stage.COMMITTING):
        publish(lake, plan)
    delete_shadow(str(lake.root), plan.id)
    for file in files_on_disk(lake) - before:
        (lake.root / A.name / file).unlink()
    finish(str(lake.root))
    assert acts.unfinished() is None
    assert gets(lake) == RELEASED
    builds = latest_builds(lake.workspace)
    assert set(lake.workspace.lake.damaged(builds, {A.name: None}, Depth.FILES)) == {(A.name, D1)}
    lake.roll_back(plan)
    assert everywhere(lake) == RELEASED


def test_a_decided_act_is_finished_once_a_table_that_others_changed_is_restored(lake, golden):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    acts = Acts(str(lake.root))
    with killed_when(lambda: (entry := acts.newest()) and entry.stage == Stage.COMMITTING):
        publish(lake, plan)
    version = lake.workspace.lake.version(B.name)
    texts = pa.table({"n": ["x"], "day": pa.array([D0], pa.date32())})
    write_deltalake(str(lake.root / B.name), texts, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(Conflict) as refused:
        lake.write({D3: 9})
    decided = acts.newest()
    assert decided
    golden(str(refused.value), ACT=decided.id, VERSION=f"VERSION AS OF {version}")
    DeltaTable(str(lake.root / B.name)).restore(version)
    lake.write({D3: 9})
    assert gets(lake) == RELEASED | {D1: 7}


@each_write(WRITES_OF_A_ROLLBACK)
def test_readers_get_a_rollback_killed_after_any_write_as_a_whole(lake, writes):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan)
    with killed_after(writes) as killed:
        lake.roll_back(plan)
    assert killed
    gets(lake)
    lake.write({D3: 9})
    is_done = lake.plans.is_rolled_back(plan.id)
    assert gets(lake) == RELEASED | ({} if is_done else {D1: 7})
    lake.roll_back(plan)
    assert lake.values() == RELEASED | {D3: 9}
    assert {event.kind for event in lake.plans.events(plan.id)} == {"started", "ended"}
    assert len(lake.events(plan, "rolled_back")) == 1


def test_a_publication_and_a_rollback_have_no_other_writes(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    with killed_after(WRITES_OF_A_PUBLICATION + 1) as killed:
        publish(lake, plan)
    assert not killed
    with killed_after(WRITES_OF_A_ROLLBACK + 1) as killed:
        lake.roll_back(plan)
    assert not killed


def test_a_rollback_has_a_release_of_its_own(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan)
    for table in (A.name, B.name):
        lake.write({D3: 9}, table=table)  # not released yet
    result = lake.rolled_back(plan)
    assert result.release is not None
    assert (result.release.number, result.release.kind) == (3, "rollback")
    assert gets(lake) == RELEASED | {D3: 9}
    assert isinstance(release_live(lake.workspace, who="sensor"), NothingNew)


def test_a_rollback_is_not_withheld_by_an_outdated_day_and_its_release_is(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan)
    lake.write({D3: 9})
    result = lake.rolled_back(plan)
    assert result.release is None
    assert [(reason.cause, reason.days) for reason in result.withheld] == [("outdated", (D3,))]
    assert lake.values() == RELEASED | {D3: 9}
    assert released(lake) == RELEASED | {D1: 7}
    lake.write({D3: 9}, table=B.name)
    release_live(lake.workspace, who="sensor")
    assert gets(lake) == RELEASED | {D3: 9}


def test_after_the_record_of_acts_was_lost_a_plan_is_published_as_before(lake):
    publish(lake, rebuilt_in_shadow(lake, {D1: 7}))
    shutil.rmtree(lake.root / "_acts")
    plan = rebuilt_in_shadow(lake, {D2: 8})
    assert publish(lake, plan).count("accepted") == 2
    assert gets(lake) == RELEASED | {D1: 7, D2: 8}
    lake.roll_back(plan)
    assert lake.values() == lake.values(B.name) == RELEASED | {D1: 7}


def test_a_killed_publication_is_finished_before_the_next_act(lake):
    killed = half_published(lake, {D1: 7})
    publish(lake, rebuilt_in_shadow(lake, {D2: 8}))
    assert gets(lake) == RELEASED | {D1: 7, D2: 8}
    lake.roll_back(killed)
    assert lake.values() == lake.values(B.name) == RELEASED | {D2: 8}


def test_a_killed_publication_is_finished_before_a_plan_that_writes_to_live(lake):
    plan = half_published(lake, {D1: 9})
    other = lake.plan({A.name: [D1], B.name: [D1]})
    for table in (A.name, B.name):
        lake.write({D1: 5}, table=table, plan=other.id)
    assert gets(lake) == RELEASED | {D1: 9}
    for each, left in ((other, 9), (plan, 2)):
        lake.roll_back(each)
        assert lake.values() == lake.values(B.name) == RELEASED | {D1: left}


def test_of_two_publications_that_begin_at_once_one_is_published_and_then_the_other(lake):
    one = rebuilt_in_shadow(lake, {D1: 7})
    other = rebuilt_in_shadow(lake, {D2: 8})
    refusals: list[str | None] = []
    threads: list[Thread] = []

    def begins_meanwhile(_):
        if not refusals:
            refusals.append(None)
            second = Thread(target=lambda: refusals.append(refused(lake, other)))
            second.start()
            second.join(timeout=0.5)
            threads.append(second)

    Publication(one, lake.workspace, "ada").publish(begins_meanwhile)
    threads[0].join()
    assert released(lake) == RELEASED | {D1: 7} | ({} if refusals[1] else {D2: 8})
    publish(lake, other)
    assert gets(lake) == RELEASED | {D1: 7, D2: 8}


def refused(lake: SmallLake, plan: Plan) -> str:
    try:
        publish(lake, plan)
    except RefusedByGuard as error:
        return str(error)
    return ""


def test_a_run_that_begins_after_the_decision_delays_no_publication(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan, runs=lambda: {"run 1b9d6bcd": "r"} if lake.values()[D1] == 7 else {})
    assert gets(lake) == RELEASED | {D1: 7}


def test_beside_an_open_plan_in_live_nothing_is_released(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    other = lake.plan({A.name: [D2]})
    lake.plans.note(other.id, "started", NOW)
    lake.write({D2: 9}, plan=other.id)
    with pytest.raises(RefusedByGuard, match=other.id):
        publish(lake, plan)
    assert released(lake) == RELEASED


def test_a_published_plan_is_taken_back_by_a_rollback_and_by_nothing_else(lake, golden):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan)
    for name, act in {
        "discard": lambda: discard(plan, lake.workspace, who="ada", now=lambda: NOW),
        "rebase": lambda: rebase(plan, lake.workspace, "ada"),
        "verify": lambda: verify(plan, lake.workspace, who="ada", now=lambda: NOW),
    }.items():
        with pytest.raises(UsageError) as refused:
            act()
        golden(str(refused.value), name, PLAN=plan.id)
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
