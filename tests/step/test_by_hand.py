"""Changes by hand and lost files: found by comparing records, and repaired by a rebuild."""

import os
import shutil
from dataclasses import replace
from datetime import date

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import UsageError
from backfill_assets.lake.integrity import read_state
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.reconcile.compare import DisagreementKind, Records, compare
from tests.worlds.deliveries import arriving, day, days
from tests.worlds.outages import (
    DAILY,
    FOUR,
    HISTORY,
    NAMES,
    OUTAGES,
    UPDATES,
    World,
    change_in_place,
    file_of,
    only_some,
)

pytestmark = pytest.mark.long


def at_odds(world: World) -> dict:
    tables = {name: read_state(world.lake.path(name)) for name in NAMES}
    found = compare(Records(NAMES, world.lake.ledger.builds(), tables)).disagreements
    return {(each.table, each.kind): list(each.days) for each in found}


def test_forced_days_that_come_out_the_same_are_not_written_and_agree(built):
    before = built.versions(), built.files()
    results = built.run(FOUR, run="second", force=True)
    built_days = {name: [(b.day, b.outcome) for b in r.built] for name, r in results.items()}
    assert built_days == {name: [(at, "unchanged") for at in FOUR] for name in NAMES}
    assert (built.versions(), built.files()) == before
    assert at_odds(built) == {}


def test_a_table_that_is_gone_is_found_and_written_again(built):
    rows = built.rows(OUTAGES)
    shutil.rmtree(built.lake.path(OUTAGES))
    assert at_odds(built) == {(OUTAGES, DisagreementKind.NO_COMMIT): FOUR}
    built.run(FOUR, [OUTAGES], run="second")
    assert (at_odds(built), built.rows(OUTAGES)) == ({}, rows)


def test_a_day_that_somebody_changed_is_found_and_written_again_and_the_others_left(built):
    rows = built.rows(DAILY)
    DeltaTable(built.lake.path(DAILY)).update(
        {"region": "'nowhere'"}, predicate=f"outage_day = '{day(1)}'"
    )
    assert at_odds(built) == {(DAILY, DisagreementKind.FOREIGN_COMMIT): [day(1)]}
    results = built.run(FOUR, [DAILY], run="second", force=True)
    assert {b.day: b.outcome for b in results[DAILY].built} == {
        at: "accepted" if at == day(1) else "unchanged" for at in FOUR
    }
    assert (at_odds(built), built.rows(DAILY)) == ({}, rows)


def overwritten_in_place(world: World, name: str, at: date) -> None:
    """Other bytes in the middle of the day's file, as a disk may return them."""
    file = file_of(world, name, at)
    held = bytearray(file.read_bytes())
    held[4:200] = bytes(196)
    file.write_bytes(held)


@pytest.mark.parametrize("change", [change_in_place, overwritten_in_place])
def test_a_forced_day_is_right_afterwards_whatever_was_done_to_its_file(built, change):
    """Name, size and time of the file stay the same: no record shows that rows changed."""
    rows = built.rows(DAILY)
    file = file_of(built, DAILY, day(1))
    state = file.stat()
    change(built, DAILY, day(1))
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert built.run(FOUR, [DAILY], run="second")[DAILY].built == []
    forced = built.run(FOUR, [DAILY], run="third", force=True)[DAILY]
    assert {b.day: b.outcome for b in forced.built} == {
        at: "accepted" if at == day(1) else "unchanged" for at in FOUR
    }
    assert (built.rows(DAILY), at_odds(built)) == (rows, {})
    assert built.run(FOUR, run="fourth")[HISTORY].built == []


def test_nothing_is_computed_from_rows_that_somebody_changed(built, golden):
    """The days are blocked and name the commit.

    Once the changed day is built again, without force, they come out as they were.
    """
    rows = built.rows(HISTORY)
    DeltaTable(built.lake.path(DAILY)).update(
        {"customers": "customers + 100"}, predicate=f"outage_day = '{day(1)}'"
    )
    state = status_of(
        built.workspace, [built.table(DAILY)], FOUR, latest=latest_builds(built.workspace)
    )
    assert state.of(DAILY) == {
        State.UP_TO_DATE: [at for at in FOUR if at != day(1)],
        State.REWRITTEN: [day(1)],
    }
    refused = built.run([day(1), day(2)], [HISTORY], run="second", force=True)[HISTORY]
    golden(refused.blocked)
    assert (built.rows(HISTORY), [(b.day, b.outcome) for b in refused.built]) == (
        rows,
        [(day(2), "unchanged")],
    )
    built.run(FOUR, [DAILY], run="third")
    again = built.run(FOUR, [HISTORY], run="fourth", force=True)[HISTORY]
    assert [b.outcome for b in again.built] == ["unchanged"] * len(FOUR)
    assert built.rows(HISTORY) == rows


