"""The last builds of every day, read in bulk: the same as reading them all, one after the other."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.lake.latest import WHAT_STATUS_NEEDS, latest
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import Build
from tests.deliveries import day
from tests.lake.test_ledger import FULL, build, commit

TABLE = "staging/o"


def test_a_ledger_that_was_never_written_knows_nothing(tmp_path):
    found = latest(Ledger(str(tmp_path)), [TABLE])
    assert (found.last, found.accepted) == ({}, {})


def test_a_ledger_that_was_made_and_has_no_row_yet_knows_nothing(tmp_path):
    """As a reader finds it between a writer's making it and its first append."""
    ledger = Ledger(str(tmp_path))
    ledger._begin()
    found = latest(ledger, [TABLE])
    assert (found.last, found.accepted) == ({}, {})


def test_a_ledger_without_a_row_of_the_table_knows_nothing_of_it(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build()])
    assert latest(ledger, ["raw/a"]).last == {}


def test_a_day_that_failed_last_stands_as_it_was_built_before(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(0, 0, run="first"), build(0, 1, run="second", outcome="failed")])
    found = latest(ledger, [TABLE])
    assert (found.last[TABLE, day(0)].run, found.accepted[TABLE, day(0)].run) == ("second", "first")


def test_other_tables_are_not_read(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(), replace(build(), table="raw/a")])
    assert list(latest(ledger, ["raw/a"]).last) == [("raw/a", day(0))]


def test_what_status_needs_of_a_build_is_read_and_the_rest_left(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([FULL])
    found = latest(ledger, [TABLE]).last[TABLE, day(0)]
    assert {name: getattr(found, name) for name in WHAT_STATUS_NEEDS} == {n: getattr(FULL, n) for n in WHAT_STATUS_NEEDS}
    assert (found.checks, found.nulls) == ((), {})


def test_a_commit_that_the_ledger_does_not_know_of_is_seen_and_not_mended(tmp_path):
    ledger = Ledger(str(tmp_path))
    commit(tmp_path, build(0))
    ledger.append([build(0, delta_version=0)])
    commit(tmp_path, build(1))
    assert latest(ledger, [TABLE]).accepted[TABLE, day(1)].delta_version == 1
    assert [b.day for b in ledger.builds()] == [day(0)]


appended = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["accepted", "unchanged", "failed"])), max_size=12)


@given(appended)
@settings(max_examples=20)  # each writes files
def test_it_is_what_reading_every_build_in_order_gives(tmp_path_factory, history):
    ledger, last = Ledger(str(tmp_path_factory.mktemp("ledger"))), dict[date, Build]()
    for minutes, (number, outcome) in enumerate(history):
        ledger.append([build(number, minutes, outcome=outcome, run=f"r{minutes}")])
        last[day(number)] = ledger.builds()[-1]
    found = latest(ledger, [TABLE])
    assert {at: b.run for (_, at), b in found.last.items()} == {at: b.run for at, b in last.items()}
    assert {c: b.run for c, b in found.accepted.items()} == {c: b.run for c, b in ledger.accepted([TABLE]).items()}
