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


def test_days_that_nobody_touched_are_identical(lake):
    line = check(seen(lake), lake)
    assert (line.outcome, line.figures, line.days) == (CheckOutcome.PASSED, "2 identical", ())


def test_what_becomes_of_planned_days_is_not_looked_at(lake):
    opened = seen(lake)
    lake.write({DAYS[1]: 9}, plan="p1")
    assert check(opened, lake).figures == "2 identical"


def test_a_day_that_the_plan_built_although_it_does_not_have_it_fails(lake):
    opened = seen(lake)
    lake.write({DAYS[1]: 9, DAYS[2]: 9}, plan="p1")
    line = check(opened, lake)
    assert (line.outcome, line.days) == (CheckOutcome.FAILED, (DAYS[2],))
    assert line.figures == f"1 identical; 1 {_DayChange.PLAN}: {DAYS[2]}"


def test_what_a_night_builds_meanwhile_is_counted_and_is_not_the_plans(lake):
    opened = seen(lake)
    lake.write({DAYS[2]: 9, DAYS[3]: 1, DAYS[0]: 2})
    line = check(opened, lake)
    assert (line.outcome, line.days) == (CheckOutcome.PASSED, ())
    assert line.figures == f"1 identical; 2 {_DayChange.OTHERS}: {DAYS[2]}..{DAYS[3]}"


def test_rows_that_somebody_else_wrote_or_deleted_fail_and_the_commit_is_named(lake):
    opened = seen(lake)
    DeltaTable(str(lake.root / A.name)).update({"n": "7"}, predicate=f"day = '{DAYS[0]}'")
    line = check(opened, lake)
    assert (line.outcome, line.days) == (CheckOutcome.FAILED, (DAYS[0],))
    assert "commit 1 (UPDATE)" in line.figures
    DeltaTable(str(lake.root / A.name)).delete(f"day = '{DAYS[2]}'")
    assert check(opened, lake).days == (DAYS[0], DAYS[2])


def test_what_somebody_else_had_done_before_is_not_the_rebuilds_doing(lake):
    DeltaTable(str(lake.root / A.name)).update({"n": "7"}, predicate=f"day = '{DAYS[0]}'")
    assert check(seen(lake), lake).figures == "2 identical"


def test_files_that_were_compacted_hold_the_same_rows(lake):
    opened = seen(lake)
    DeltaTable(str(lake.root / A.name)).optimize.z_order(
        ["n"], partition_filters=[("day", "=", str(DAYS[0]))]
    )
    line = check(opened, lake)
    assert (line.outcome, line.days) == (CheckOutcome.PASSED, ())
    assert line.figures == f"1 {_DayChange.UPKEEP}: {DAYS[0]}; 1 identical"


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


def test_a_day_of_the_shadow_that_is_not_planned_fails(lake):
    line = check(seen(lake), lake, in_shadow=[DAYS[1], DAYS[3]])
    assert (line.outcome, line.days) == (CheckOutcome.FAILED, (DAYS[3],))


def test_a_table_that_was_not_there_has_no_other_days(tmp_path):
    nothing = table_days(str(tmp_path / "raw" / "x"), -1, {})
    line = outside_days("raw/x", "p1", PLANNED, nothing, nothing, PLANNED)
    assert (line.outcome, line.figures) == (CheckOutcome.PASSED, "no other days")
