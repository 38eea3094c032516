"""The tables do not depend on how days are cut into runs, or on the order of runs."""

import random
from dataclasses import replace

import pytest
from pyspark.sql.functions import expr

from backfill_assets.calendar import Calendar
from tests.worlds.deliveries import arriving, day, days
from tests.worlds.outages import (
    CHAIN,
    DAILY,
    EIGHT,
    FOUR,
    HISTORY,
    NAMES,
    OUTAGES,
    RAW,
    REJECTED,
    UPDATES,
    assert_same,
)


def test_one_run_builds_every_day_of_every_table(once):
    assert {name: sorted(once.fingerprints(name)) for name in NAMES} == dict.fromkeys(NAMES, FOUR)


@pytest.mark.nightly
@pytest.mark.parametrize("size", [3, 1], ids="days a run: {}".format)
def test_runs_in_random_order_give_the_same_tables(once, tmp_path, seed, size):
    names = NAMES if size == 1 else CHAIN[:4]
    cut = replace(once, root=tmp_path / "lake")
    pending = [(name, FOUR[n : n + size]) for name in names for n in range(0, len(FOUR), size)]
    random.Random(seed).shuffle(pending)
    while pending:  # blocked days are run again in the next round
        ran = [(name, cut.run(some, [name])[name].blocked) for name, some in pending]
        blocked = [(name, sorted(some)) for name, some in ran if some]
        assert sum(len(some) for _, some in blocked) < sum(len(some) for _, some in pending)
        pending = blocked
    assert_same(once, cut, names)


# Days a run, for tables whose rows come from other days too; a raw day is read from its own files.
CHUNKS = {UPDATES: 5, OUTAGES: 3, DAILY: 3, HISTORY: 3}


@pytest.mark.scale
def test_chunks_of_any_size_compute_the_same_rows_of_eight_days(eight, tmp_path):
    cut = eight.copied(tmp_path)
    for name, size in CHUNKS.items():
        for first in range(0, len(EIGHT), size):
            days = EIGHT[first : first + size]
            built = cut.run(days, [name], force=True)[name].built
            assert [(b.day, b.outcome) for b in built] == [(at, "unchanged") for at in days], name


def test_days_with_a_gap_leave_the_gap_alone(once, tmp_path):
    cut = replace(once, root=tmp_path / "lake")
    some = days(0, 1, 3)
    cut.run(some, [REJECTED, RAW, UPDATES])
    for name in (REJECTED, RAW, UPDATES):
        assert sorted(cut.fingerprints(name)) == some
        assert cut.rows(name) == once.rows(name, some)


@pytest.mark.scale
def test_rebuilding_a_gappy_range_of_a_table_that_reads_itself_changes_nothing(once, built):
    some = days(0, 1, 3)
    again = built.run(some, [HISTORY], force=True)[HISTORY]
    assert [(b.day, b.outcome) for b in again.built] == [(at, "unchanged") for at in some]
    assert_same(once, built)


def test_a_day_that_comes_out_empty_is_emptied(built):
    table = built.table(UPDATES)
    before = built.rows(UPDATES, days(0, 2, 3))
    nothing_on_the_16th = replace(
        table,
        version="2",
        rules=(),
        compute=lambda events: table.compute(events).where("arrival_day <> DATE'2019-08-16'"),
    )
    result = built.run(days(0, 1, 2), nothing_on_the_16th)[UPDATES]
    assert [(b.outcome, b.rows > 0) for b in result.built] == [
        ("unchanged", True),
        ("accepted", False),
        ("unchanged", True),
    ]
    assert built.rows(UPDATES) == before


def test_a_failed_day_keeps_its_earlier_rows_and_its_neighbours_are_committed(built):
    before = built.rows(RAW, days(1))
    for n in (0, 2):
        built.write(day(n), arriving(n, 0, 1, 2, 3, began=n))
    built.write(day(1), ["this is no JSON"])
    built.run(days(0, 1, 2), [REJECTED, RAW])
    outcomes = {b.day: b.outcome for b in built.lake.ledger.builds({RAW: None})[-3:]}
    assert outcomes == {day(0): "accepted", day(1): "failed", day(2): "accepted"}
    assert built.rows(RAW, days(1)) == before
    assert [len(built.rows(RAW, [at])) for at in days(0, 2)] == [4, 4]


def test_no_total_is_committed_from_a_failed_day(built, golden):
    plain = built.table(HISTORY)
    before = built.rows(HISTORY)
    one_more_and_a_day_without_rows = replace(
        plain,
        version="2",
        compute=lambda **inputs: (
            plain.compute(**inputs)
            .where("outage_day <> DATE'2019-08-17'")
            .withColumn("outages_total", expr("outages_total + 1"))
        ),
    )
    result = built.run(FOUR, one_more_and_a_day_without_rows)[HISTORY]
    outcomes = {b.day: b.outcome for b in result.built}
    assert outcomes == dict.fromkeys(FOUR[:2], "accepted") | dict.fromkeys(FOUR[2:], "failed")
    golden(result.failed()[1].message)
    assert built.rows(HISTORY, FOUR[2:]) == [r for r in before if r["outage_day"] in FOUR[2:]]
    changed = [
        row | {"outages_total": row["outages_total"] + 1}
        for row in before
        if row["outage_day"] in FOUR[:2]
    ]
    assert built.rows(HISTORY, FOUR[:2]) == sorted(changed, key=repr)


@pytest.mark.scale
def test_downstream_of_a_missing_day_the_others_go_on(world, golden):
    five = days(0, 1, 2, 3, 4)
    small = replace(world, calendar=Calendar(five[0], five[-1]))
    for n in (0, 1, 2, 4):
        small.write(day(n), arriving(n, 0, 1, 2, began=n))
    result = small.run(five, CHAIN[:5])
    (failed,) = result[REJECTED].failed()
    assert failed.day == day(3)
    golden(failed.message)
    for name in (RAW, UPDATES):
        golden(result[name].blocked, name)
    assert {name: sorted(small.fingerprints(name)) for name in (UPDATES, OUTAGES, DAILY)} == {
        UPDATES: days(0, 1, 2, 4), OUTAGES: days(0, 4), DAILY: days(0),
    }  # fmt: skip
