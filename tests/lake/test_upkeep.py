"""The upkeep of tables: compacted days stand as they were built, and what goes wrong harms nothing.
No Spark.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake import maintenance
from backfill_assets.lake.file_commit import RETENTION
from backfill_assets.lake.history import latest
from backfill_assets.lake.integrity import damaged, read_state
from backfill_assets.lake.maintenance import ALWAYS_KEPT, MANY_FILES, maintain, preview_maintenance
from backfill_assets.lake.needed_files import Need
from backfill_assets.publish.rollback import Kind
from backfill_assets.settings import Settings
from tests.worlds.recorded import retire
from tests.worlds.small_lake import (
    DAYS,
    RELEASE_WINDOW,
    A,
    B,
    SmallLake,
    contents,
    files_on_disk,
    later,
    maintain_later,
    release_live_now,
    upkeep_of,
    values_of_release,
    write_in_many_files,
)

FIRST, SECOND, THIRD, FOURTH = DAYS
MANY = MANY_FILES + 1


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    """A day of one file and a day of many."""
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1})
    write_in_many_files(lake, SECOND)
    return lake


def rewritten(lake: SmallLake) -> dict:
    accepted = latest(lake.workspace.lake.ledger, {A.name: None}).accepted
    assert {day for _, day in accepted} == set(lake.values())
    return damaged(lake.workspace.lake.path(A.name), accepted.values())


def test_a_day_of_many_small_files_becomes_one_file_and_stands_as_it_was_built(lake):
    before = lake.files()
    assert dict(upkeep_of(maintain_later(lake)).days) == {SECOND: MANY}
    after = lake.files()
    state = read_state(str(lake.root / A.name))
    assert (after[FIRST], len(after[SECOND]), len(before[SECOND])) == (before[FIRST], 1, MANY)
    assert lake.values() == {FIRST: 1, SECOND: MANY}
    assert (rewritten(lake), state.foreign_commits, state.rows) == (
        {},
        [],
        {FIRST: 1, SECOND: MANY},
    )
    assert before[SECOND] <= files_on_disk(lake)  # for the window
    assert (dict(upkeep_of(maintain_later(lake)).days), lake.files()) == ({}, after)


def test_a_day_of_not_so_many_files_is_left_alone(tmp_path):
    lake = SmallLake(tmp_path)
    write_in_many_files(lake, FIRST, MANY_FILES)
    before = lake.files()
    maintain_later(lake)
    assert lake.files() == before


@pytest.mark.parametrize(
    "days", [pytest.param(0, id="today"), pytest.param(31, id="once its first files are gone")]
)
def test_a_plan_of_a_compacted_day_is_taken_back(lake, days):
    maintain_later(lake)
    compacted = lake.files()[SECOND]
    done = upkeep_of(maintain_later(lake, days))
    assert len(done.removed) == (MANY if days else 0)
    plan = lake.plan({A.name: [SECOND]})
    lake.write({SECOND: 7}, plan=plan.id)
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.RESTORE}
    assert (lake.values(), lake.files()[SECOND]) == ({FIRST: 1, SECOND: MANY}, compacted)
    assert rewritten(lake) == {}


def test_a_plan_that_rebuilt_a_day_before_it_was_compacted_is_taken_back_after_it(lake):
    plan = lake.plan({A.name: [FIRST]})
    lake.write({FIRST: 7}, plan=plan.id)
    maintain_later(lake)
    assert lake.roll_back(plan) == {(A.name, FIRST): Kind.RESTORE}
    assert lake.values() == {FIRST: 1, SECOND: MANY}


def test_a_day_that_somebody_else_writes_meanwhile_is_not_compacted_and_said(
    lake, monkeypatch, golden
):
    def opened_and_overtaken(folder):
        table = maintenance.open_table(folder)
        DeltaTable(folder).delete(f"day = '{SECOND}'")
        return table

    monkeypatch.setattr(maintenance, "table_to_write", opened_and_overtaken)
    done = upkeep_of(maintain_later(lake))
    assert done.days == {}
    golden(done.problem.partition(":")[0])
    assert lake.values() == {FIRST: 1}


def test_two_at_once_do_it_once(lake):
    for value in range(2, 4):
        lake.write({FIRST: value})
    for _ in range(ALWAYS_KEPT + 1):
        release_live_now(lake)
    compacted = upkeep_of(maintain_later(lake)).days
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: maintain_later(lake, 60), range(2)))
    assert [done.problems for done in both] == [[], []]
    assert sorted(len(done.retired) for done in both) == [0, 1]
    assert sorted(len(upkeep_of(done).removed) for done in both) == [
        0,
        2,
    ]  # the releases need what was compacted
    assert len(compacted) == 1
    assert [commit["operation"] for commit in DeltaTable(str(lake.root / A.name)).history(1)] == [
        "OPTIMIZE"
    ]
    assert lake.values() == {FIRST: 3, SECOND: MANY}


def test_what_a_killed_maintenance_left_is_done_by_the_next(lake):
    for value in range(2, 5):
        lake.write({FIRST: value})
        release_live_now(lake)
    for _ in range(ALWAYS_KEPT):
        release_live_now(lake)
    maintain_later(lake)
    planned = preview_maintenance(lake.workspace.lake, RELEASE_WINDOW, later(60))
    numbers = [each.number for each in planned.retired]
    retire(str(lake.root), numbers, later(60).date())  # killed after this
    unneeded = sorted(upkeep_of(planned).removed)
    (lake.root / A.name / unneeded[0]).unlink()
    half_compacted = lake.root / A.name / f"day={SECOND}" / "part-0.zstd.parquet"
    half_compacted.write_bytes(b"")
    os.utime(half_compacted, (later(50).timestamp(),) * 2)
    done = maintain_later(lake, 60)
    assert (done.retired, done.problems) == ([], [])
    assert set(upkeep_of(done).removed) == {
        *unneeded[1:],
        str(half_compacted.relative_to(lake.root / A.name)),
    }
    assert lake.values() == {FIRST: 4, SECOND: MANY}


def test_a_release_broken_by_a_foreign_vacuum_is_reported_and_others_are_read(lake):
    first = release_live_now(lake)
    lake.write({FIRST: 2})
    second = release_live_now(lake)
    DeltaTable(str(lake.root / A.name)).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    )
    with pytest.raises(
        TableUnreadable,
        match="raw/a",
    ):
        values_of_release(lake, first)
    assert maintain_later(lake, 1).problems == []
    assert values_of_release(lake, second) == lake.values() == {FIRST: 2, SECOND: MANY}


def test_a_release_that_names_a_version_without_a_log_keeps_all_files_of_that_table(lake, golden):
    release_live_now(lake)
    lake.write({FIRST: 2})
    lake.write({FIRST: 1}, table=B.name)
    lake.write({FIRST: 2}, table=B.name)
    release_live_now(lake)
    log = lake.root / A.name / "_delta_log"
    DeltaTable(str(lake.root / A.name)).create_checkpoint()
    for version in range(2):
        (log / f"{version:020}.json").unlink()
    before = files_on_disk(lake)
    done = maintain_later(lake, 60)
    (problem,) = done.problems
    golden(problem)
    assert (files_on_disk(lake), len(upkeep_of(done, B.name).removed)) == (before, 1)


def test_a_table_that_cannot_be_read_is_named_and_the_others_are_looked_after(lake):
    maintain_later(lake)
    lake.write({FIRST: 1}, table=B.name)
    lake.write({FIRST: 2})
    (lake.root / B.name / "_delta_log" / f"{0:020}.json").write_text("{")
    done = maintain_later(lake, 31)
    assert [problem.partition(" cannot be read")[0] for problem in done.problems] == [
        f"{B.name}: The Delta table {lake.root}/{B.name}"
    ]
    assert len(upkeep_of(done).removed) == 1 + MANY


def test_where_nothing_can_be_written_every_table_says_so_and_keeps_its_files(lake):
    lake.write({FIRST: 2})
    for path in (lake.root / "_locks").iterdir():
        path.unlink()
    (lake.root / "_locks").rmdir()
    (lake.root / "_locks").write_text("")  # as on a disk that takes no new files
    before = contents(lake.root)
    done = maintain_later(lake, 31)
    assert [problem.partition(":")[0] for problem in done.problems] == [
        A.name,
        "_ledger",
    ]
    assert contents(lake.root) == before


def test_files_of_the_ledger_that_were_compacted_long_ago_go(lake):
    for value in range(2, 12):
        lake.write({FIRST: value})
    builds = lake.workspace.lake.ledger.builds()
    folder = lake.root / "_ledger"
    assert upkeep_of(maintain_later(lake, 6), "_ledger").removed == {}
    listed = set(DeltaTable(str(folder)).file_uris())
    done = upkeep_of(maintain_later(lake, 8), "_ledger")
    assert len(done.removed) >= 8
    assert {str(folder / path) for path in files_on_disk(lake, "_ledger")} == listed
    assert lake.workspace.lake.ledger.builds() == builds


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(lake):
    lake.write({FIRST: 2})
    for _ in range(ALWAYS_KEPT + 1):
        release_live_now(lake)
    before = contents(lake.root)
    planned = preview_maintenance(lake.workspace.lake, RELEASE_WINDOW, later(60))
    assert contents(lake.root) == before
    done = maintain_later(lake, 60)
    assert (
        [each.number for each in planned.retired] == [each.number for each in done.retired] == [1]
    )
    assert upkeep_of(planned).removed.keys() == upkeep_of(done).removed.keys()
    assert upkeep_of(planned).kept_files == {Need.NEWEST: MANY + 1}
    assert (upkeep_of(planned).days, upkeep_of(planned).removed_bytes) == (
        upkeep_of(done).days,
        upkeep_of(done).removed_bytes,
    )


def test_of_one_table_only_its_files_are_removed_and_no_release_is_retired(lake, golden):
    for value in range(2, 4):
        lake.write({FIRST: value})
        lake.write({FIRST: value}, table=B.name)
        release_live_now(lake)
    for _ in range(ALWAYS_KEPT):
        release_live_now(lake)
    done = maintain(lake.workspace.lake, RELEASE_WINDOW, later(60), "ada", B.name)
    assert ([table.name for table in done.tables], [*done.retired]) == ([B.name], [])
    assert values_of_release(lake, 1) == {FIRST: 2, SECOND: MANY}
    with pytest.raises(UsageError) as refused:
        preview_maintenance(lake.workspace.lake, RELEASE_WINDOW, later(60), "raw/x")
    golden(str(refused.value))


def test_the_window_is_no_longer_than_tables_keep_their_commits():
    (longest,) = [
        bound.le
        for bound in Settings.model_fields["rollback_days"].metadata
        if hasattr(bound, "le")
    ]
    assert {f"interval {timedelta(longest).days} days"} == {
        text for name, text in RETENTION.items() if "Duration" in name
    }
