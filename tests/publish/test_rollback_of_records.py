"""What a rollback does with tables that nobody declares any more, and with days that the plan found unchanged. No Spark."""

import pytest

from backfill_assets.errors import UsageError
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.publish.decision import Kind
from backfill_assets.publish.rollback import roll_back
from tests.plan.workspaces import workspace_of
from tests.publish.live_plans import four_days
from tests.publish.site import CALENDAR, DAYS, NOW, A, B, Site

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def site(tmp_path) -> Site:
    return four_days(tmp_path)


def test_nothing_of_a_plan_is_taken_back_while_a_table_of_it_is_not_declared(site):
    site.write({FIRST: 1, SECOND: 2}, table=B.name)
    plan = site.plan({A.name: [SECOND], B.name: [SECOND]})
    for table in (A.name, B.name):
        site.write({SECOND: 7}, table=table, plan=plan.id)
    without = workspace_of([A], CALENDAR, str(site.root))
    with pytest.raises(UsageError, match=r"built days of raw/b, which the project does not have any more\."):
        roll_back(plan, without, who="ada", now=lambda: NOW)
    assert site.values()[SECOND] == site.values(B.name)[SECOND] == 7
    assert site.plans.state(plan.id) == "done"
    site.roll_back(plan)
    assert site.values()[SECOND] == site.values(B.name)[SECOND] == 2


def test_a_day_that_the_plan_found_unchanged_is_as_up_to_date_as_before(site):
    site.write({SECOND: 2}, table=B.name)
    plan = site.plan({A.name: [SECOND], B.name: [SECOND]})
    site.write({SECOND: 7}, plan=plan.id)
    site.write({SECOND: 2}, table=B.name, plan=plan.id)  # of other inputs, with the same rows
    ledger = site.workspace.lake.ledger
    last = ledger.builds({B.name: [SECOND]})[-1]
    assert (last.outcome, last.inputs) == ("unchanged", {A.name: {str(SECOND): "7"}})
    kinds = site.roll_back(plan)
    assert kinds == {(A.name, SECOND): Kind.RESTORE, (B.name, SECOND): Kind.RESTORED}
    last = ledger.builds({B.name: [SECOND]})[-1]
    assert (last.outcome, last.inputs, last.run[:9]) == ("unchanged", {A.name: {str(SECOND): "2"}}, "rollback-")
    assert not site.workspace.lake.rewritten({(B.name, SECOND): last}, {B.name: None})
    status = status_of(site.workspace, [B], [SECOND], latest=latest_builds(site.workspace)).partitions
    assert status[B.name, SECOND].state == State.UP_TO_DATE


def test_a_day_that_the_plan_found_unchanged_keeps_its_record_if_its_input_stays(site):
    site.write({SECOND: 2}, table=B.name)
    plan = site.plan({A.name: [SECOND], B.name: [SECOND]})
    site.write({SECOND: 7}, plan=plan.id)
    site.write({SECOND: 2}, table=B.name, plan=plan.id)
    site.write({SECOND: 9})
    site.write({SECOND: 7})  # a night has written to the input since
    before = site.workspace.lake.ledger.builds({B.name: [SECOND]})
    site.write({SECOND: 8})
    assert site.roll_back(plan)[A.name, SECOND] == Kind.CONFLICT
    assert site.workspace.lake.ledger.builds({B.name: [SECOND]}) == before
