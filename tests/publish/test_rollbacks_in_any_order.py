"""Plans taken back in any order, between nights and other plans, against a model of what each day
held. No Spark.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.plan.plan import Plan
from backfill_assets.publish.rollback import Kind
from tests.worlds.small_lake import DAYS, A, SmallLake, four_days, rebuilt_in_live

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return four_days(tmp_path)


@pytest.mark.parametrize("first_goes_first", [False, True])
def test_plans_that_are_taken_back_in_any_order_come_to_what_none_of_them_has_made(
    lake, first_goes_first
):
    first = rebuilt_in_live(lake, {SECOND: 7, THIRD: 7})
    second = rebuilt_in_live(lake, {SECOND: 8, FOURTH: 8})
    for plan in (first, second) if first_goes_first else (second, first):
        lake.roll_back(plan)
    assert lake.values() == {FIRST: 1, SECOND: 2, THIRD: 3, FOURTH: 4}
    assert {lake.roll_back(plan)[A.name, SECOND] for plan in (first, second)} == {Kind.RESTORED}


def test_rows_that_a_rollback_had_put_back_are_those_of_whoever_built_them(lake):
    first = rebuilt_in_live(lake, {SECOND: 7, THIRD: 7})
    second = rebuilt_in_live(lake, {SECOND: 8})
    lake.roll_back(second)  # the rows are the first one's again
    third = rebuilt_in_live(lake, {SECOND: 9})
    assert lake.roll_back(first) == {(A.name, SECOND): Kind.CONFLICT, (A.name, THIRD): Kind.RESTORE}
    lake.roll_back(third)
    assert lake.values() == {FIRST: 1, SECOND: 2, THIRD: 3, FOURTH: 4}


def test_a_day_built_only_by_rolled_back_plans_gets_the_rows_of_the_last_one(tmp_path):
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1})
    first = rebuilt_in_live(lake, {FIRST: 7, SECOND: 7})
    lake.roll_back(first)
    second = rebuilt_in_live(lake, {SECOND: 8})
    assert lake.roll_back(second) == {(A.name, SECOND): Kind.RESTORE}
    assert lake.values() == {FIRST: 1, SECOND: 7}


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_order_of_plans_nights_and_rollbacks_agrees_with_a_model(tmp_path_factory, data):
    """The model: of each day, whose each value was, in order; a rollback puts back what no plan
    wrote that was rolled back, if its plan's value is the last.
    """
    lake = SmallLake(tmp_path_factory.mktemp("lake"))
    model = {at: [("night", 1)] for at in DAYS}
    undone = set[str]()
    plans: list[Plan] = []
    lake.write(dict.fromkeys(DAYS, 1))
    for _ in range(data.draw(st.integers(1, 6))):
        act = data.draw(st.sampled_from(["plan", "night", "rollback"]))
        if act == "rollback" and plans:
            plan = data.draw(st.sampled_from(plans))
            files = lake.files()
            decided = lake.roll_back(plan)
            for at in DAYS:
                wrote = [n for n, (who, _) in enumerate(model[at]) if who == plan.id]
                first = wrote[0] if wrote else 0
                before = [
                    (who, value)
                    for who, value in model[at][:first]
                    if who not in {plan.id, *undone}
                ]
                if wrote and model[at][-1][1] == model[at][first][1] != before[-1][1]:
                    assert decided[A.name, at] == Kind.RESTORE
                    model[at].append(before[-1])
                else:
                    assert decided.get((A.name, at)) != Kind.RESTORE
                    assert lake.files()[at] == files[at]
            undone |= {plan.id} if lake.plans.is_rolled_back(plan.id) else set()
            continue
        values = data.draw(st.dictionaries(st.sampled_from(DAYS), st.integers(1, 3), min_size=1))
        plan = (
            lake.plan({A.name: list(values)}, reason=f"plan {len(plans)}")
            if act == "plan"
            else None
        )
        plans += [plan] if plan else []
        lake.write(values, plan=plan.id if plan else "")
        for at, value in values.items():
            if model[at][-1][1] != value:
                model[at].append((plan.id if plan else "night", value))
        assert lake.values() == {at: of[-1][1] for at, of in model.items()}
    assert lake.values() == {at: of[-1][1] for at, of in model.items()}
