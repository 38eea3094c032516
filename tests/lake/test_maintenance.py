"""Maintenance: what a kept release, a shadow, the rollback window or a step needs stays, and the rest goes. No Spark."""

import os
import shutil
from datetime import date

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import Conflict, TableUnreadable, UsageError
from backfill_assets.lake.maintenance import look
from backfill_assets.lake.needed_files import Need
from backfill_assets.lake.release import SCHEMA, STABLE
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.retirement import ALWAYS_KEPT
from backfill_assets.lake.running_steps import RunningStep, mark_running
from backfill_assets.lake.shadow_base import Base
from backfill_assets.publish.decision import Kind
from backfill_assets.reconcile.put_back import put_back
from tests.lake.maintained import WINDOW, age, contents, later, of_table, on_disk, release, run, values_of
from tests.publish.site import DAYS, A, B, Site

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def site(tmp_path) -> Site:
    """Two days of one table, each rewritten twice; so four files that only earlier versions have."""
    site = Site(tmp_path)
    for values in ({FIRST: 1, SECOND: 2}, {FIRST: 3, SECOND: 4}, {FIRST: 5, SECOND: 6}):
        site.write(values)
    return site


def test_what_no_version_of_the_window_has_is_removed_and_the_newest_rows_stay(site):
    newest = {path for paths in site.files().values() for path in paths}
    done = of_table(run(site, 31))
    assert (len(done.removed), dict(done.kept), done.problem) == (4, {Need.NEWEST: 2}, "")
    assert (on_disk(site), site.values()) == (newest, {FIRST: 5, SECOND: 6})
    assert sorted(path.name for path in (site.root / A.name).iterdir() if path.is_dir()) == sorted(
        ["_delta_log", *{path.split("/")[0] for path in newest}]
    )  # the folders of single writes are gone with their files


@pytest.mark.parametrize("days", [pytest.param(0, id="today"), pytest.param(29, id="a day before the window has passed")])
def test_within_the_window_nothing_is_removed_and_a_plan_is_taken_back(site, days):
    plan = site.plan({A.name: [FIRST]})
    site.write({FIRST: 7}, plan=plan.id)
    before = on_disk(site)
    assert [len(table.removed) for table in run(site, days).tables] == [0] * 3
    assert on_disk(site) == before
    assert site.roll_back(plan) == {(A.name, FIRST): Kind.RESTORE}
    assert site.values() == {FIRST: 5, SECOND: 6}


def test_what_was_replaced_within_the_window_stays_however_long_ago_it_was_written(site):
    age(site, 60)
    plan = site.plan({A.name: [FIRST]})
    site.write({FIRST: 7}, plan=plan.id)
    done = of_table(run(site, 29))
    assert (len(done.removed), dict(done.kept)) == (4, {Need.NEWEST: 2, Need.WINDOW: 1})
    assert site.roll_back(plan) == {(A.name, FIRST): Kind.RESTORE}
    assert site.values() == {FIRST: 5, SECOND: 6}


def test_a_kept_release_of_before_the_window_keeps_its_files_beside_those_of_the_window(site):
    old = release(site, "candidate")
    site.write({FIRST: 7})
    site.write({FIRST: 8})
    age(site, 60)
    site.write({FIRST: 9})
    done = of_table(run(site))
    assert (len(done.removed), dict(done.kept)) == (5, {Need.NEWEST: 2, Need.WINDOW: 1, Need.RELEASE: 1})
    assert values_of(site, old) == {FIRST: 5, SECOND: 6}


def test_a_release_of_a_channel_is_kept_however_old_and_an_old_one_of_none_is_retired(site):
    old = release(site)
    site.write({FIRST: 7})
    held = release(site, "candidate")
    for value in range(8, 8 + ALWAYS_KEPT):
        site.write({FIRST: value})
        release(site)
    done = run(site, 60)
    assert [each.number for each in done.retired] == [old]
    assert values_of(site, held) == {FIRST: 7, SECOND: 6}
    with pytest.raises(UsageError, match=rf"Release {old} was retired on 20.*its files may be gone. .* `backfill releases`"):
        values_of(site, old)
    releases = Releases(str(site.root))
    newest = releases.newest()
    assert newest
    with pytest.raises(UsageError, match="was retired"):
        releases.point(newest, STABLE, old, who="ben", reason="back")
    assert (newest.kind, newest.channels["candidate"], releases.get(old).number) == ("retired", held, old)
    assert release(site) == newest.number + 1  # and what is retired stays so
    assert list(releases.all()[-1].retired) == [old]


def test_a_release_ages_from_when_readers_got_another_one(site):
    for _ in range(ALWAYS_KEPT):
        site.write({FIRST: 7})
        release(site)
    assert run(site, 60).retired == []
    release(site)
    assert [each.number for each in look(str(site.root), WINDOW, later(60)).retired] == [1]
    assert look(str(site.root), WINDOW, later(29)).retired == []


