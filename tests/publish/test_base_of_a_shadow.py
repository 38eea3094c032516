"""What a shadow was opened on: its record, the files of live and tables that have nothing to do
with it. No Spark.
"""

import pytest

from backfill_assets.errors import Guarded, TableUnreadable, UsageError
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.verify.checklist import Result
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    A,
    B,
    SmallLake,
    publish_verified,
    rebuilt_in_shadow,
    released,
    ten_rows,
    verdict_of,
)

D0, D1, D2, D3 = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return ten_rows(tmp_path)


def test_lost_files_of_the_base_are_a_conflict_that_rebase_solves(lake):
    plan = rebuilt_in_shadow(lake, {D1: 11})
    (file,) = lake.files()[D1]
    lake.write({D1: 99})
    # The same rows again, in another file, as after a compaction.
    lake.write({D1: lake.values(B.name)[D1]})
    (lake.root / A.name / file).unlink()
    with pytest.raises(
        TableUnreadable,
        match=f"Version 0 of raw/a cannot be read: on {D1}, its file {file} is missing.*rebase",
    ):
        verdict_of(plan, lake.workspace)
    with pytest.raises(
        Guarded, match=f"version 0 of live, which the shadow reads, its file {file} is missing"
    ):
        Publication(plan, lake.workspace, "ada").publish("stable", lambda: NOW, lambda state: None)
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
    assert verdict_of(plan, lake.workspace).result != Result.FAILED
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
