"""Rows that are kept: merged on the key."""

from dataclasses import replace

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.errors import UsageError
from backfill_assets.quality.rules import rows_between
from tests.worlds.deliveries import arriving, day, days
from tests.worlds.outages import (
    FOUR,
    HISTORY,
    OUTAGES,
    RAW,
    REJECTED,
    UPDATES,
    assert_same,
    no_spark,
    only_some,
)


def test_merge_updates_and_inserts_by_key_and_keeps_the_other_rows(built):
    before = {row["outage_number"]: row["customers"] for row in built.rows(OUTAGES)}
    built.write(day(1), arriving(1, 0, 1, 2, 3, began=1))
    built.run(days(1), [REJECTED, RAW, UPDATES])
    build = built.run(days(1), only_some(built, "100", "103", version="2"), write_mode="merge")[
        OUTAGES
    ].built[0]
    after = {row["outage_number"]: row["customers"] for row in built.rows(OUTAGES)}
    assert after == before | {"100": 7, "103": 7}
    assert (build.outcome, build.rows) == ("accepted", 4)


def test_late_rows_that_are_merged_give_the_day_that_they_give_overwritten(once, tmp_path):
    worlds = {mode: once.copied(tmp_path / mode) for mode in ("merge", "overwrite")}
    for mode, world in worlds.items():
        world.write(
            day(3),
            [*arriving(3, 0, 1, 2, began=3), *arriving(3, 1, 7, began=0, estCustAffected="9")],
        )
        world.run(days(3), [REJECTED, RAW, UPDATES])
        (build,) = world.run(days(0), [OUTAGES], write_mode=mode)[OUTAGES].built
        assert (build.outcome, build.rows) == ("accepted", 4)
        assert not world.run(days(0), [OUTAGES])[OUTAGES].built
    assert_same(worlds["merge"], worlds["overwrite"])
    seen = {
        row["outage_number"]: row["customers"] for row in worlds["merge"].rows(OUTAGES, days(0))
    }
    assert seen == {"0": 5, "1": 9, "2": 5, "7": 9}


def test_merge_is_judged_by_what_the_day_would_hold(built):
    built.write(day(1), arriving(1, 0, 1, 2, 3, began=1))
    built.run(days(1), [REJECTED, RAW, UPDATES])
    table = only_some(built, "103", version="2")
    strict = replace(table, rules=[*table.rules, rows_between(at_most=3)])
    failed = built.run(days(1), strict, write_mode="merge")[OUTAGES].failed()
    assert [b.message for b in failed] == ["rows_between: 4 rows; at least 0, at most 3 promised"]
    assert len(built.rows(OUTAGES, days(1))) == 3


def test_merge_takes_null_keys_for_equal_in_the_table_and_in_the_record(world):
    world.write(day(0), arriving(0, 1, began=0))
    table = replace(world.table(UPDATES), key=("arrival_day", "crew_expected_at"), rules=())
    world.run(days(0), [REJECTED, RAW])
    world.run(days(0), table)
    build = world.run(days(0), table, run="second", write_mode="merge", force=True)[UPDATES].built[
        0
    ]
    assert [row["crew_expected_at"] for row in world.rows(UPDATES)] == [None]
    assert (build.outcome, build.rows) == ("unchanged", 1)


def test_merge_into_a_table_of_other_columns_is_refused_and_says_what_to_do(built):
    plain = built.table(OUTAGES)
    before = built.rows(OUTAGES)
    table = replace(
        plain,
        version="2",
        columns=f"{plain.columns}, zone STRING",
        compute=lambda updates: plain.compute(updates).selectExpr("*", "region AS zone"),
    )
    with pytest.raises(UsageError, match=r"declared columns: zone.*write_mode overwrite"):
        built.run(days(1), table, write_mode="merge")
    assert built.rows(OUTAGES) == before


@pytest.mark.parametrize(
    ("write_mode", "why"),
    [
        ("merge", "raw/outage_events has no key to merge on"),
        ("append_once", "append_once is not a write mode: there are overwrite and merge"),
    ],
)
def test_a_write_mode_that_a_table_cannot_have_is_refused(once, write_mode, why):
    nothing_read = replace(once, root=once.root / "none", spark=no_spark)
    with pytest.raises(UsageError) as refused:
        nothing_read.run(days(1), [RAW], write_mode=write_mode, force=True)
    assert str(refused.value) == f"{why}. Nothing was written. Use write_mode overwrite."


def test_a_table_that_reads_itself_keeps_no_rows(once):
    """Its next day would be computed from the rows that were kept in one cut into runs, and without
    them in another.
    """
    nothing_read = replace(once, root=once.root / "none", spark=no_spark)
    with pytest.raises(
        UsageError,
        match=rf"{HISTORY} reads itself: with rows that merge keeps.*Nothing was written",
    ):
        nothing_read.run(days(1), [HISTORY], write_mode="merge", force=True)


def test_a_merge_of_no_rows_is_recorded(built):
    longer = replace(built, calendar=Calendar(FOUR[0], day(4)))
    longer.write(day(4), arriving(4, 0, began=4))
    longer.run(days(4), [REJECTED, RAW])
    plain = built.table(UPDATES)
    before = built.rows(UPDATES)
    nothing = replace(
        plain, version="2", rules=(), compute=lambda events: plain.compute(events).where("false")
    )
    (build,) = longer.run(days(4), nothing, write_mode="merge")[UPDATES].built
    assert (build.outcome, build.rows, build.delta_version) == (
        "accepted",
        0,
        built.lake.version(UPDATES),
    )
    assert built.rows(UPDATES) == before
