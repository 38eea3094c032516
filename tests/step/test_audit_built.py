"""Audits of built days by today's rules, on Spark."""

from dataclasses import replace

import pytest
from deltalake import DeltaTable
from pyspark.sql.functions import lit

from backfill_assets.plan.status import PartitionStatus, State, latest_builds, status_of
from backfill_assets.quality.rules import rows_between
from backfill_assets.step.audit_built import audit_built
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.tables.declaration import Table
from tests.worlds.deliveries import day
from tests.worlds.outages import DAILY, FOUR, OUTAGES, World, change_in_place, file_of, only_some

pytestmark = pytest.mark.long


def with_rule(world: World, name: str, at_most: int) -> Table:
    table = world.table(name)
    return replace(table, rules=[*table.rules, rows_between(at_most=at_most)])


def audited(world: World, table: Table) -> StepResult:
    return audit_built(table, FOUR, StepRequest("the audit"), world.workspace, world.spark)


def status(world: World, table: Table) -> list[PartitionStatus]:
    builds = latest_builds(world.workspace)
    return list(status_of(world.workspace, [table], FOUR, latest=builds).partitions.values())


def test_a_stricter_rule_is_said_and_its_audit_names_the_days_and_leaves_their_rows(built, golden):
    """An audit changes neither the accepted rows nor the accepted builds."""
    table = with_rule(built, OUTAGES, at_most=2)
    before = (built.versions(), built.files(), built.accepted(OUTAGES))
    (why,) = {s.why for s in status(built, table)}
    golden(why)
    rows = {at: len(built.rows(OUTAGES, [at])) for at in FOUR}
    result = audited(built, table)
    assert {b.day: b.rows for b in result.failed()} == {at: n for at, n in rows.items() if n > 2}
    golden({b.day: b.message for b in result.failed()}, "the audit")
    assert (built.versions(), built.files(), built.accepted(OUTAGES)) == before
    for at, known in zip(FOUR, status(built, table), strict=True):
        assert known.state == State.UP_TO_DATE
        golden(known.why, f"{at} after it")


def test_days_of_other_columns_are_not_said_to_have_been_changed_by_somebody(built):
    """The schema of a table covers all its days: only reading shows the columns of one day."""
    old = built.table(DAILY)
    wider = replace(
        old,
        version="2",
        columns=f"{old.columns}, extra INT",
        compute=lambda **read: old.compute(**read).withColumn("extra", lit(1)),
    )
    built.run([day(3)], wider, run="with a column more")
    states = [s.state for s in status(built, wider)]
    assert [b.outcome for b in audited(built, wider).built] == ["audited"] * len(FOUR)
    assert (
        [s.state for s in status(built, wider)]
        == states
        == [*[State.CODE_CHANGED] * 3, State.UP_TO_DATE]
    )
    narrower = replace(
        old,
        version="3",
        columns=old.columns.rsplit(",", 1)[0],
        compute=lambda **read: old.compute(**read).drop("customers_7d"),
    )
    built.run([day(3)], narrower, run="with a column less")
    assert [b.outcome for b in audited(built, narrower).built] == ["audited"] * len(FOUR)
    # A version kept by hand says nothing of the columns.
    by_hand = replace(narrower, version=old.version)
    assert [b.outcome for b in audited(built, by_hand).built] == ["audited"] * len(FOUR)


def test_days_that_pass_are_recorded_beside_what_is_accepted(built):
    table = with_rule(built, OUTAGES, at_most=1000)
    before = built.accepted(OUTAGES)
    result = audited(built, table)
    assert [b.outcome for b in result.built] == ["audited"] * len(FOUR)
    assert {s.why for s in status(built, table)} == {""}
    assert built.accepted(OUTAGES) == before
    for at in FOUR:
        last = built.lake.ledger.builds({OUTAGES: [at]})[-1]
        assert (last.run, last.rules, last.fingerprint) == (
            "the audit",
            table.rules_version,
            before[at].fingerprint,
        )
        assert "rows_between" in {check["rule"] for check in last.checks}


def test_an_audit_of_rows_that_were_built_again_since_says_nothing_of_them(built, golden):
    audited(built, with_rule(built, OUTAGES, at_most=2))
    built.run([day(1)], only_some(built, "100", version="2"), run="built again", force=True)
    table = replace(with_rule(built, OUTAGES, at_most=2), version="2")
    builds = latest_builds(built.workspace)
    assert builds.audit_of((OUTAGES, day(1))) is None
    assert builds.audit_of((OUTAGES, day(2))) is not None
    known = status_of(built.workspace, [table], [day(1)], latest=builds).partitions[OUTAGES, day(1)]
    golden(known.why)


def test_rows_that_somebody_changed_and_days_never_built_are_not_judged(built, golden):
    DeltaTable(built.lake.path(DAILY)).update(
        {"customers": "customers + 1"}, predicate=f"outage_day = '{day(1)}'"
    )
    later = replace(built, calendar=replace(built.calendar, fixed_last=day(4)))
    result = audit_built(
        built.table(DAILY), [*FOUR, day(4)], StepRequest("r"), later.workspace, built.spark
    )
    assert [b.day for b in result.built] == [at for at in FOUR if at != day(1)]
    assert result.blocked.keys() == {day(1), day(4)}
    golden(result.blocked)


def test_a_file_that_was_changed_in_place_is_found_by_an_audit_and_written_again(built, golden):
    rows = built.rows(DAILY)
    table = built.table(DAILY)
    change_in_place(built, DAILY, day(1))
    (refused,) = audited(built, table).failed()
    assert (refused.day, refused.finding) == (day(1), "other_rows")
    golden(refused.message)
    assert [s.state for s in status(built, table)].count(State.REWRITTEN) == 1
    built.run(FOUR, [DAILY], run="again")
    assert (built.rows(DAILY), {s.why for s in status(built, table)}) == (rows, {""})


def test_an_audit_by_other_code_repeats_the_finding_until_the_day_is_rewritten(built):
    """Its rows cannot be compared with those of the earlier code, although they are the same."""
    rows = built.rows(DAILY)
    edited = replace(built.table(DAILY), version="edited")
    change_in_place(built, DAILY, day(1))
    (found,) = audited(built, built.table(DAILY)).failed()
    (again,) = audited(built, edited).failed()
    assert (again.day, again.message) == (day(1), found.message)
    assert [s.state for s in status(built, edited)].count(State.REWRITTEN) == 1
    (build,) = built.run([day(1)], edited, run="again")[DAILY].built
    assert (build.outcome, built.rows(DAILY)) == ("accepted", rows)


def test_a_day_that_cannot_be_read_is_named_and_the_others_are_judged(built, golden):
    """The file of one day is missing, and that of another is damaged: Spark gives up all files."""
    table = built.table(DAILY)
    missing = file_of(built, DAILY, day(1))
    missing.unlink()
    damaged = file_of(built, DAILY, day(2))
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    result = audited(built, table)
    refused = result.failed()
    assert [(b.day, b.finding) for b in refused] == [
        (day(1), "unreadable_files"),
        (day(2), "unreadable_files"),
    ]
    folder = built.lake.path(DAILY)
    gone, unreadable = (build.message for build in refused)
    golden(gone, FILE=missing.relative_to(folder))
    # What follows is Arrow's.
    golden(unreadable.partition(": Parquet")[0], "damaged", FILE=damaged.relative_to(folder))
    assert [b.outcome for b in result.built] == ["audited", "refused", "refused", "audited"]
    assert [s.state for s in status(built, table)].count(State.REWRITTEN) == 2
