"""What a rollback does with tables that nobody declares any more, and with days that the plan found
unchanged. No Spark.
"""

import pytest

from backfill_assets.errors import UsageError
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.publish.rollback import Kind, roll_back
from tests.worlds.small_lake import CALENDAR, DAYS, NOW, A, B, SmallLake, four_days
from tests.worlds.tables import workspace_of

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return four_days(tmp_path)


def test_nothing_of_a_plan_is_taken_back_while_a_table_of_it_is_not_declared(lake):
    lake.write({FIRST: 1, SECOND: 2}, table=B.name)
    plan = lake.plan({A.name: [SECOND], B.name: [SECOND]})
    for table in (A.name, B.name):
        lake.write({SECOND: 7}, table=table, plan=plan.id)
    without = workspace_of([A], CALENDAR, str(lake.root))
    with pytest.raises(
        UsageError, match=r"built days of raw/b, which the project does not have any more\."
    ):
        roll_back(plan, without, who="ada", now=lambda: NOW)
    assert lake.values()[SECOND] == lake.values(B.name)[SECOND] == 7
    assert lake.plans.state(plan.id) == "done"
    lake.roll_back(plan)
    assert lake.values()[SECOND] == lake.values(B.name)[SECOND] == 2


def test_a_day_that_the_plan_found_unchanged_is_as_up_to_date_as_before(lake):
    lake.write({SECOND: 2}, table=B.name)
    plan = lake.plan({A.name: [SECOND], B.name: [SECOND]})
    lake.write({SECOND: 7}, plan=plan.id)
    lake.write({SECOND: 2}, table=B.name, plan=plan.id)  # of other inputs, with the same rows
    ledger = lake.workspace.lake.ledger
    last = ledger.builds({B.name: [SECOND]})[-1]
    assert (last.outcome, last.inputs) == ("unchanged", {A.name: {str(SECOND): "7"}})
    kinds = lake.roll_back(plan)
    assert kinds == {(A.name, SECOND): Kind.RESTORE, (B.name, SECOND): Kind.RESTORED}
    last = ledger.builds({B.name: [SECOND]})[-1]
    assert (last.outcome, last.inputs, last.run[:9]) == (
        "unchanged",
        {A.name: {str(SECOND): "2"}},
        "rollback-",
    )
    assert not lake.workspace.lake.rewritten({(B.name, SECOND): last}, {B.name: None})
    status = status_of(
        lake.workspace, [B], [SECOND], latest=latest_builds(lake.workspace)
    ).partitions
    assert status[B.name, SECOND].state == State.UP_TO_DATE


def test_a_day_that_the_plan_found_unchanged_keeps_its_record_if_its_input_stays(lake):
    lake.write({SECOND: 2}, table=B.name)
    plan = lake.plan({A.name: [SECOND], B.name: [SECOND]})
    lake.write({SECOND: 7}, plan=plan.id)
    lake.write({SECOND: 2}, table=B.name, plan=plan.id)
    lake.write({SECOND: 9})
    lake.write({SECOND: 7})  # a night has written to the input since
    before = lake.workspace.lake.ledger.builds({B.name: [SECOND]})
    lake.write({SECOND: 8})
    assert lake.roll_back(plan)[A.name, SECOND] == Kind.CONFLICT
    assert lake.workspace.lake.ledger.builds({B.name: [SECOND]}) == before
