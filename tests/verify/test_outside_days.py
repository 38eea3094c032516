"""Days outside of a plan: each change that a day of live can have undergone since a rebuild was
begun, on real Delta tables.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.lake.history import latest
from backfill_assets.verify.builds import TableDays, _DayChange, outside_days, table_days
from backfill_assets.verify.checklist import CheckLine, CheckOutcome
from tests.worlds.small_lake import DAYS, A, SmallLake

PLANNED = [DAYS[1]]


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """Days 0, 1 and 2, built by a night."""
    lake = SmallLake(tmp_path)
    lake.write({DAYS[0]: 2, DAYS[1]: 3, DAYS[2]: 4})
    return lake


def seen(lake: SmallLake) -> TableDays:
    """Live as it is now."""
    store = lake.workspace.lake
    accepted = latest(store.ledger, {A.name: None}).accepted
    return table_days(
        store.path(A.name),
        store.version(A.name),
        {day: build for (_, day), build in accepted.items()},
    )


def check(opened: TableDays, lake: SmallLake, in_shadow=PLANNED) -> CheckLine:
    return outside_days(A.name, "p1", PLANNED, opened, seen(lake), in_shadow)


def update(lake: SmallLake) -> None:
    DeltaTable(str(lake.root / A.name)).update({"n": "7"}, predicate=f"day = '{DAYS[0]}'")


def delete(lake: SmallLake) -> None:
    DeltaTable(str(lake.root / A.name)).delete(f"day = '{DAYS[2]}'")


def compact(lake: SmallLake) -> None:
    DeltaTable(str(lake.root / A.name)).optimize.z_order(
        ["n"], partition_filters=[("day", "=", str(DAYS[0]))]
    )


@pytest.mark.parametrize(
    ("change", "wrong", "figures"),
    [
        pytest.param(lambda lake: None, (), "2 identical", id="nothing"),
        pytest.param(
            lambda lake: lake.write({DAYS[1]: 9}, plan="p1"), (), "2 identical", id="planned days"
        ),
        pytest.param(
            lambda lake: lake.write({DAYS[1]: 9, DAYS[2]: 9}, plan="p1"),
            (DAYS[2],),
            f"1 identical; 1 {_DayChange.PLAN}: {DAYS[2]}",
            id="another day built by the plan",
        ),
        pytest.param(
            lambda lake: lake.write({DAYS[2]: 9, DAYS[3]: 1, DAYS[0]: 2}),
            (),
            f"1 identical; 2 {_DayChange.OTHERS}: {DAYS[2]}..{DAYS[3]}",
            id="built by a night",
        ),
        pytest.param(
            compact,
            (),
            f"1 {_DayChange.UPKEEP}: {DAYS[0]}; 1 identical",
            id="the same rows in other files",
        ),
        pytest.param(update, (DAYS[0],), "commit 1 (UPDATE)", id="rows changed by others"),
        pytest.param(delete, (DAYS[2],), "commit 1 (DELETE)", id="rows deleted by others"),
    ],
)
def test_a_change_of_a_day_outside_the_plan_is_counted_or_fails(lake, change, wrong, figures):
    opened = seen(lake)
    change(lake)
    line = check(opened, lake)
    assert line.days == wrong
    assert line.outcome == (CheckOutcome.FAILED if wrong else CheckOutcome.PASSED)
    assert figures in line.figures


def test_a_day_that_a_rollback_removed_is_counted(lake):
    other = lake.plan({A.name: [DAYS[3]]})
    lake.write({DAYS[3]: 9}, plan=other.id)
    opened = seen(lake)
    lake.roll_back(other)
    line = check(opened, lake)
    assert line.outcome == CheckOutcome.PASSED
    assert f"1 {_DayChange.ROLLED_BACK}: {DAYS[3]}" in line.figures


def test_an_update_and_a_later_deletion_by_others_are_both_found(lake, golden):
    opened = seen(lake)
    update(lake)
    golden(check(opened, lake).figures)
    delete(lake)
    assert check(opened, lake).days == (DAYS[0], DAYS[2])


def test_a_change_by_others_before_the_rebuild_is_not_counted(lake):
    update(lake)
    assert check(seen(lake), lake).figures == "2 identical"


def test_rows_that_no_build_accepted_fail(lake):
    opened = seen(lake)
    table = DeltaTable(str(lake.root / A.name))
    rows = table.to_pyarrow_table()
    more = rows.slice(0, 1).set_column(
        rows.column_names.index("day"), "day", pa.array([DAYS[3]], pa.date32())
    )
    write_deltalake(table, more, mode="append")
    line = check(opened, lake)
    assert (line.outcome, line.days) == (CheckOutcome.FAILED, (DAYS[3],))


def test_a_day_of_the_shadow_that_is_not_planned_fails(lake, golden):
    line = check(seen(lake), lake, in_shadow=[DAYS[1], DAYS[3]])
    assert (line.outcome, line.days) == (CheckOutcome.FAILED, (DAYS[3],))
    golden(line.figures)


def test_a_table_that_was_not_there_has_no_other_days(tmp_path):
    nothing = table_days(str(tmp_path / "raw" / "x"), -1, {})
    line = outside_days("raw/x", "p1", PLANNED, nothing, nothing, PLANNED)
    assert (line.outcome, line.figures) == (CheckOutcome.PASSED, "no other days")
