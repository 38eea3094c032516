"""Publishing and taking back while a day of live failed, or another plan is open: asked before the
first commit. No Spark.
"""

from dataclasses import replace

import pytest

from backfill_assets.errors import Guarded
from backfill_assets.lake.ledger import ROWS_DIFFER
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.release_live import Released, release_as_it_stands
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
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


@pytest.mark.parametrize(
    "beside", ["a failed day", "an open plan that has not written yet", "rows that differ"]
)
def test_what_would_keep_live_from_being_released_is_asked_before_the_first_commit(lake, beside):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    files = lake.files()
    if beside == "a failed day":
        lake.fail(D3)
    elif beside == "rows that differ":
        ledger = lake.workspace.lake.ledger
        built = ledger.builds({A.name: [D3]})[-1]
        found = replace(
            built,
            outcome="refused",
            message=ROWS_DIFFER,
            fingerprint="other",
            at=ledger.next_time(A.name),
        )
        ledger.append([found])
    else:
        other = lake.plan({A.name: [D3]}, reason="another")
        lake.plans.note(other.id, "started", NOW, who="ben")
    with pytest.raises(
        Guarded, match=r"Live has changes that are not released.*Nothing was published"
    ):
        publish(lake, plan)
    assert lake.files() == files
    assert lake.plans.half_published() == []
    if beside != "an open plan that has not written yet":
        # A person decides on it, as the message says.
        assert isinstance(release_as_it_stands(lake.workspace, who="bo", reason="known"), Released)
        publish(lake, plan)
        assert released(lake)[D1] == 7


def test_a_publication_that_was_killed_is_finished_although_a_day_failed_meanwhile(lake):
    half = half_published(lake, {D1: 7})
    lake.fail(D3)
    with pytest.raises(
        Guarded,
        match=(
            f"Plan {half.id} is in live and not released.*take it back .`backfill rollback"
            f" {half.id}`"
        ),
    ):
        publish(lake, half)
    # All of it, so that no part can be released.
    assert lake.values() == lake.values(B.name) == RELEASED | {D1: 7}
    with pytest.raises(Guarded, match="only a part is in live"):
        release_as_it_stands(lake.workspace, who="bo", reason="the report is due")
    lake.write({D3: 4})
    publish(lake, half)
    assert released(lake) == released(lake, B.name) == RELEASED | {D1: 7}


def test_a_plan_is_not_taken_back_under_one_that_builds_the_same_days_in_live(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan)
    other = lake.plan({A.name: [D1]}, reason="another")
    lake.plans.note(other.id, "started", NOW, who="ben")
    with pytest.raises(Guarded, match=f"{A.name} {D1} is in plan {other.id} too, which is open"):
        lake.roll_back(plan)
    assert lake.values()[D1] == 7


def test_a_night_that_found_the_same_rows_changes_nothing_of_what_the_shadow_reads(lake):
    plan = lake.shadow_plan({A.name: [D1], B.name: [D1, D2]}, force=False)
    for table in (A.name, B.name):
        lake.write({D1: 7}, table=table, into=plan)
    ledger = lake.workspace.lake.ledger
    night = replace(
        ledger.builds({B.name: [D2]})[-1],
        outcome="unchanged",
        run="a night",
        inputs={A.name: {str(D2): "other"}},
    )
    # As after an input that was other, and is so no more.
    ledger.append([replace(night, at=ledger.next_time(B.name))])
    assert state_of(plan, lake.workspace).unbuilt == {}
