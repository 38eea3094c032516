"""Running again: nothing is computed that need not be, and a crash leaves nothing to repair by
hand.
"""

import shutil
from dataclasses import replace
from datetime import timedelta

import pytest
from deltalake import DeltaTable

from tests.worlds.deliveries import arriving, day, days
from tests.worlds.outages import (
    DAILY,
    DAILY_V2,
    FOUR,
    HISTORY,
    LATE,
    NAMES,
    OUTAGES,
    RAW,
    REJECTED,
    UPDATES,
    forget_the_record,
    no_spark,
    only_some,
)


def outcomes(results) -> dict[str, list]:
    return {name: [b.day for b in result.built] for name, result in results.items() if result.built}


def test_a_run_over_what_is_built_computes_and_writes_nothing(built):
    before = built.versions(), built.files(), {name: built.fingerprints(name) for name in NAMES}
    results = replace(built, spark=no_spark).run(FOUR, run="second")
    assert {name: [b.day for b in r.up_to_date] for name, r in results.items()} == dict.fromkeys(
        NAMES, FOUR
    )
    assert (
        built.versions(),
        built.files(),
        {name: built.fingerprints(name) for name in NAMES},
    ) == before


def test_forced_days_that_come_out_the_same_are_computed_and_not_written(built):
    before = built.versions(), built.files()
    results = built.run(FOUR, run="second", force=True)
    assert {b.outcome for r in results.values() for b in r.built} == {"unchanged"}
    assert outcomes(results) == dict.fromkeys(NAMES, FOUR)
    assert (built.versions(), built.files()) == before


def test_a_changed_file_makes_its_day_due_and_what_is_made_from_it(built):
    built.write(day(2), arriving(2, 0, 1, 2, 3, began=2))
    assert outcomes(built.run(FOUR)) == {
        REJECTED: days(2), RAW: days(2), UPDATES: days(2), OUTAGES: days(2), DAILY: days(2, 3), DAILY_V2: days(2, 3),
        HISTORY: days(2, 3), LATE: days(2),
    }  # fmt: skip


def test_a_late_row_makes_only_its_own_event_day_of_outages_due(built):
    built.write(day(3), [*arriving(3, 0, 1, 2, began=3), *arriving(3, 9, began=1)])
    results = built.run(FOUR)
    assert outcomes(results)[OUTAGES] == days(1)
    assert {row["outage_number"] for row in built.rows(OUTAGES, [day(1)])} == {
        "100",
        "101",
        "102",
        "109",
    }


def test_a_new_code_version_makes_every_day_due_but_not_what_comes_out_the_same(built):
    newer = replace(built.table(UPDATES), version="2")
    assert [b.outcome for b in built.run(FOUR, newer)[UPDATES].built] == ["unchanged"] * 4
    assert replace(built, spark=no_spark).run(FOUR, [OUTAGES])[OUTAGES].built == []


def test_after_a_crash_before_the_ledger_the_record_is_repaired_without_computing(built):
    recorded = built.lake.ledger.builds({OUTAGES: None})
    forget_the_record(built, OUTAGES)
    assert built.lake.ledger.builds({OUTAGES: None}) == []
    result = replace(built, spark=no_spark).run(FOUR, [OUTAGES])[OUTAGES]
    assert [b.day for b in result.up_to_date] == FOUR
    assert built.lake.ledger.builds({OUTAGES: None}) == [
        replace(each, data_files="") for each in recorded
    ]


def test_a_table_whose_inputs_record_was_lost_mends_that_too(built):
    forget_the_record(built, OUTAGES)
    assert [
        b.day for b in replace(built, spark=no_spark).run(FOUR, [DAILY])[DAILY].up_to_date
    ] == FOUR


def test_a_table_that_was_deleted_and_made_anew_recovers_from_a_crash_too(built):
    built.run(days(1), only_some(built, "100", version="2"), run="a later version", force=True)
    shutil.rmtree(built.lake.path(OUTAGES))
    built.run(FOUR, [OUTAGES], run="made anew")
    DeltaTable(built.lake.ledger.path).delete("run = 'made anew'")
    result = replace(built, spark=no_spark).run(FOUR, [OUTAGES])[OUTAGES]
    assert [(b.day, b.run) for b in result.up_to_date] == [(at, "made anew") for at in FOUR]
    assert [b.run for b in built.lake.ledger.builds({OUTAGES: FOUR}) if b.run == "made anew"] == [
        "made anew"
    ] * len(FOUR)


def test_the_last_build_is_the_one_recorded_last_on_hosts_whose_clocks_differ(built):
    """A host whose clock is an hour ahead built every day; a correction by another one counts all
    the same.
    """
    ledger = built.lake.ledger
    ledger.append([replace(b, run="ahead", at=b.at + timedelta(hours=1)) for b in ledger.builds()])
    built.write(day(1), arriving(1, 1, 2, 3, began=1), "late.jsonl")
    built.run(FOUR, run="corrected")
    assert built.accepted(RAW)[day(1)].run == built.accepted(OUTAGES)[day(1)].run == "corrected"
    again = replace(built, spark=no_spark).run(FOUR, run="again")
    assert {
        name: [b.day for b in result.up_to_date] for name, result in again.items()
    } == dict.fromkeys(NAMES, FOUR)


def test_after_a_crash_before_the_report_the_day_is_reported_from_the_ledger(built):
    first = built.run(days(0), [RAW], run="first", force=True)[RAW].accepted()
    again = replace(built, spark=no_spark).run(days(0), [RAW], run="second")[RAW].accepted()
    assert again == first


def test_a_step_that_breaks_is_recorded_for_every_day_and_changes_nothing(built):
    before = built.rows(UPDATES)
    broken = replace(
        built.table(UPDATES), version="2", compute=lambda events: events.select("no_such_column")
    )
    with pytest.raises(Exception, match="no_such_column"):
        built.run(FOUR, broken)
    last = built.lake.ledger.builds({UPDATES: None})[-4:]
    assert [(b.day, b.outcome) for b in last] == [(at, "failed") for at in FOUR]
    assert built.rows(UPDATES) == before
