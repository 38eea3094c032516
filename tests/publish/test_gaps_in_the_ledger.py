"""A publication is killed before it records its commit, and a night commits next. No Spark."""

from contextlib import suppress
from datetime import date

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import BackfillError
from backfill_assets.lake.history import recover
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.rollback import Kind
from tests.worlds.depth import deep
from tests.worlds.small_lake import (
    DAYS,
    RELEASED,
    A,
    B,
    SmallLake,
    half_published,
    publish,
    released,
)

D0, D1, D2, D3 = DAYS
TABLES = (A.name, B.name)


def killed_before_a_night(lake: SmallLake, values: dict[date, int], night: dict[date, int]) -> Plan:
    """A plan that is committed in A and not recorded; the night that was running then commits and
    records it.
    """
    plan = half_published(lake, values)
    assert plan.id not in {build.plan for build in lake.workspace.lake.ledger.builds()}
    for table in TABLES:
        lake.write(night, table=table)
    return plan


def next_release(lake: SmallLake) -> list[dict[date, int]]:
    """Reconcile the records, release live, and answer what readers get of each table."""
    for table in TABLES:
        recover(lake.workspace.lake.ledger, table)
    release_live(lake.workspace, who="sensor")
    return [released(lake, table) for table in TABLES]


def test_the_night_records_the_commit_of_the_killed_publication_first(lake):
    plan = killed_before_a_night(lake, {D1: 7}, {D2: 9})
    builds = lake.workspace.lake.ledger.builds({A.name: [D1, D2]})
    assert [(build.day, build.plan) for build in builds[-2:]] == [(D1, plan.id), (D2, "")]
    assert builds[-2].delta_version == builds[-1].delta_version - 1


def test_the_publication_can_be_finished_after_the_night(lake):
    publish(lake, killed_before_a_night(lake, {D1: 7}, {D2: 9}))
    assert next_release(lake) == [RELEASED | {D1: 7, D2: 9}] * 2


def test_the_publication_can_be_taken_back_after_the_night(lake):
    plan = killed_before_a_night(lake, {D1: 7}, {D2: 9})
    assert set(lake.roll_back(plan).values()) == {Kind.RESTORE}
    assert lake.plans.state(plan.id) == "rolled_back"
    assert next_release(lake) == [RELEASED | {D2: 9}] * 2


@pytest.mark.parametrize("act", [publish, SmallLake.roll_back])
@pytest.mark.parametrize(
    "night", deep([{D1: 9}, {D2: 9}, {D1: 9, D2: 9}, {D1: 7, D2: 9}], [{D1: 9, D2: 9}]), ids=str
)
def test_the_next_release_has_the_plan_in_all_tables_or_in_none(lake, act, night):
    plan = killed_before_a_night(lake, {D1: 7, D3: 8}, night)
    with suppress(BackfillError):  # refused: what the night has built is a conflict
        act(lake, plan)
    of_a, of_b = next_release(lake)
    assert (of_a[D3] == 8) == (of_b[D3] == 8)
    assert (of_a[D3] == 8) == (lake.plans.state(plan.id) == "published")


def test_a_plan_is_not_taken_back_while_a_log_has_days_of_it_that_the_ledger_lacks(
    lake, is_refused
):
    plan = killed_before_a_night(lake, {D1: 7}, {D2: 9})
    DeltaTable(lake.workspace.lake.ledger.path).delete(f"plan = '{plan.id}'")
    is_refused(lake.roll_back, plan)
    assert lake.plans.state(plan.id) == "published"
    for table in TABLES:
        recover(lake.workspace.lake.ledger, table)
    assert set(lake.roll_back(plan).values()) == {Kind.RESTORE}
    assert released(lake) == RELEASED | {D2: 9}
