"""Runs over days that are built: nothing is computed twice, and a crash leaves no repairs."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from deltalake import DeltaTable
from pyspark.sql.connect.client import SparkConnectClient

from backfill_assets.calendar import Calendar
from backfill_assets.errors import NOTHING_COMMITTED, UsageError
from backfill_assets.lake.spark.reading import schema_of
from backfill_assets.quality.rules import rows_between
from backfill_assets.step import compute
from backfill_assets.verbs.accept_code import accept_code
from backfill_assets.verbs.options import AcceptCodeOptions
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
    assert_same,
    broken_rules,
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


@pytest.fixture
def requests(spark, monkeypatch) -> Counter[str]:
    """The requests to the engine by kind, as if no columns were parsed before."""
    # With the first plan, a client asks whether to compress plans.
    assert spark.range(1).columns
    counts = Counter[str]()

    def counted(ask, kind):
        def counting(*args, **options):
            counts[kind] += 1
            return ask(*args, **options)

        return counting

    client = SparkConnectClient
    monkeypatch.setattr(client, "_analyze", counted(client._analyze, "analyze"))
    monkeypatch.setattr(client, "config", counted(client.config, "config"))
    execute = "_execute_and_fetch_as_iterator"
    monkeypatch.setattr(client, execute, counted(getattr(client, execute), "execute"))
    schema_of.cache_clear()
    return counts


def test_a_changed_file_makes_its_day_due_and_what_is_made_from_it(built, requests):
    built.write(day(2), arriving(2, 0, 1, 2, 3, began=2))
    results = built.run(FOUR)
    assert requests == {"analyze": 27, "config": 31, "execute": 8}
    assert outcomes(results) == {
        REJECTED: days(2),
        RAW: days(2),
        UPDATES: days(2),
        OUTAGES: days(2),
        DAILY: days(2, 3),
        DAILY_V2: days(2, 3),
        HISTORY: days(2, 3),
        LATE: days(2),
    }


@pytest.mark.scale
def test_a_late_row_makes_only_its_own_event_day_of_outages_due(built):
    built.write(day(3), [*arriving(3, 0, 1, 2, began=3), *arriving(3, 9, began=1)])
    results = built.run(FOUR, [REJECTED, RAW, UPDATES, OUTAGES])
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


def keep_two_days(workspace, name):
    options = AcceptCodeOptions(target=name, before=str(day(2)), reason="new days only")
    accept_code(workspace, options, who="ada")


def test_a_run_computes_no_day_that_is_kept_for_its_code(built):
    newer = replace(built.table(UPDATES), version="2")
    workspace = replace(built.workspace, tables=(newer,))
    keep_two_days(workspace, UPDATES)
    result = replace(built, spark=no_spark).run(days(0, 1), newer)[UPDATES]
    assert ([build.day for build in result.up_to_date], result.built) == (days(0, 1), [])
    assert [build.day for build in built.run(FOUR, newer)[UPDATES].built] == days(2, 3)


@pytest.mark.scale
def test_rows_merged_into_a_kept_day_do_not_make_it_a_day_of_the_present_code(built):
    newer = only_some(built, "100", version="2")
    workspace = replace(built.workspace, tables=(newer,))
    before = built.accepted(OUTAGES)[day(1)]
    keep_two_days(workspace, OUTAGES)
    (build,) = built.run(days(1), newer, write_mode="merge", force=True)[OUTAGES].built
    assert (build.outcome, build.mixed) == ("accepted", False)
    assert (build.code_version, build.accepted_code) == (before.code_version, "2")
    assert replace(built, spark=no_spark).run(days(1), newer)[OUTAGES].built == []


def test_after_a_crash_before_the_ledger_the_record_is_repaired_without_computing(built):
    recorded = built.lake.ledger.builds({OUTAGES: None})
    forget_the_record(built, OUTAGES)
    assert built.lake.ledger.builds({OUTAGES: None}) == []
    result = replace(built, spark=no_spark).run(FOUR, [OUTAGES])[OUTAGES]
    assert [b.day for b in result.up_to_date] == FOUR
    assert built.lake.ledger.builds({OUTAGES: None}) == [
        replace(each, data_files="") for each in recorded
    ]


def test_a_lost_record_of_an_input_is_repaired_too(built):
    forget_the_record(built, OUTAGES)
    assert [
        b.day for b in replace(built, spark=no_spark).run(FOUR, [DAILY])[DAILY].up_to_date
    ] == FOUR


def test_a_table_that_was_deleted_and_built_again_recovers_from_a_crash(built):
    built.run(days(1), only_some(built, "100", version="2"), run="a later version", force=True)
    shutil.rmtree(built.lake.path(OUTAGES))
    built.run(FOUR, [OUTAGES], run="built again")
    DeltaTable(built.lake.ledger.path).delete("run = 'built again'")
    result = replace(built, spark=no_spark).run(FOUR, [OUTAGES])[OUTAGES]
    assert [(b.day, b.run) for b in result.up_to_date] == [(at, "built again") for at in FOUR]
    runs = [b.run for b in built.lake.ledger.builds({OUTAGES: FOUR})]
    assert runs.count("built again") == len(FOUR)


@pytest.mark.scale
def test_the_last_build_is_the_one_recorded_last_on_hosts_whose_clocks_differ(built):
    """A host whose clock is an hour ahead built every day, and another one corrects a day."""
    ledger = built.lake.ledger
    ledger.append([replace(b, run="ahead", at=b.at + timedelta(hours=1)) for b in ledger.builds()])
    built.write(day(1), arriving(1, 1, 2, 3, began=1), "late.jsonl")
    tables = [REJECTED, RAW, UPDATES, OUTAGES]
    built.run(FOUR, tables, run="corrected")
    assert built.accepted(RAW)[day(1)].run == built.accepted(OUTAGES)[day(1)].run == "corrected"
    again = replace(built, spark=no_spark).run(FOUR, tables, run="again")
    assert {
        name: [b.day for b in result.up_to_date] for name, result in again.items()
    } == dict.fromkeys(tables, FOUR)


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


@pytest.mark.scale
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


@pytest.mark.nightly
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


@pytest.mark.scale
def test_merge_is_judged_by_what_the_day_would_hold(built, golden):
    built.write(day(1), arriving(1, 0, 1, 2, 3, began=1))
    built.run(days(1), [REJECTED, RAW, UPDATES])
    table = only_some(built, "103", version="2")
    strict = replace(table, rules=[*table.rules, rows_between(at_most=3)])
    (failed,) = built.run(days(1), strict, write_mode="merge")[OUTAGES].failed()
    assert (failed.rows, broken_rules(failed)) == (4, ["rows_between"])
    golden(failed.message)
    assert len(built.rows(OUTAGES, days(1))) == 3


@pytest.mark.scale
@pytest.mark.parametrize("size", ["small", "large"])
def test_merge_refuses_a_day_in_which_a_key_repeats_and_names_it(size, built, monkeypatch, golden):
    """Delta's MERGE refuses it too. No rule of this table looks at keys."""
    if size == "large":  # profiled and written by Spark
        monkeypatch.setattr(compute, "SMALL", -1)
    plain = built.table(UPDATES)
    before = built.rows(UPDATES)

    def twice(events):
        rows = plain.compute(events)
        return rows.unionByName(rows.where("outage_number = '101'"))

    other = replace(
        plain, version="2", key=("outage_number",), rules=plain.rules[:1], compute=twice
    )
    builds = built.run(days(0, 1), other, write_mode="merge")[UPDATES].built
    assert [(build.day, build.outcome) for build in builds] == [
        (day(0), "unchanged"),
        (day(1), "failed"),
    ]
    first, *rows = builds[1].message.splitlines()
    golden(first)
    assert [json.loads(row)["outage_number"] for row in rows] == ["101", "101"]
    assert built.rows(UPDATES) == before