def test_a_day_whose_rows_somebody_deleted_is_found_and_written_again(built):
    rows = built.rows(DAILY)
    DeltaTable(built.lake.path(DAILY)).delete(f"outage_day = '{day(2)}'")
    assert list(at_odds(built).values()) == [[day(2)]]
    built.run([day(2)], [DAILY], run="second")
    assert (at_odds(built), built.rows(DAILY)) == ({}, rows)


def test_rows_deleted_by_a_deletion_vector_are_noticed_and_written_again(built, golden):
    """Only Spark writes deletion vectors.

    They leave the name and the number of rows of a file as they were.
    """
    spark = built.spark()
    path = built.lake.path(OUTAGES)

    def rows() -> list[str]:
        return sorted(map(str, spark.read.format("delta").load(path).collect()))

    before = rows()
    spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"
    ).collect()
    spark.sql(
        f"DELETE FROM delta.`{path}` WHERE outage_day = '{day(1)}' AND outage_number = '101'"
    ).collect()
    assert len(rows()) == len(before) - 1
    assert at_odds(built) == {(OUTAGES, DisagreementKind.FOREIGN_COMMIT): [day(1)]}
    refused = built.run(FOUR, [DAILY], run="second", force=True)[DAILY]
    assert set(refused.blocked) == set(FOUR[1:])
    golden(refused.blocked[day(1)])
    assert [b.day for b in built.run(FOUR, [OUTAGES], run="third")[OUTAGES].built] == [day(1)]
    assert (at_odds(built), rows()) == ({}, before)


def test_columns_that_spark_renamed_are_not_read_and_not_written(built, golden):
    """Only Spark maps columns to other names than those in the files."""
    rows = built.rows(HISTORY)
    path = built.lake.path(DAILY)
    spark = built.spark()
    mapped = (
        "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2',"
        " 'delta.minWriterVersion' = '5'"
    )
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({mapped})").collect()
    for old, new in (("outages", "x"), ("customers", "outages"), ("x", "customers")):
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN {old} TO {new}").collect()
    state = status_of(
        built.workspace, [built.table(DAILY)], FOUR, latest=latest_builds(built.workspace)
    )
    assert state.of(DAILY) == {State.REWRITTEN: FOUR}
    refused = built.run(FOUR, [HISTORY], run="second", force=True)[HISTORY]
    assert (set(refused.blocked), built.rows(HISTORY)) == (set(FOUR), rows)
    with golden.raises(UsageError):
        built.run(FOUR, [DAILY], run="third")


def test_rows_of_a_day_that_was_never_accepted_are_not_read(world):
    """Rows were appended by hand for a day that the window reads and does not wait for."""
    for n in range(3):
        world.write(day(n), arriving(n, 1, began=0))
    world.run(days(0, 1, 2), NAMES[:4])
    expected = world.rows(OUTAGES, [day(0)])
    updates = world.arrow(UPDATES)
    by_hand = updates.slice(0, 1).to_pylist()[0] | {
        "arrival_day": day(3),
        "outage_number": "by hand",
        "outage_day": day(0),
    }
    write_deltalake(
        world.lake.path(UPDATES),
        pa.Table.from_pylist([by_hand], schema=updates.schema),
        mode="append",
    )
    world.run([day(0)], [OUTAGES], run="second", force=True)
    assert world.rows(OUTAGES, [day(0)]) == expected


def test_a_day_whose_file_is_lost_is_not_read_and_is_written_again_by_force(built, golden):
    """The log does not show the loss: only reading or building the day does."""
    rows = built.rows(OUTAGES)
    lost = file_of(built, OUTAGES, day(1))
    lost.unlink()
    refused = built.run(FOUR, [DAILY], run="second", force=True)[DAILY]
    assert set(refused.blocked) == set(FOUR[1:])
    golden(refused.blocked[day(1)], LOST=lost.relative_to(built.lake.path(OUTAGES)))
    again = built.run(FOUR, [OUTAGES], run="third", force=True)[OUTAGES]
    assert {b.day: b.outcome for b in again.built} == {
        at: "accepted" if at == day(1) else "unchanged" for at in FOUR
    }
    assert built.rows(OUTAGES) == rows
    assert built.run(FOUR, [DAILY], run="fourth", force=True)[DAILY].blocked == {}


def test_rows_are_not_merged_into_a_day_whose_file_is_lost(built, golden):
    lost = file_of(built, OUTAGES, day(1))
    lost.unlink()
    refused = built.run(
        days(1), only_some(built, "100", version="2"), run="second", write_mode="merge"
    )[OUTAGES]
    golden(refused.blocked[day(1)], LOST=lost.relative_to(built.lake.path(OUTAGES)))


def test_a_file_that_is_lost_while_its_day_is_computed_is_written_again(built):
    plain = built.table(OUTAGES)
    rows = built.rows(OUTAGES)

    def compute(updates):
        file_of(built, OUTAGES, day(1)).unlink()
        return plain.compute(updates)

    (build,) = built.run(days(1), replace(plain, compute=compute), run="second", force=True)[
        OUTAGES
    ].built
    assert (build.outcome, built.rows(OUTAGES)) == ("accepted", rows)