def test_releases_of_a_lake_from_before_there_were_retired_ones_are_read_and_retired(tmp_path):
    releases = Releases(str(tmp_path))
    old = SCHEMA.remove(SCHEMA.get_field_index("retired"))
    DeltaTable.create(releases.path, old, configuration={"delta.dataSkippingStatsColumns": "number"})
    row = dict.fromkeys(old.names, "{}") | {"number": 1, "at": later(-90)}
    write_deltalake(releases.path, pa.Table.from_pylist([row], schema=old), mode="append")
    first = releases.get(1)
    second = releases.add(first, {}, kind="live", who="w", reason="r")
    third = releases.retire(second, [1], date(2026, 1, 2), who="w", reason="r")
    assert (first.retired, third.retired, releases.all()) == ({}, {1: date(2026, 1, 2)}, [first, second, third])
    with pytest.raises(Conflict):
        releases.retire(second, [2], date(2026, 1, 2), who="w", reason="r")


def test_a_reader_that_opened_a_kept_release_reads_on(site):
    number = release(site)
    site.write({FIRST: 7})
    opened = ReleasedTable(str(site.root), Releases(str(site.root)).get(number), A.name).dataset()
    batches = opened.to_batches(batch_size=1)
    read = next(batches).num_rows
    assert len(of_table(run(site, 31)).removed) == 4
    assert read + sum(batch.num_rows for batch in batches) == 5 + 6


def test_what_an_open_shadow_reads_stays_until_it_is_discarded(site):
    shadow = site.root / "_shadow" / "abc"
    shadow.mkdir(parents=True)
    (site.root / "_shadow" / "unfinished").mkdir()
    (shadow / "base.json").write_text(Base({A.name: 1, B.name: -1}, later(0)).to_json())
    assert dict(of_table(run(site, 31)).kept) == {Need.NEWEST: 2, Need.SHADOW: 2}
    assert len(DeltaTable(str(site.root / A.name), version=1).to_pyarrow_table()) == 3 + 4
    shutil.rmtree(shadow)
    assert len(of_table(run(site, 31)).removed) == 2


def test_of_a_shadow_whose_record_cannot_be_read_nothing_is_known_so_nothing_is_removed(site):
    (site.root / "_shadow" / "abc").mkdir(parents=True)
    (site.root / "_shadow" / "abc" / "base.json").write_text("{")
    before = contents(site.root)
    with pytest.raises(TableUnreadable, match=r"_shadow/abc/base.json cannot be read.* Nothing was changed. Restore that file"):
        run(site, 31)
    assert contents(site.root) == before


@pytest.mark.parametrize(
    ("age", "running", "stays"),
    [
        pytest.param(6, False, True, id="young"),
        pytest.param(8, False, False, id="left behind"),
        pytest.param(8, True, True, id="of a step at work"),
    ],
)
def test_files_that_were_never_committed_go_once_no_step_can_commit_them(site, age, running, stays):
    beside = site.root / A.name / "0f" / f"day={FIRST}"
    beside.mkdir(parents=True)
    (beside / "part-0.parquet").write_bytes(b"rows")
    os.utime(beside / "part-0.parquet", (later(-age).timestamp(),) * 2)
    with mark_running(str(site.root), RunningStep(A.name, [FIRST] if running else [], "r")):
        run(site)
    assert (beside / "part-0.parquet").exists() == stays


@pytest.mark.parametrize("how", ["update", "delete", "write"])
def test_a_day_that_somebody_else_wrote_to_can_be_put_back_however_long_ago_that_was(site, how):
    """Of a day whose source is gone, its accepted files are the only rows there are."""
    accepted, before = site.files(), site.values()
    table, other = DeltaTable(str(site.root / A.name)), pa.table({"n": [9], "day": [SECOND]})
    match how:
        case "update":
            table.update(updates={"n": "9"}, predicate=f"day = '{SECOND}'")
        case "delete":
            table.delete(f"day = '{SECOND}'")
        case _:
            write_deltalake(
                table, other.cast(pa.schema(table.schema().to_arrow())), mode="overwrite", predicate=f"day = '{SECOND}'"
            )
    age(site, 200)
    done = of_table(run(site))
    assert (done.problem, done.kept[Need.PUT_BACK], accepted[SECOND] <= on_disk(site)) == ("", len(accepted[SECOND]), True)
    assert list(put_back(A, site.workspace.lake, "ada").happened) == [SECOND]
    assert (site.values(), site.files()) == (before, accepted)


def test_once_a_day_that_somebody_else_wrote_to_is_built_again_its_earlier_files_go(site):
    earlier = site.files()[SECOND]
    DeltaTable(str(site.root / A.name)).delete(f"day = '{SECOND}'")
    site.write({SECOND: 5})
    age(site, 200)
    assert (of_table(run(site)).problem, earlier & on_disk(site)) == ("", set())


def test_while_the_log_does_not_show_the_accepted_files_of_such_a_day_nothing_is_removed_and_said(site):
    folder = site.root / A.name
    site.write({SECOND: 5})
    DeltaTable(str(folder)).delete(f"day = '{SECOND}'")
    age(site, 200)
    before, (commit, *_) = on_disk(site), sorted((folder / "_delta_log").glob("*.json"))
    DeltaTable(str(folder)).create_checkpoint()
    commit.rename(folder / "away.json")
    done = of_table(run(site))
    assert done.problem.startswith(f"Somebody else wrote to {SECOND}, and the log does not show which files were accepted. ")
    assert on_disk(site) == before
    (folder / "away.json").rename(commit)
    assert of_table(run(site)).problem == ""
