"""The tables do not depend on how days are cut into runs, or on the order of runs."""

import random
from dataclasses import replace

from pyspark.sql.functions import expr

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.raw import FIELDS
from tests.worlds.deliveries import change, day, days
from tests.worlds.outages import (
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


def test_one_run_builds_every_day_of_every_table(eight):
    assert {name: sorted(eight.fingerprints(name)) for name in NAMES} == dict.fromkeys(NAMES, EIGHT)


def test_runs_of_one_day_in_random_order_give_the_same_tables(once, tmp_path, seed):
    cut = replace(once, root=tmp_path / "lake")
    pending = [(name, at) for name in NAMES for at in FOUR]
    random.Random(seed).shuffle(pending)
    while pending:  # a blocked day is run again in the next round
        blocked = [(name, at) for name, at in pending if cut.run([at], [name])[name].blocked]
        assert len(blocked) < len(pending)
        pending = blocked
    assert_same(once, cut)


# Days a run, for tables whose rows come from other days too; a raw day is read from its own files.
CHUNKS = {UPDATES: 45, OUTAGES: 23, DAILY: 31, HISTORY: 23}


def test_chunks_of_any_size_compute_the_same_rows_of_sixty_days(sixty, tmp_path):
    cut = sixty.copied(tmp_path)
    every = sixty.calendar.days()
    for name, size in CHUNKS.items():
        for first in range(0, len(every), size):
            days = every[first : first + size]
            built = cut.run(days, [name], force=True)[name].built
            assert [(b.day, b.outcome) for b in built] == [(at, "unchanged") for at in days], name


def test_days_with_a_gap_leave_the_gap_alone(eight, tmp_path):
    cut = replace(eight, root=tmp_path / "lake")
    some = days(0, 1, 4, 5, 7)
    cut.run(some, [REJECTED, RAW, UPDATES])
    for name in (REJECTED, RAW, UPDATES):
        assert sorted(cut.fingerprints(name)) == some
        assert cut.rows(name) == eight.rows(name, some)


def test_rebuilding_a_gappy_range_of_a_table_that_reads_itself_changes_nothing(eight, tmp_path):
    cut = eight.copied(tmp_path)
    again = cut.run(days(2, 3, 4, 6), [HISTORY], force=True)[HISTORY]
    assert [(b.day, b.outcome) for b in again.built] == [
        (at, "unchanged") for at in days(2, 3, 4, 6)
    ]
    assert_same(eight, cut)


def test_a_day_that_comes_out_empty_is_emptied(world):
    table = replace(world.table(UPDATES), rules=())
    world.deliver(days(0, 1, 2)).run(days(0, 1, 2), [REJECTED, RAW])
    world.run(days(0, 1, 2), table)
    before = world.rows(UPDATES, days(0, 2))
    nothing_on_the_16th = replace(
        table,
        version="2",
        compute=lambda events: table.compute(events).where("arrival_day <> DATE'2019-08-16'"),
    )
    built = world.run(days(0, 1, 2), nothing_on_the_16th)[UPDATES].built
    assert [(b.outcome, b.rows > 0) for b in built] == [
        ("unchanged", True),
        ("accepted", False),
        ("unchanged", True),
    ]
    assert world.rows(UPDATES) == before


def test_a_failed_day_keeps_its_earlier_rows_and_its_neighbours_are_committed(world):
    three = days(0, 1, 2)
    world.deliver(three).run(three, [REJECTED, RAW])
    good = world.rows(RAW)
    for at in three:
        world.write(at, [change(), change("2")], "events.jsonl.gz")
    world.write(day(1), ["this is no JSON"], "events.jsonl.gz")
    shorter = [f"{world.folder(at).relative_to(world.landing)}/events.jsonl.gz" for at in three]
    # Most of which these lines have not.
    world.run(three, [REJECTED, RAW], accept=",".join([*shorter, *FIELDS]))
    result = {b.day: b.outcome for b in world.lake.ledger.builds({RAW: None})[-3:]}
    assert result == {day(0): "accepted", day(1): "failed", day(2): "accepted"}
    assert world.rows(RAW, [day(1)]) == [row for row in good if row["arrival_day"] == day(1)]
    assert [len(world.rows(RAW, [at])) for at in (day(0), day(2))] == [2, 2]


def test_no_total_is_committed_from_a_failed_day(eight, tmp_path):
    cut = eight.copied(tmp_path)
    plain = cut.table(HISTORY)
    before = cut.rows(HISTORY)
    one_more_and_a_day_without_rows = replace(
        plain,
        version="2",
        compute=lambda **inputs: (
            plain.compute(**inputs)
            .where("outage_day <> DATE'2019-08-20'")
            .withColumn("outages_total", expr("outages_total + 1"))
        ),
    )
    result = cut.run(EIGHT, one_more_and_a_day_without_rows)[HISTORY]
    outcomes = {b.day: b.outcome for b in result.built}
    assert outcomes == dict.fromkeys(EIGHT[:5], "accepted") | dict.fromkeys(EIGHT[5:], "failed")
    assert result.failed()[1].message == "computed from 2019-08-20, which failed in this run"
    assert cut.rows(HISTORY, EIGHT[5:]) == [row for row in before if row["outage_day"] in EIGHT[5:]]
    changed = [
        row | {"outages_total": row["outages_total"] + 1}
        for row in before
        if row["outage_day"] in EIGHT[:5]
    ]
    assert cut.rows(HISTORY, EIGHT[:5]) == sorted(changed, key=repr)


def test_downstream_of_a_missing_day_the_others_go_on(world):
    five = days(0, 1, 2, 3, 4)
    small = replace(world, calendar=Calendar(five[0], five[-1])).deliver(
        [at for at in five if at != day(3)]
    )
    result = small.run(five)
    (failed,) = result[REJECTED].failed()
    assert failed.message.startswith(
        f"no source for 2019-08-18 in {small.landing}: no file in outage_events like "
    )
    assert result[RAW].blocked == {
        day(3): f"needs {REJECTED} 2019-08-18, which has no accepted build"
    }
    assert result[UPDATES].blocked == {
        day(3): f"needs {RAW} 2019-08-18, which has no accepted build"
    }
    assert {name: sorted(small.fingerprints(name)) for name in (UPDATES, OUTAGES, DAILY)} == {
        UPDATES: days(0, 1, 2, 4), OUTAGES: days(0, 4), DAILY: days(0),
    }  # fmt: skip
