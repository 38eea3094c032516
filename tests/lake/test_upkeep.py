"""The upkeep of tables: compacted days stand as they were built, and what goes wrong harms nothing. No Spark."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake import upkeep
from backfill_assets.lake.file_commit import RETENTION
from backfill_assets.lake.latest import latest
from backfill_assets.lake.maintenance import look, maintain
from backfill_assets.lake.needed_files import Need
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.retirement import ALWAYS_KEPT
from backfill_assets.lake.rewritten import rewritten_partitions
from backfill_assets.lake.table_state import read_state
from backfill_assets.lake.upkeep import MANY_FILES
from backfill_assets.publish.decision import Kind
from backfill_assets.settings import Settings
from tests.lake.maintained import (
    WINDOW,
    contents,
    later,
    of_table,
    on_disk,
    release,
    run,
    values_of,
    write_in_many_files,
)
from tests.publish.site import DAYS, A, B, Site

FIRST, SECOND, THIRD, FOURTH = DAYS
MANY = MANY_FILES + 1


@pytest.fixture
def site(tmp_path) -> Site:
    """A day of one file and a day of many."""
    site = Site(tmp_path)
    site.write({FIRST: 1})
    write_in_many_files(site, SECOND)
    return site


def rewritten(site: Site) -> dict:
    accepted = latest(site.workspace.lake.ledger, {A.name: None}).accepted
    assert {day for _, day in accepted} == set(site.values())
    return rewritten_partitions(str(site.root), accepted, {A.name: None})


def test_a_day_of_many_small_files_becomes_one_file_and_stands_as_it_was_built(site):
    before = site.files()
    assert dict(of_table(run(site)).days) == {SECOND: MANY}
    after, state = site.files(), read_state(str(site.root / A.name))
    assert (after[FIRST], len(after[SECOND]), len(before[SECOND])) == (before[FIRST], 1, MANY)
    assert site.values() == {FIRST: 1, SECOND: MANY}
    assert (rewritten(site), state.foreign_commits, state.rows) == ({}, [], {FIRST: 1, SECOND: MANY})
    assert before[SECOND] <= on_disk(site)  # for the window
    assert (dict(of_table(run(site)).days), site.files()) == ({}, after)


def test_a_day_of_not_so_many_files_is_left_alone(tmp_path):
    site = Site(tmp_path)
    write_in_many_files(site, FIRST, MANY_FILES)
    before = site.files()
    run(site)
    assert site.files() == before


@pytest.mark.parametrize("days", [pytest.param(0, id="today"), pytest.param(31, id="once its first files are gone")])
def test_a_plan_of_a_compacted_day_is_taken_back(site, days):
    run(site)
    compacted = site.files()[SECOND]
    done = of_table(run(site, days))
    assert len(done.removed) == (MANY if days else 0)
    plan = site.plan({A.name: [SECOND]})
    site.write({SECOND: 7}, plan=plan.id)
    assert site.roll_back(plan) == {(A.name, SECOND): Kind.RESTORE}
    assert (site.values(), site.files()[SECOND]) == ({FIRST: 1, SECOND: MANY}, compacted)
    assert rewritten(site) == {}


def test_a_plan_that_rebuilt_a_day_before_it_was_compacted_is_taken_back_after_it(site):
    plan = site.plan({A.name: [FIRST]})
    site.write({FIRST: 7}, plan=plan.id)
    run(site)
    assert site.roll_back(plan) == {(A.name, FIRST): Kind.RESTORE}
    assert site.values() == {FIRST: 1, SECOND: MANY}


def test_a_day_that_somebody_else_writes_meanwhile_is_not_compacted_and_said(site, monkeypatch):
    def opened_and_overtaken(folder):
        table = upkeep.open_table(folder)
        DeltaTable(folder).delete(f"day = '{SECOND}'")
        return table

    monkeypatch.setattr(upkeep, "table_to_write", opened_and_overtaken)
    done = of_table(run(site))
    assert (done.days, done.problem[:28]) == ({}, "Its days were not compacted:")
    assert site.values() == {FIRST: 1}


def test_two_at_once_do_it_once(site):
    for value in range(2, 4):
        site.write({FIRST: value})
    for _ in range(ALWAYS_KEPT + 1):
        release(site)
    compacted = of_table(run(site)).days
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: run(site, 60), range(2)))
    assert [done.problems for done in both] == [[], []]
    assert sorted(len(done.retired) for done in both) == [0, 1]
    assert sorted(len(of_table(done).removed) for done in both) == [0, 2]  # the releases need what was compacted
    assert len(compacted) == 1
    assert [commit["operation"] for commit in DeltaTable(str(site.root / A.name)).history(1)] == ["OPTIMIZE"]
    assert site.values() == {FIRST: 3, SECOND: MANY}


def test_what_a_killed_maintenance_left_is_done_by_the_next(site):
    for value in range(2, 5):
        site.write({FIRST: value})
        release(site)
    for _ in range(ALWAYS_KEPT):
        release(site)
    run(site)
    root, releases = str(site.root), Releases(str(site.root))
    planned = look(root, WINDOW, later(60))
    numbers = [each.number for each in planned.retired]
    newest = releases.newest()
    assert newest
    releases.retire(newest, numbers, later(60).date(), who="ada", reason="killed after this")
    unneeded = sorted(of_table(planned).removed)
    (site.root / A.name / unneeded[0]).unlink()
    half_compacted = site.root / A.name / f"day={SECOND}" / "part-0.zstd.parquet"
    half_compacted.write_bytes(b"")
    os.utime(half_compacted, (later(50).timestamp(),) * 2)
    done = run(site, 60)
    assert (done.retired, done.problems) == ([], [])
    assert set(of_table(done).removed) == {*unneeded[1:], str(half_compacted.relative_to(site.root / A.name))}
    assert site.values() == {FIRST: 4, SECOND: MANY}


def test_of_a_release_that_somebody_elses_vacuum_broke_the_error_is_clear_and_others_are_read(site):
    first = release(site)
    site.write({FIRST: 2})
    second = release(site)
    DeltaTable(str(site.root / A.name)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(TableUnreadable, match=r"release 1 has as raw/a.* were vacuumed\. Nothing was changed, and other"):
        values_of(site, first)
    assert run(site, 1).problems == []
    assert values_of(site, second) == site.values() == {FIRST: 2, SECOND: MANY}


def test_a_release_that_names_a_version_without_a_log_keeps_all_files_of_that_table(site):
    release(site, "candidate")
    site.write({FIRST: 2})
    site.write({FIRST: 1}, table=B.name)
    site.write({FIRST: 2}, table=B.name)
    release(site)
    log = site.root / A.name / "_delta_log"
    DeltaTable(str(site.root / A.name)).create_checkpoint()
    for version in range(2):
        (log / f"{version:020}.json").unlink()
    before, done = on_disk(site), run(site, 60)
    (problem,) = done.problems
    assert problem.startswith(f"{A.name}: The log of the Delta table {site.root}/{A.name} does not have version 1")
    assert (on_disk(site), len(of_table(done, B.name).removed)) == (before, 1)


def test_a_table_that_cannot_be_read_is_named_and_the_others_are_looked_after(site):
    run(site)
    site.write({FIRST: 1}, table=B.name)
    site.write({FIRST: 2})
    (site.root / B.name / "_delta_log" / f"{0:020}.json").write_text("{")
    done = run(site, 31)
    assert [problem.partition(" cannot be read")[0] for problem in done.problems] == [
        f"{B.name}: The Delta table {site.root}/{B.name}"
    ]
    assert len(of_table(done).removed) == 1 + MANY


def test_where_nothing_can_be_written_every_table_says_so_and_keeps_its_files(site):
    site.write({FIRST: 2})
    for path in (site.root / "_locks").iterdir():
        path.unlink()
    (site.root / "_locks").rmdir()
    (site.root / "_locks").write_text("")  # as on a disk that takes no new files
    before, done = contents(site.root), run(site, 31)
    assert [problem.partition(":")[0] for problem in done.problems] == [A.name, "_ledger", "_releases"]
    assert contents(site.root) == before


def test_files_of_the_ledger_that_were_compacted_long_ago_go(site):
    for value in range(2, 12):
        site.write({FIRST: value})
    builds, folder = site.workspace.lake.ledger.builds(), site.root / "_ledger"
    assert of_table(run(site, 6), "_ledger").removed == {}
    listed = set(DeltaTable(str(folder)).file_uris())
    done = of_table(run(site, 8), "_ledger")
    assert len(done.removed) >= 8
    assert {str(folder / path) for path in on_disk(site, "_ledger")} == listed
    assert site.workspace.lake.ledger.builds() == builds


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(site):
    site.write({FIRST: 2})
    for _ in range(ALWAYS_KEPT + 1):
        release(site)
    before, planned = contents(site.root), look(str(site.root), WINDOW, later(60))
    assert contents(site.root) == before
    done = run(site, 60)
    assert [each.number for each in planned.retired] == [each.number for each in done.retired] == [1]
    assert of_table(planned).removed.keys() == of_table(done).removed.keys()
    assert of_table(planned).kept == {Need.NEWEST: MANY + 1}
    assert (of_table(planned).days, of_table(planned).removed_bytes) == (of_table(done).days, of_table(done).removed_bytes)


def test_of_one_table_only_its_files_are_removed_and_no_release_is_retired(site):
    for value in range(2, 4):
        site.write({FIRST: value})
        site.write({FIRST: value}, table=B.name)
        release(site)
    for _ in range(ALWAYS_KEPT):
        release(site)
    done = maintain(str(site.root), WINDOW, later(60), "ada", B.name)
    assert ([table.name for table in done.tables], done.retired) == ([B.name], [])
    assert values_of(site, 1) == {FIRST: 2, SECOND: MANY}
    with pytest.raises(
        UsageError, match=f"There is no table raw/x in this lake. Nothing was done. Its tables are {A.name}, {B.name}"
    ):
        look(str(site.root), WINDOW, later(60), "raw/x")


def test_the_window_is_no_longer_than_tables_keep_their_commits():
    (longest,) = [bound.le for bound in Settings.model_fields["rollback_days"].metadata if hasattr(bound, "le")]
    assert {f"interval {timedelta(longest).days} days"} == {text for name, text in RETENTION.items() if "Duration" in name}
