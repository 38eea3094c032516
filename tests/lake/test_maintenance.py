"""Maintenance: what a kept release, a shadow, the rollback window or a step needs stays, and the
rest goes. No Spark.
"""

import os
import re
import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake.channels import CANDIDATE, STABLE, ChannelHistory
from backfill_assets.lake.maintenance import ALWAYS_KEPT, preview_maintenance
from backfill_assets.lake.needed_files import Need
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.lake.shadow import Base
from backfill_assets.publish.pointers import pin
from backfill_assets.publish.rollback import Kind
from backfill_assets.publish.shadows import discard
from backfill_assets.reconcile.put_back import put_back
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASE_WINDOW,
    A,
    B,
    SmallLake,
    age,
    contents,
    files_on_disk,
    later,
    maintain_later,
    preview,
    rebuilt_in_shadow,
    release_live_now,
    released,
    upkeep_of,
    values_of_release,
)

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    """Two days of one table, rewritten twice: four files are only in earlier versions."""
    lake = SmallLake(tmp_path)
    for values in ({FIRST: 1, SECOND: 2}, {FIRST: 3, SECOND: 4}, {FIRST: 5, SECOND: 6}):
        lake.write(values)
    return lake


def test_what_no_version_of_the_window_has_is_removed_and_the_newest_rows_stay(lake):
    newest = {path for paths in lake.files().values() for path in paths}
    done = upkeep_of(maintain_later(lake, 31))
    assert (len(done.removed), dict(done.kept_files), done.problem) == (4, {Need.NEWEST: 2}, "")
    assert (files_on_disk(lake), lake.values()) == (newest, {FIRST: 5, SECOND: 6})
    # The folders of single writes are gone with their files.
    assert sorted(path.name for path in (lake.root / A.name).iterdir() if path.is_dir()) == sorted(
        ["_delta_log", *{path.split("/")[0] for path in newest}]
    )


@pytest.mark.parametrize(
    "days", [pytest.param(0, id="today"), pytest.param(29, id="a day before the window has passed")]
)
def test_within_the_window_nothing_is_removed_and_a_plan_is_taken_back(lake, days):
    plan = lake.plan({A.name: [FIRST]})
    lake.write({FIRST: 7}, plan=plan.id)
    before = files_on_disk(lake)
    assert [len(table.removed) for table in maintain_later(lake, days).tables] == [0] * 2
    assert files_on_disk(lake) == before
    assert lake.roll_back(plan) == {(A.name, FIRST): Kind.RESTORE}
    assert lake.values() == {FIRST: 5, SECOND: 6}


def test_what_was_replaced_within_the_window_stays_however_long_ago_it_was_written(lake):
    age(lake, 60)
    plan = lake.plan({A.name: [FIRST]})
    lake.write({FIRST: 7}, plan=plan.id)
    done = upkeep_of(maintain_later(lake, 29))
    assert (len(done.removed), dict(done.kept_files)) == (4, {Need.NEWEST: 2, Need.WINDOW: 1})
    assert lake.roll_back(plan) == {(A.name, FIRST): Kind.RESTORE}
    assert lake.values() == {FIRST: 5, SECOND: 6}


def test_a_release_kept_from_before_the_window_keeps_its_files(lake):
    old = release_live_now(lake)
    lake.write({FIRST: 7})
    lake.write({FIRST: 8})
    age(lake, 60)
    lake.write({FIRST: 9})
    done = upkeep_of(maintain_later(lake))
    assert (len(done.removed), dict(done.kept_files)) == (
        5,
        {Need.NEWEST: 2, Need.WINDOW: 1, Need.RELEASE: 1},
    )
    assert values_of_release(lake, old) == {FIRST: 5, SECOND: 6}


def test_old_releases_are_retired_unless_a_channel_points_at_them(lake, golden):
    old = release_live_now(lake)
    lake.write({FIRST: 7})
    held = release_live_now(lake)
    pin(str(lake.root), held, CANDIDATE, who="ben", reason="to compare")
    for value in range(8, 8 + ALWAYS_KEPT):
        lake.write({FIRST: value})
        release_live_now(lake)
    done = maintain_later(lake, 60)
    assert [each.number for each in done.retired] == [old]
    assert values_of_release(lake, held) == {FIRST: 7, SECOND: 6}
    with pytest.raises(UsageError) as refused:
        values_of_release(lake, old)
    golden(re.sub(r"on 20[\d-]+", "on <DAY>", str(refused.value)))
    releases = Releases(str(lake.root))
    newest = releases.newest()
    assert newest
    with pytest.raises(UsageError, match="was retired"):
        pin(str(lake.root), old, STABLE, who="ben", reason="back")
    channels = ChannelHistory(str(lake.root)).now()
    assert (channels.kind, channels.pinned("candidate"), releases.get(old).number) == (
        "retired",
        held,
        old,
    )
    assert release_live_now(lake) == newest.number + 1  # and what is retired stays so
    assert list(ChannelHistory(str(lake.root)).now().retired) == [old]


def test_the_release_of_a_preview_stays_until_the_preview_ends(lake):
    base = release_live_now(lake)
    plan = rebuilt_in_shadow(lake, {SECOND: 9}, (A.name,))
    preview(lake, plan)
    for value in range(8, 9 + ALWAYS_KEPT):
        lake.write({FIRST: value})
        release_live_now(lake)
    assert base not in [each.number for each in maintain_later(lake, 60).retired]
    assert released(lake, channel="candidate") == {FIRST: 5, SECOND: 9}
    discard(plan, lake.workspace, who="ada", now=lambda: NOW)
    assert base in [each.number for each in maintain_later(lake, 60).retired]


