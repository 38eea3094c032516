"""What a rollback does with columns that came or went, and with files that are gone. No Spark."""

from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import UsageError
from backfill_assets.publish.rollback import Kind
from tests.worlds.small_lake import DAYS, NOW, A, B, SmallLake, four_days, rebuilt_in_live

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return four_days(tmp_path)


def test_a_column_that_came_with_the_plan_stays_and_is_null_in_the_days_put_back(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7}, more="note")
    lake.roll_back(plan)
    rows = DeltaTable(str(lake.root / A.name)).to_pyarrow_table()
    assert rows.column_names == ["n", "day", "note"]
    assert rows["note"].null_count == rows.num_rows
    assert lake.values()[SECOND] == 2


def test_a_column_that_only_the_days_put_back_have_comes_back_with_them(tmp_path):
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1, SECOND: 2}, more="note")
    plan = rebuilt_in_live(lake, {FIRST: 3, SECOND: 4})
    assert DeltaTable(str(lake.root / A.name)).schema().to_arrow().names == ["n", "day"]
    lake.roll_back(plan)
    rows = DeltaTable(str(lake.root / A.name)).to_pyarrow_table().sort_by("day")
    assert rows["note"].to_pylist() == ["1", "2", "2"]


def test_files_that_a_vacuum_removed_are_named_and_nothing_is_restored(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7, THIRD: 8})
    table = DeltaTable(str(lake.root / A.name))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    with pytest.raises(
        UsageError, match=f"of {SECOND}..{THIRD} were removed, by a vacuum or by hand"
    ):
        lake.roll_back(plan)
    assert lake.values() == {FIRST: 1, SECOND: 7, THIRD: 8, FOURTH: 4}
    assert lake.plans.state(plan.id) == "done"


def test_a_column_that_had_another_type_is_refused_with_both(lake):
    plan = lake.plan({A.name: DAYS})
    data = pa.table({"n": pa.array([str(n) for n in range(4)]), "day": pa.array(DAYS, pa.date32())})
    write_deltalake(
        str(lake.root / A.name),
        data,
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=["day"],
    )
    lake.write(dict.fromkeys(DAYS, 1), table=B.name)
    as_built = {
        "plan": plan.id,
        "at": NOW.replace(year=2099),
        "fingerprint": "x",
        "delta_version": 1,
        "data_files": "",
    }
    ours = [replace(b, **as_built, outcome="accepted")
            for b in lake.workspace.lake.ledger.builds({A.name: DAYS})]  # fmt: skip
    lake.workspace.lake.ledger.append(ours)
    with pytest.raises(UsageError, match="had n long in version 0, and has n string now"):
        lake.roll_back(plan, force=True)


def test_an_empty_day_is_empty_again(tmp_path):
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1, SECOND: 0})
    plan = rebuilt_in_live(lake, {SECOND: 3})
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.RESTORE}
    assert lake.values() == {FIRST: 1}
