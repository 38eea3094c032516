"""What changes while a shadow is verified, published or taken back, and is noticed: versions, code,
inputs, files. No Spark.
"""

import shutil
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import Conflict, RefusedByGuard, TableUnreadable, UsageError
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import Withheld, release_live
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.tables.agreements import Reconciled, reconciliation
from backfill_assets.verify.checklist import VerdictResult
from tests.worlds.depth import deep
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    TEN,
    A,
    B,
    SmallLake,
    copy_of,
    gets,
    killed_when,
    preview,
    publish_verified,
    rebuilt_in_shadow,
    released,
    ten_rows,
    verdict_of,
)

D0, D1, D2, D3 = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return copy_of(ten_rows, tmp_path)


def test_what_is_written_to_the_shadow_after_it_was_looked_at_is_not_published(lake):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    assert verdict_of(plan, lake.workspace).passed
    publish_verified(lake, plan, act=lambda: lake.write({D1: 12}, table=B.name, into=plan))
    assert lake.values(B.name) == TEN | {D1: 11}


def test_a_shadow_that_is_written_while_it_is_verified_gets_no_verdict(lake, golden):
    plan = rebuilt_in_shadow(lake, {D1: 11})

    @reconciliation(tables=[A.name])
    def slow(read, days):
        lake.write({D1: 12}, into=plan)
        return Reconciled("")

    with pytest.raises(Conflict) as refused:
        verdict_of(plan, replace(lake.workspace, reconciliations=(slow,)))
    golden(str(refused.value), PLAN=plan.id)


def test_an_input_that_is_built_again_between_the_look_and_the_commit_is_a_conflict(lake):
    plan = rebuilt_in_shadow(lake, {D1: 11}, of=(B.name,))
    assert verdict_of(plan, lake.workspace).passed
    with pytest.raises(Conflict, match=f"(?s){B.name}.*{D1}.*{A.name}.*{D1}"):
        publish_verified(lake, plan, act=lambda: lake.write({D1: 12}))
    assert lake.values(B.name) == TEN


def test_an_input_that_somebody_rewrote_by_hand_is_a_conflict(lake):
    plan = rebuilt_in_shadow(lake, {D1: 11}, of=(B.name,))
    DeltaTable(str(lake.root / A.name)).update(updates={"n": "n + 1"}, predicate=f"day = '{D1}'")
    assert verdict_of(plan, lake.workspace).result == "failed"


def test_a_reconciliation_that_came_after_the_verdict_asks_for_another_one(lake, golden):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    assert verdict_of(plan, lake.workspace).passed

    @reconciliation(tables=[A.name])
    def totals(read, days):
        return Reconciled("", ["it does not add up"])

    with pytest.raises(RefusedByGuard) as refused:
        publish_verified(lake, plan, replace(lake.workspace, reconciliations=(totals,)))
    golden(str(refused.value), PLAN=plan.id, CODE=totals.version)


def test_a_shadow_that_was_built_anew_to_the_same_versions_is_another_one(lake):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    assert verdict_of(plan, lake.workspace).passed
    for name in ("raw", "_ledger"):
        shutil.rmtree(lake.root / "_shadow" / plan.id / name)
    for table in (A.name, B.name):
        lake.write({D1: 12}, table=table, into=plan)
    with pytest.raises(RefusedByGuard, match=A.name):
        publish_verified(lake, plan)


def test_a_plan_of_other_code_is_neither_verified_nor_published(lake):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    verdict_of(plan, lake.workspace)
    newer = replace(lake.workspace, tables=(replace(A, version="2"), B))
    with pytest.raises(UsageError, match=f"(?s){plan.id}.*{A.name}"):
        verdict_of(plan, newer)
    with pytest.raises(UsageError, match=f"(?s){plan.id}.*{A.name}"):
        publish_verified(lake, plan, newer)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "recreated"])
def test_a_table_of_live_that_was_deleted_while_the_shadow_was_open_is_a_conflict(lake, again):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    shutil.rmtree(lake.root / A.name)
    if again:
        lake.write({D1: 20})
    why = f"live's table was {'recreated' if again else 'deleted'} after the shadow was opened"
    assert state_of(plan, lake.workspace).conflicts[A.name, D1] == why