def test_a_forced_build_that_a_stricter_rule_refuses_is_built_again_later(built):
    plain = built.table(OUTAGES)
    strict = replace(plain, rules=[*plain.rules, rows_between(at_most=2)])
    for force in (True, False):
        (build,) = built.run(days(1), strict, force=force)[OUTAGES].built
        assert (build.outcome, build.rows) == ("failed", 3)
    assert built.run(days(1), plain)[OUTAGES].built == []


@pytest.mark.scale
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


def test_merge_into_a_table_of_other_columns_is_refused_and_says_what_to_do(built, golden):
    plain = built.table(OUTAGES)
    before = built.rows(OUTAGES)
    table = replace(
        plain,
        version="2",
        columns=f"{plain.columns}, zone STRING",
        compute=lambda updates: plain.compute(updates).selectExpr("*", "region AS zone"),
    )
    with golden.raises(UsageError) as refused:
        built.run(days(1), table, write_mode="merge")
    assert refused.value.unchanged == NOTHING_COMMITTED
    assert built.rows(OUTAGES) == before


@pytest.mark.parametrize(
    ("table", "write_mode"),
    [
        (RAW, "merge"),
        (RAW, "append_once"),
        # Whether its next day reads kept rows would depend on how days are cut into runs.
        (HISTORY, "merge"),
    ],
)
def test_a_write_mode_that_a_table_cannot_have_is_refused(once, table, write_mode, golden):
    nothing_read = replace(once, root=once.root / "none", spark=no_spark)
    with golden.raises(UsageError) as refused:
        nothing_read.run(days(1), [table], write_mode=write_mode, force=True)
    assert refused.value.unchanged == NOTHING_COMMITTED


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
