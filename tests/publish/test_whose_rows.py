"""Whom a plan's rows reach goes by who wrote what live, or a release, holds: however often it was
put back. No Spark.
"""

import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import RefusedByGuard
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.channels import lagging_channels
from backfill_assets.publish.release_live import release_live
from tests.worlds.small_lake import (
    DAYS,
    RELEASED,
    A,
    B,
    SmallLake,
    publish,
    rebuilt_in_shadow,
    released,
)

D0, D1, D2, D3 = DAYS


def night(lake: SmallLake, values) -> None:
    for table in (A.name, B.name):
        lake.write(values, table=table)


def built_over_and_taken_back(lake: SmallLake) -> None:
    """Another plan builds the day in live, and is rolled back."""
    other = lake.plan({A.name: [D1], B.name: [D1]})
    for table in (A.name, B.name):
        lake.write({D1: 5}, table=table, plan=other.id)
    lake.roll_back(other)


def compacted(lake: SmallLake) -> None:
    """The files of the day are written anew, as an OPTIMIZE does it."""
    for table in (A.name, B.name):
        DeltaTable(str(lake.root / table)).optimize.z_order(
            ["n"], partition_filters=[("day", "in", [str(D1)])]
        )


def tried(lake: SmallLake, values) -> Plan:
    plan = rebuilt_in_shadow(lake, values)
    publish(lake, plan, "candidate")
    return plan


@pytest.mark.parametrize(
    ("value", "upkeep"),
    [(7, True), (0, False)],
    ids=["compacted before", "a day that it has emptied"],
)
def test_rows_restored_by_a_rollback_still_belong_to_their_plan(lake, value, upkeep):
    plan = tried(lake, {D1: value})
    if upkeep:
        compacted(lake)
    built_over_and_taken_back(lake)
    release_live(lake.workspace, who="sensor")
    assert lake.values().get(D1, 0) == value
    assert released(lake) == released(lake, B.name) == RELEASED
    assert [
        each.plans for each in lagging_channels(str(lake.root), Releases(str(lake.root)).newest())
    ] == [(plan.id,)]


def test_a_rollback_passes_over_a_day_that_a_plan_which_was_rolled_back_has_emptied(lake):
    first = rebuilt_in_shadow(lake, {D1: 0, D2: 8})
    later = lake.plan({A.name: [D1], B.name: [D1]}, reason="later")
    publish(lake, first)
    built_over_and_taken_back(lake)  # which puts the empty day back
    for table in (A.name, B.name):
        lake.write({D1: 9}, table=table, plan=later.id)
    lake.roll_back(first)  # the day that the later plan has built stays
    lake.roll_back(later)
    assert lake.values() == lake.values(B.name) == RELEASED


@pytest.mark.parametrize("how", ["taken back", "built by a night"])
def test_a_plan_brings_stable_no_rows_of_a_plan_that_left_live(lake, how):
    plan = tried(lake, {D1: 7})
    other = tried(lake, {D2: 8})
    if how == "taken back":
        lake.roll_back(other)
    else:
        night(lake, {D2: 5})
    publish(lake, plan)
    now = RELEASED | {D1: 7} | ({} if how == "taken back" else {D2: 5})
    assert released(lake) == released(lake, B.name) == released(lake, channel="candidate") == now


def test_stable_gets_no_rolled_back_plan_while_live_cannot_be_released(lake):
    plan = tried(lake, {D1: 7})
    other = tried(lake, {D2: 8})
    lake.fail(D3)
    lake.roll_back(other)
    with pytest.raises(
        RefusedByGuard,
        match=(
            f"Release 3, .* has rows of plan {other.id}, and live has none any more, and cannot be "
        ),
    ):
        publish(lake, plan)
    assert released(lake) == RELEASED
    night(lake, {D3: 4})
    publish(lake, plan)
    assert released(lake) == released(lake, B.name) == RELEASED | {D1: 7}


def test_an_old_release_names_its_plans_in_its_reason(lake):
    plan = tried(lake, {D1: 7})
    path = Releases(str(lake.root)).path
    older = DeltaTable(path).to_pyarrow_table().drop_columns(["plans"])
    write_deltalake(path, older, mode="overwrite", schema_mode="overwrite")
    night(lake, {D3: 9})
    release_live(lake.workspace, who="sensor")
    assert (released(lake), released(lake, channel="candidate")) == (
        RELEASED,
        RELEASED | {D1: 7, D3: 9},
    )
    publish(lake, plan)
    assert released(lake) == released(lake, B.name) == RELEASED | {D1: 7, D3: 9}


def test_rows_derived_from_a_rolled_back_plan_reach_stable_only_when_rebuilt(lake):
    plan = lake.shadow_plan({A.name: [D1]})
    lake.write({D1: 7}, into=plan)
    publish(lake, plan, "candidate")
    lake.write({D1: 7}, table=B.name)  # as the night makes it of A
    lake.roll_back(plan)
    release_live(lake.workspace, who="sensor")
    assert released(lake) == released(lake, B.name) == RELEASED
    (said,) = map(str, lagging_channels(str(lake.root), Releases(str(lake.root)).newest()))
    assert (
        f"days of plan {plan.id}, which was rolled back, or made from them, are left in live. Build"
        " again" in said
    )
    lake.write({D1: 2}, table=B.name)
    release_live(lake.workspace, who="sensor")
    assert released(lake, B.name) == released(lake, B.name, "candidate") == RELEASED
    assert lagging_channels(str(lake.root), Releases(str(lake.root)).newest()) == []


def test_a_plan_built_on_rows_of_a_tried_plan_needs_that_plan_in_stable(lake):
    first = rebuilt_in_shadow(lake, {D1: 7})
    same = rebuilt_in_shadow(lake, {D1: 7, D2: 3})
    publish(lake, first, "candidate")
    assert publish(lake, same, "candidate").count("unchanged") == 4
    with pytest.raises(RefusedByGuard, match=first.id):
        publish(lake, same)
    publish(lake, first)
    publish(lake, same)
    assert released(lake) == released(lake, B.name) == RELEASED | {D1: 7}
