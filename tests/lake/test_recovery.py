"""Every build there was, in the ledger or only in a commit. No Spark: commits are made as a step
would leave them.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from backfill_assets.lake import history
from backfill_assets.lake.delta import commits_at
from backfill_assets.lake.history import (
    build_history,
    commit_metadata,
    last_committed,
    latest,
    recover,
    recover_newest,
    tables_in,
)
from backfill_assets.lake.ledger import Ledger
from tests.worlds.deliveries import day
from tests.worlds.recorded import FULL, TABLE, build, commit


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
