"""Every build there was, in the ledger or only in a commit. No Spark: commits are made as a step
would leave them.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.lake import history
from backfill_assets.lake.damage import Damage, DamageKind
from backfill_assets.lake.delta import commits_at
from backfill_assets.lake.history import (
    LATEST_COLUMNS,
    build_history,
    commit_metadata,
    last_committed,
    latest,
    origin_builds,
    recover,
    recover_newest,
    tables_in,
)
from backfill_assets.lake.ledger import Build, Ledger
from tests.worlds.deliveries import day
from tests.worlds.depth import tries
from tests.worlds.recorded import FULL, NOON, TABLE, build, commit


def test_builds_that_a_crash_left_out_are_seen_apart_from_those_recorded(tmp_path):
    ledger = Ledger(str(tmp_path))
    commit(tmp_path, build(0))
    ledger.append([build(0, delta_version=0)])
    commit(tmp_path, build(1, 1))
    builds = build_history(ledger, [TABLE])
    assert ([b.day for b in builds.recorded], [b.day for b in builds.unrecorded]) == (
        [day(0)],
        [day(1)],
    )
    assert [b.delta_version for b in builds.builds()] == [0, 1]


def test_a_hole_before_the_newest_commit_recorded_is_seen_and_filled_once(tmp_path):
    ledger = Ledger(str(tmp_path))
    commit(tmp_path, build(0, 0))
    commit(tmp_path, build(0, 1))
    ledger.append([build(0, 1, delta_version=1)])
    assert [b.delta_version for b in recover(ledger, TABLE)] == [0]
    assert recover(ledger, TABLE) == []
    assert [b.delta_version for b in ledger.builds()] == [0, 1]
    assert latest(ledger, {TABLE: None}).accepted[TABLE, day(0)].delta_version == 1


def test_a_hole_in_the_ledger_is_seen_by_readers_and_filled_by_steps(tmp_path):
    ledger = Ledger(str(tmp_path))
    for number in range(3):
        commit(tmp_path, build(number, number))
    ledger.append([build(0, 0, delta_version=0), build(2, 2, delta_version=2)])
    assert latest(ledger, {TABLE: None}).accepted[TABLE, day(1)].delta_version == 1
    assert [b.delta_version for b in recover_newest(ledger, [TABLE])] == [1]
    assert recover_newest(ledger, [TABLE]) == []
    assert [b.delta_version for b in ledger.builds()] == [0, 1, 2]


@pytest.fixture
def commits_read(monkeypatch) -> list[int]:
    """The versions of the commits that are read."""
    read: list[int] = []

    def reading(folder: str, versions: Iterable[int]):
        for each in commits_at(folder, versions):
            read.append(each["version"])
            yield each

    monkeypatch.setattr(history, "commits_at", reading)
    return read


def test_commits_of_others_are_not_read_again_after_a_commit_that_followed_them(
    tmp_path, commits_read
):
    ledger = Ledger(str(tmp_path))
    others = range(1, 5)
    commit(tmp_path, build(0))
    for _ in others:
        commit(tmp_path, metadata="")
    ledger.append([build(0, delta_version=0)])
    assert recover_newest(ledger, [TABLE]) == []
    assert sorted(commits_read) == list(others)
    commit(tmp_path, metadata=commit_metadata([build(1, 1)], complete=True))
    ledger.append([build(1, 1, delta_version=5)])
    commits_read.clear()
    assert recover_newest(ledger, [TABLE]) == []
    assert commits_read == [5]
    commit(tmp_path, build(2, 2))
    assert [b.delta_version for b in recover_newest(ledger, [TABLE])] == [6]
    assert set(commits_read) == {5, 6}


def test_no_commit_is_read_where_all_are_recorded(tmp_path, commits_read):
    ledger = Ledger(str(tmp_path))
    for number in range(3):
        commit(tmp_path, build(number, number))
        ledger.append([build(number, number, delta_version=number)])
    assert recover_newest(ledger, [TABLE]) == []
    assert commits_read == []


def test_the_last_commits_of_days_are_read_no_further_back_than_needed(tmp_path, commits_read):
    for number in (0, 1, 0, 2):
        commit(tmp_path, build(number, len(commits_read)))
    found = last_committed(str(tmp_path / TABLE), {day(0), day(2)})
    assert {at: b.delta_version for at, b in found.items()} == {day(0): 2, day(2): 3}
    assert commits_read == [3, 2]


def test_a_ledger_that_is_gone_is_written_again_from_the_commits(tmp_path):
    full = replace(FULL, delta_version=0)
    commit(tmp_path, full)
    recover(Ledger(str(tmp_path)), TABLE)
    assert Ledger(str(tmp_path)).builds() == [full]


def test_only_the_columns_named_are_read(tmp_path):
    Ledger(str(tmp_path)).append([FULL])
    (builds,) = build_history(
        Ledger(str(tmp_path)), [TABLE], ("table", "day", "outcome", "run", "code_version", "at")
    ).recorded
    assert (builds.run, builds.checks, builds.rows) == (FULL.run, (), 0)


def test_the_ledger_knows_the_tables_that_have_another_name_by_now(tmp_path):
    ledger = Ledger(str(tmp_path))
    assert tables_in(ledger) == []
    ledger.append([build(), replace(build(), table="raw/renamed")])
    assert tables_in(ledger) == ["raw/renamed", TABLE]


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(lambda ledger: None, id="a ledger that was never written"),
        # A reader may come between the creation of the ledger and its first row.
        pytest.param(lambda ledger: ledger.records.create(), id="a ledger without rows"),
        pytest.param(lambda ledger: ledger.append([build()]), id="rows of another table"),
    ],
)
def test_a_ledger_without_rows_of_a_table_knows_nothing_of_it(tmp_path, prepare):
    ledger = Ledger(str(tmp_path))
    prepare(ledger)
    builds = latest(ledger, {"raw/a": None})
    assert (builds.last, builds.accepted) == ({}, {})


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
    assert {name: getattr(last, name) for name in LATEST_COLUMNS} == {
        n: getattr(FULL, n) for n in LATEST_COLUMNS
    }
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
@settings(max_examples=tries(20))  # each writes files
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


OTHER_ROWS = "the rows are others: g instead of f"
BUILT = build(delta_version=3, fingerprint="f", data_files="x")
FOUND = {"finding": "other_rows", "message": OTHER_ROWS, "data_files": "x"}
COMPARED = {"data_files": "x"}
NOT_COMPARED = {"data_files": "x", "fingerprint": ""}


@pytest.mark.parametrize(
    ("later", "stands"),
    [
        pytest.param([], True, id="nothing came since"),
        pytest.param(
            [audited(2, **NOT_COMPARED)], True, id="an audit that could not compare the rows"
        ),
        pytest.param(
            [audited(2, **NOT_COMPARED, message="few rows")],
            True,
            id="one that could not, and refused them",
        ),
        pytest.param(
            [audited(2, **COMPARED)], False, id="an audit that found the rows that were accepted"
        ),
        pytest.param(
            [replace(BUILT, outcome="unchanged", code_version="2", at=NOON + timedelta(minutes=2))],
            True,
            id="a build that left them as they are",
        ),
        pytest.param(
            [build(0, 2, delta_version=4, fingerprint="f", data_files="y")],
            False,
            id="a build that wrote them anew",
        ),
        pytest.param(
            [
                build(0, 2, delta_version=4, fingerprint="f", data_files="y"),
                build(0, 3, delta_version=5, fingerprint="f", data_files="x", outcome="restored"),
            ],
            True,
            id="a rollback that put the same files back",
        ),
        pytest.param([build(0, 2, outcome="failed")], True, id="a build that failed"),
    ],
)
def test_rows_that_differ_do_so_until_they_are_committed_anew_or_compared_again(
    tmp_path, later, stands
):
    ledger = Ledger(str(tmp_path))
    partition = (TABLE, day(0))
    ledger.append([BUILT, audited(1, **FOUND), *later])
    builds = latest(ledger, {TABLE: None})
    damage = Damage(DamageKind.OTHER_ROWS, detail=OTHER_ROWS)
    assert builds.damaged_by_audits() == ({partition: damage} if stands else {})


BY_PLAN = Build(
    "a",
    day(0),
    "accepted",
    "r1",
    "1",
    "x",
    7,
    plan="p",
    delta_version=1,
    data_files="f1",
    at=datetime(2026, 1, 1, tzinfo=UTC),
)
BY_NIGHT = replace(BY_PLAN, run="r2", plan="", fingerprint="y", delta_version=2, data_files="f2")


def put_back(build: Build, **now: Any) -> Build:
    return replace(build, outcome="restored", run="rollback", plan="", **now)


@pytest.mark.parametrize(
    ("builds", "wrote"),
    [
        pytest.param([BY_PLAN, BY_NIGHT], ["r1", "r2"], id="each its own"),
        pytest.param(
            [BY_PLAN, replace(BY_PLAN, outcome="unchanged", run="r3", plan="q")],
            ["r1", "r1"],
            id="found as they were",
        ),
        pytest.param(
            [BY_PLAN, BY_NIGHT, put_back(BY_PLAN, delta_version=3)],
            ["r1", "r2", "r1"],
            id="the same files",
        ),
        pytest.param(
            [BY_PLAN, BY_NIGHT, put_back(BY_PLAN, delta_version=3, data_files="compacted")],
            ["r1", "r2", "r1"],
            id="files that were compacted before they were put back",
        ),
        pytest.param(
            [
                replace(BY_PLAN, data_files="", rows=0),
                BY_NIGHT,
                put_back(BY_PLAN, delta_version=3, data_files="", rows=0),
            ],
            ["r1", "r2", "r1"],
            id="a day that was emptied",
        ),
        pytest.param(
            [BY_PLAN, replace(BY_NIGHT, fingerprint="x"), put_back(BY_PLAN, delta_version=3)],
            ["r1", "r2", "r1"],
            id="of two with the same rows, the one with these files",
        ),
        pytest.param(
            [put_back(BY_PLAN)], ["rollback"], id="rows that nobody is known to have written"
        ),
    ],
)
def test_the_rows_of_a_build_are_those_of_the_build_that_wrote_them(builds, wrote):
    assert [build.run for build in origin_builds(builds)] == wrote