def test_a_channel_that_nobody_knows_is_refused(lake, golden):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    with pytest.raises(UsageError) as refused:
        preview(lake, plan, "candidat")
    golden(str(refused.value), PLAN=plan.id)


@pytest.mark.parametrize("finished_by", deep(["a release", "the same command"], ["a release"]))
def test_a_killed_rollback_is_finished_by_the_next_writer(lake, finished_by):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    verdict_of(plan, lake.workspace)
    publish_verified(lake, plan)
    with killed_when(lambda: lake.values() != lake.values(B.name)):
        lake.roll_back(plan)
    assert (lake.values()[D1], lake.values(B.name)[D1]) == (10, 11)
    if finished_by == "the same command":
        lake.roll_back(plan)
    release_live(lake.workspace, who="sensor")
    assert lake.plans.state(plan.id) == "rolled_back"
    assert gets(lake) == TEN


def test_a_rollback_one_of_whose_files_is_gone_changes_no_table(lake, golden):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    verdict_of(plan, lake.workspace)
    (old,) = lake.files(B.name)[D1]
    publish_verified(lake, plan)
    (lake.root / B.name / old).unlink()
    with pytest.raises(UsageError) as refused:
        lake.roll_back(plan)
    golden(str(refused.value), PLAN=plan.id)
    assert lake.values()[D1] == lake.values(B.name)[D1] == 11
    for table in (A.name, B.name):
        lake.write({D3: 9}, table=table)
    assert not isinstance(release_live(lake.workspace, who="sensor"), Withheld)


@pytest.mark.scale
def test_lost_files_of_the_base_are_a_conflict_that_rebase_solves(lake, golden):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    (file,) = lake.files()[D1]
    lake.write({D1: 99})
    # The same rows again, in another file, as after a compaction.
    lake.write({D1: lake.values(B.name)[D1]})
    (lake.root / A.name / file).unlink()
    with pytest.raises(
        TableUnreadable,
        match=f"(?s)raw/a.*{D1}.*{file}",
    ):
        verdict_of(plan, lake.workspace)
    with pytest.raises(RefusedByGuard) as refused:
        Publication(plan, lake.workspace, "ada").publish(lambda state: None)
    golden(str(refused.value), PLAN=plan.id, FILE=file)
    rebase(plan, lake.workspace, "ada")
    verdict_of(plan, lake.workspace)
    publish_verified(lake, plan)
    assert released(lake)[D1] == 11


def test_an_unreadable_table_outside_the_plan_does_not_stop_its_shadow(lake):
    log = lake.root / B.name / "_delta_log" / f"{0:020}.json"
    whole = log.read_bytes()
    log.write_bytes(whole[:40])
    plan = lake.shadow_plan({A.name: [D1]})
    lake.write({D1: 11}, into=plan)
    assert verdict_of(plan, lake.workspace).result != VerdictResult.FAILED
    with pytest.raises(TableUnreadable, match=B.name):
        lake.shadow_plan({B.name: [D1]})
    with pytest.raises(TableUnreadable, match=B.name):
        # Nobody knows whether what it holds may be released.
        publish_verified(lake, plan)
    log.write_bytes(whole)
    publish_verified(lake, plan)
    assert released(lake)[D1] == 11


@pytest.mark.parametrize("damage", ["cut short", "gone"])
def test_a_shadow_whose_base_cannot_be_read_is_refused_and_can_be_discarded(lake, damage):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    base = lake.root / "_shadow" / plan.id / "base.json"
    base.write_text(base.read_text()[:20]) if damage == "cut short" else base.unlink()
    for act in (
        lambda: verdict_of(plan, lake.workspace),
        lambda: rebase(plan, lake.workspace, "ada"),
    ):
        with pytest.raises(UsageError, match=f"backfill discard {plan.id}"):
            act()
    discard(plan, lake.workspace, who="ada", now=lambda: NOW)
    assert not base.parent.exists()
    assert lake.plans.state(plan.id) == "discarded"
