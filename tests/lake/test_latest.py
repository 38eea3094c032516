"""The last builds of every day, read in bulk: the same as reading them all, one after the other."""

from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.lake.history import COLUMNS, latest
from backfill_assets.lake.ledger import ROWS_DIFFER, Build, Ledger
from tests.worlds.deliveries import day
from tests.worlds.recorded import FULL, NOON, TABLE, build, commit


def test_a_ledger_that_was_never_written_knows_nothing(tmp_path):
    builds = latest(Ledger(str(tmp_path)), {TABLE: None})
    assert (builds.last, builds.accepted) == ({}, {})


def test_a_ledger_that_was_made_and_has_no_row_yet_knows_nothing(tmp_path):
    """As a reader finds it between a writer's making it and its first append."""
    ledger = Ledger(str(tmp_path))
    ledger.records.create()
    builds = latest(ledger, {TABLE: None})
    assert (builds.last, builds.accepted) == ({}, {})


def test_a_ledger_without_a_row_of_the_table_knows_nothing_of_it(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build()])
    assert latest(ledger, {"raw/a": None}).last == {}


def test_a_day_that_failed_last_stands_as_it_was_built_before(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(0, 0, run="first"), build(0, 1, run="second", outcome="failed")])
    builds = latest(ledger, {TABLE: None})
    assert (builds.last[TABLE, day(0)].run, builds.accepted[TABLE, day(0)].run) == (
        "second",
        "first",
    )


def test_how_long_a_day_takes_is_known_of_its_last_build_that_was_computed(tmp_path):
    ledger = Ledger(str(tmp_path))
    partition = (TABLE, day(0))
    ledger.append([build(0, 0, run="first", seconds=5.0), build(0, 1, run="second", seconds=2.0)])
    ledger.append(
        [
            build(0, 2, run="put back", outcome="restored", seconds=0.0),
            build(0, 3, outcome="failed", seconds=9.0),
        ]
    )
    builds = latest(ledger, {TABLE: None})
    assert (builds.accepted[partition].run, builds.last[partition].outcome) == (
        "put back",
        "failed",
    )
    assert (builds.computed[partition].run, builds.computed[partition].seconds) == ("second", 2.0)


def test_other_tables_are_not_read(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(), replace(build(), table="raw/a")])
    assert list(latest(ledger, {"raw/a": None}).last) == [("raw/a", day(0))]


def test_only_the_days_named_are_read_with_what_commits_tell_of_them(tmp_path):
    ledger = Ledger(str(tmp_path))
    commit(tmp_path, build(0), build(1))
    ledger.append([build(0, delta_version=0), build(1, delta_version=0)])
    commit(tmp_path, build(1, 1, run="second"), build(2, 1, run="second"))
    builds = latest(ledger, {TABLE: [day(1)]})
    assert {partition: b.run for partition, b in builds.last.items()} == {(TABLE, day(1)): "second"}


def test_what_status_needs_of_a_build_is_read_and_the_rest_left(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([FULL])
    last = latest(ledger, {TABLE: None}).last[TABLE, day(0)]
    assert {name: getattr(last, name) for name in COLUMNS} == {n: getattr(FULL, n) for n in COLUMNS}
    assert (last.checks, last.nulls) == ((), {})


def test_a_commit_that_the_ledger_does_not_know_of_is_seen_and_not_recorded(tmp_path):
    ledger = Ledger(str(tmp_path))
    commit(tmp_path, build(0))
    ledger.append([build(0, delta_version=0)])
    commit(tmp_path, build(1))
    assert latest(ledger, {TABLE: None}).accepted[TABLE, day(1)].delta_version == 1
    assert [b.day for b in ledger.builds()] == [day(0)]


appended = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["accepted", "unchanged", "failed"])), max_size=12
)


@given(appended)
@settings(max_examples=20)  # each writes files
def test_it_is_what_reading_every_build_in_order_gives(tmp_path_factory, history):
    ledger = Ledger(str(tmp_path_factory.mktemp("ledger")))
    last = dict[date, Build]()
    accepted: dict[date, Build] = {}
    for minutes, (number, outcome) in enumerate(history):
        ledger.append([build(number, minutes, outcome=outcome, run=f"r{minutes}")])
        last[day(number)] = ledger.builds()[-1]
        if outcome != "failed":
            accepted[day(number)] = last[day(number)]
    builds = latest(ledger, {TABLE: None})
    assert {at: b.run for (_, at), b in builds.last.items()} == {
        at: b.run for at, b in last.items()
    }
    assert {at: b.run for (_, at), b in builds.accepted.items()} == {
        at: b.run for at, b in accepted.items()
    }


def audited(minutes: int, message: str = "", **fields) -> Build:
    """An audit of the build that was committed as version 3."""
    known = {"fingerprint": "f", "delta_version": 3, "outcome": "refused" if message else "audited"}
    return build(0, minutes, run=f"audit {minutes}", message=message, **known | fields)


OTHER_ROWS = f"{ROWS_DIFFER}: g instead of f"
BUILT = build(delta_version=3, fingerprint="f", data_files="x")
FOUND = {"message": OTHER_ROWS, "data_files": "x"}
COMPARED = {"data_files": "x"}
NOT_COMPARED = {"data_files": "x", "fingerprint": ""}


@pytest.mark.parametrize(
    ("later", "stands"),
    [
        pytest.param([], True, id="nothing came since"),
        pytest.param([audited(2, **NOT_COMPARED)], True, id="an audit that could not compare the rows"),
        pytest.param([audited(2, **NOT_COMPARED, message="few rows")], True, id="one that could not, and refused them"),
        pytest.param([audited(2, **COMPARED)], False, id="an audit that found the rows that were accepted"),
        pytest.param([replace(BUILT, outcome="unchanged", code_version="2", at=NOON + timedelta(minutes=2))], True,
                     id="a build that left them as they are"),
        pytest.param([build(0, 2, delta_version=4, fingerprint="f", data_files="y")], False, id="a build that wrote them anew"),
        pytest.param([build(0, 2, delta_version=4, fingerprint="f", data_files="y"),
                      build(0, 3, delta_version=5, fingerprint="f", data_files="x", outcome="restored")], True,
                     id="a rollback that put the same files back"),
        pytest.param([build(0, 2, outcome="failed")], True, id="a build that failed"),
    ],
)  # fmt: skip
def test_rows_that_differ_do_so_until_they_are_committed_anew_or_compared_again(
    tmp_path, later, stands
):
    ledger = Ledger(str(tmp_path))
    partition = (TABLE, day(0))
    ledger.append([BUILT, audited(1, **FOUND), *later])
    builds = latest(ledger, {TABLE: None})
    assert builds.differing() == ({partition: OTHER_ROWS} if stands else {})