def test_a_release_ages_from_when_readers_got_another_one(lake):
    for _ in range(ALWAYS_KEPT):
        lake.write({FIRST: 7})
        release_live_now(lake)
    assert maintain_later(lake, 60).retired == []
    release_live_now(lake)
    assert [
        each.number
        for each in preview_maintenance(lake.workspace.lake, RELEASE_WINDOW, later(60)).retired
    ] == [1]
    assert preview_maintenance(lake.workspace.lake, RELEASE_WINDOW, later(29)).retired == []


def test_a_reader_that_opened_a_kept_release_reads_on(lake):
    number = release_live_now(lake)
    lake.write({FIRST: 7})
    opened = ReleasedTable(str(lake.root), Releases(str(lake.root)).get(number), A.name).dataset()
    batches = opened.to_batches(batch_size=1)
    read = next(batches).num_rows
    assert len(upkeep_of(maintain_later(lake, 31)).removed) == 4
    assert read + sum(batch.num_rows for batch in batches) == 5 + 6


def test_what_an_open_shadow_reads_stays_until_it_is_discarded(lake):
    shadow = lake.root / "_shadow" / "abc"
    shadow.mkdir(parents=True)
    (lake.root / "_shadow" / "unfinished").mkdir()
    (shadow / "base.json").write_text(Base({A.name: 1, B.name: -1}, later(0)).to_json())
    assert dict(upkeep_of(maintain_later(lake, 31)).kept_files) == {Need.NEWEST: 2, Need.SHADOW: 2}
    assert len(DeltaTable(str(lake.root / A.name), version=1).to_pyarrow_table()) == 3 + 4
    shutil.rmtree(shadow)
    assert len(upkeep_of(maintain_later(lake, 31)).removed) == 2


def test_nothing_is_removed_while_the_record_of_a_shadow_cannot_be_read(lake):
    (lake.root / "_shadow" / "abc").mkdir(parents=True)
    (lake.root / "_shadow" / "abc" / "base.json").write_text("{")
    before = contents(lake.root)
    with pytest.raises(
        TableUnreadable,
        match="_shadow/abc/base",
    ):
        maintain_later(lake, 31)
    assert contents(lake.root) == before


@pytest.mark.parametrize(
    ("age", "running", "stays"),
    [
        pytest.param(6, False, True, id="young"),
        pytest.param(8, False, False, id="left behind"),
        pytest.param(8, True, True, id="of a step at work"),
    ],
)
def test_files_that_were_never_committed_go_once_no_step_can_commit_them(lake, age, running, stays):
    beside = lake.root / A.name / "0f" / f"day={FIRST}"
    beside.mkdir(parents=True)
    (beside / "part-0.parquet").write_bytes(b"rows")
    os.utime(beside / "part-0.parquet", (later(-age).timestamp(),) * 2)
    with mark_running(str(lake.root), RunningStep(A.name, [FIRST] if running else [], "r")):
        maintain_later(lake)
    assert (beside / "part-0.parquet").exists() == stays


@pytest.mark.parametrize("how", ["update", "delete", "write"])
def test_a_day_that_somebody_else_wrote_to_can_be_put_back_however_long_ago_that_was(lake, how):
    """Of a day whose source is gone, its accepted files are the only rows there are."""
    accepted = lake.files()
    before = lake.values()
    table = DeltaTable(str(lake.root / A.name))
    other = pa.table({"n": [9], "day": [SECOND]})
    match how:
        case "update":
            table.update(updates={"n": "9"}, predicate=f"day = '{SECOND}'")
        case "delete":
            table.delete(f"day = '{SECOND}'")
        case _:
            write_deltalake(
                table,
                other.cast(pa.schema(table.schema().to_arrow())),
                mode="overwrite",
                predicate=f"day = '{SECOND}'",
            )
    age(lake, 200)
    done = upkeep_of(maintain_later(lake))
    assert (
        done.problem,
        done.kept_files[Need.PUT_BACK],
        accepted[SECOND] <= files_on_disk(lake),
    ) == (
        "",
        len(accepted[SECOND]),
        True,
    )
    assert list(put_back(A, lake.workspace.lake, "ada").damages) == [SECOND]
    assert (lake.values(), lake.files()) == (before, accepted)


def test_once_a_day_that_somebody_else_wrote_to_is_built_again_its_earlier_files_go(lake):
    earlier = lake.files()[SECOND]
    DeltaTable(str(lake.root / A.name)).delete(f"day = '{SECOND}'")
    lake.write({SECOND: 5})
    age(lake, 200)
    assert (upkeep_of(maintain_later(lake)).problem, earlier & files_on_disk(lake)) == ("", set())


def test_nothing_is_removed_while_the_log_lacks_the_accepted_files_of_a_day(lake, golden):
    folder = lake.root / A.name
    lake.write({SECOND: 5})
    DeltaTable(str(folder)).delete(f"day = '{SECOND}'")
    age(lake, 200)
    before, (commit, *_) = files_on_disk(lake), sorted((folder / "_delta_log").glob("*.json"))
    DeltaTable(str(folder)).create_checkpoint()
    commit.rename(folder / "away.json")
    done = upkeep_of(maintain_later(lake))
    golden(done.problem.partition(". The Delta table")[0])
    assert files_on_disk(lake) == before
    (folder / "away.json").rename(commit)
    assert upkeep_of(maintain_later(lake)).problem == ""
