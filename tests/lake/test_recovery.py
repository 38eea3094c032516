"""Every build there was, in the ledger or only in a commit. No Spark: commits are made as a step would leave them."""

from dataclasses import replace

from backfill_assets.lake.latest import latest
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.recovery import build_history, recover, tables_in
from tests.worlds.deliveries import day
from tests.worlds.recorded import FULL, TABLE, build, commit


def test_builds_that_a_crash_left_out_are_seen_apart_from_those_recorded(tmp_path):
    ledger = Ledger(str(tmp_path))
    commit(tmp_path, build(0))
    ledger.append([build(0, delta_version=0)])
    commit(tmp_path, build(1, 1))
    builds = build_history(ledger, [TABLE])
    assert ([b.day for b in builds.recorded], [b.day for b in builds.unrecorded]) == ([day(0)], [day(1)])
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


def test_a_ledger_that_is_gone_is_written_again_from_the_commits(tmp_path):
    full = replace(FULL, delta_version=0)
    commit(tmp_path, full)
    recover(Ledger(str(tmp_path)), TABLE)
    assert Ledger(str(tmp_path)).builds() == [full]


def test_only_the_columns_named_are_read(tmp_path):
    Ledger(str(tmp_path)).append([FULL])
    (builds,) = build_history(Ledger(str(tmp_path)), [TABLE], ("table", "day", "outcome", "run", "code_version", "at")).recorded
    assert (builds.run, builds.checks, builds.rows) == (FULL.run, (), 0)


def test_the_ledger_knows_the_tables_that_have_another_name_by_now(tmp_path):
    ledger = Ledger(str(tmp_path))
    assert tables_in(ledger) == []
    ledger.append([build(), replace(build(), table="raw/renamed")])
    assert tables_in(ledger) == ["raw/renamed", TABLE]
