"""Adopted tables that lie outside of the lake, and what is done there after undo. No Spark."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import duckdb
import pytest
from deltalake import DeltaTable

from backfill_assets.errors import (
    UsageError,
)
from backfill_assets.lake.adoption import refuse_other_place
from backfill_assets.lake.backup import back_up
from backfill_assets.lake.maintenance import MANY_FILES, maintain, preview_maintenance
from backfill_assets.lake.needed_files import Need
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.status import State
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.reconcile.broken import repair
from backfill_assets.verbs.backup import back_up_lake, restore_lake
from tests.worlds.foreign import (
    D0,
    D1,
    D2,
    A,
    Foreign,
    files_below,
    in_duckdb,
    not_written,
    of_another_lake,
    refused,
    rows_of,
)
from tests.worlds.small_lake import DAYS, SmallLake


def test_another_path_than_the_adopted_one_is_refused_at_the_first_write(elsewhere, golden):
    elsewhere.write()
    elsewhere.adopt()
    other = elsewhere.folder.parent / "another"
    moved = Foreign(elsewhere.root, other, replace(A, path=str(other)))
    not_written(moved, golden, "moved")
    not_written(replace(elsewhere, table=A), golden, "taken out")
    assert elsewhere.states() == dict.fromkeys(DAYS, State.ADOPTED)
    # The advice: the recorded path, or another name.
    elsewhere.write_as_declared()
    moved.table = replace(moved.table, name="raw/c")
    moved.write()
    moved.adopt()
    moved.write_as_declared()


def test_a_path_is_refused_for_a_table_with_builds_in_its_own_folder(elsewhere, golden):
    replace(elsewhere, table=A).write_as_declared()
    elsewhere.write()
    not_written(elsewhere, golden)
    # The advice: no path, or another name.
    replace(elsewhere, table=A).write_as_declared()
    elsewhere.table = replace(elsewhere.table, name="raw/c")
    elsewhere.adopt()
    elsewhere.write_as_declared()


def test_a_table_with_a_path_is_not_written_in_the_lake_before_it_is_adopted(elsewhere, golden):
    not_written(elsewhere, golden)
    with pytest.raises(UsageError):
        elsewhere.adopt()  # there is no table yet, and the place is recorded
    elsewhere.write_as_declared()
    assert DeltaTable(str(elsewhere.folder)).to_pyarrow_table().num_rows == 3
    assert elsewhere.states()[D0] == State.UP_TO_DATE


def test_nothing_touches_a_table_again_after_undo(foreign, tmp_path, golden):
    for mode in ("error", "overwrite", *["append"] * MANY_FILES):
        foreign.write(rows_of(*DAYS), mode=mode)
    foreign.adopt()
    only = replace(foreign.workspace, tables=(foreign.table,))
    assert isinstance(release_live(only, who="sensor"), Released)
    later = datetime.now(UTC) + timedelta(days=500)
    planned = {t.name: t for t in preview_maintenance(only.lake, 30, later).tables}[A.name]
    assert planned.removed
    assert [*planned.days] == DAYS
    released = in_duckdb(foreign.folder).shape[0]
    foreign.write(rows_of(D0), mode="append")
    assert foreign.states()[D0] == State.REWRITTEN
    foreign.adopt(undo=True)
    writing = foreign.folder / "_delta_log" / f"{99:020}.json"
    if foreign.table.path:
        writing.write_text('{"add":')  # by the other program
    before = files_below(foreign.folder)

    done = maintain(only.lake, 30, later, "ada")
    kept = {table.name: (table.kept_files, table.problem) for table in done.tables}[A.name]
    assert kept == ({Need.FOREIGN: (MANY_FILES + 2) * len(DAYS) + 1}, "")
    if foreign.table.path:
        assert repair(str(foreign.root), only.names) == ([], "")
        not_written(foreign, golden)
    assert files_below(foreign.folder) == before
    writing.unlink(missing_ok=True)
    before = files_below(foreign.folder)
    release_live(only, who="sensor")
    back_up(str(foreign.root), str(tmp_path / "copies"))
    only.lake.recover(only.names)
    assert foreign.states() == dict.fromkeys(DAYS, State.OCCUPIED)
    assert files_below(foreign.folder) == before

    release = Releases(str(foreign.root)).newest()
    assert release
    rows = ReleasedTable(str(foreign.root), release, A.name).dataset().to_table()
    assert rows.num_rows == released
    foreign.adopt()
    refuse_other_place(only.lake.ledger, A.name, foreign.table.path)
    assert foreign.states() == dict.fromkeys(DAYS, State.ADOPTED)


def test_days_of_another_program_keep_their_files_in_a_table_adopted_in_part(foreign):
    for mode in ("error", *["append"] * MANY_FILES):
        foreign.write(rows_of(*DAYS), mode=mode)
    foreign.adopt(partitions=f"{D0}..{D1}")
    foreign.adopt(undo=True, partitions=str(D1))
    done = maintain(foreign.workspace.lake, 30, datetime.now(UTC), "ada")
    compacted = {table.name: [*table.days] for table in done.tables}[A.name]
    assert compacted == [D0]
    version = DeltaTable(str(foreign.folder)).version()
    others = f"day > '{D0}'"
    before = in_duckdb(foreign.folder).filter(others).select("n", "day").order("ALL").fetchall()
    foreign.write(rows_of(D1, D2), mode="overwrite", predicate=f"day IN ('{D1}', '{D2}')")
    later = datetime.now(UTC) + timedelta(days=500)
    done = maintain(foreign.workspace.lake, 30, later, "ada")
    upkeep = {table.name: table for table in done.tables}[A.name]
    assert {path.split("/")[0] for path in upkeep.removed} == {f"day={D0}"}
    assert upkeep.kept_files[Need.FOREIGN] == 2 * (MANY_FILES + 1)
    earlier = DeltaTable(str(foreign.folder), version).to_pyarrow_dataset()
    kept = duckdb.from_arrow(earlier).filter(others).select("n", "day").order("ALL")
    assert kept.fetchall() == before


def built_here(foreign: Foreign) -> None:
    """The table is in the lake, and the folder is of another lake."""
    SmallLake(foreign.root).write({D0: 3})
    of_another_lake(foreign)


def adopted_elsewhere(foreign: Foreign) -> None:
    foreign.write()
    foreign.adopt()
    foreign.folder = foreign.folder.parent / "other"
    foreign.table = replace(A, path=str(foreign.folder))
    foreign.write()


def of_another_table(foreign: Foreign) -> None:
    other = replace(foreign, table=replace(foreign.table, name="raw/other"))
    with pytest.raises(UsageError):
        other.adopt()  # there is no table yet, and the place is recorded
    foreign.write()


def around_the_lake(foreign: Foreign) -> None:
    foreign.folder = foreign.root.parent
    foreign.table = replace(A, path=str(foreign.folder))
    foreign.write()


@pytest.mark.parametrize(
    "before", [built_here, adopted_elsewhere, of_another_table, around_the_lake]
)
def test_a_folder_that_would_be_that_of_two_tables_is_refused(before, elsewhere, golden):
    before(elsewhere)
    refused(elsewhere, golden)


def test_a_backup_keeps_the_place_and_names_what_it_lacks(elsewhere, tmp_path, monkeypatch, golden):
    elsewhere.write()
    elsewhere.adopt()
    files = files_below(elsewhere.folder)
    monkeypatch.setenv("BACKFILL_LAKE", str(elsewhere.root))
    made = back_up_lake(str(tmp_path / "copies"))
    monkeypatch.setenv("BACKFILL_LAKE", str(tmp_path / "restored"))
    back = restore_lake(str(tmp_path / "copies"), 0, who="ada")
    assert made.elsewhere == back.elsewhere == {A.name: str(elsewhere.folder)}
    golden([*map(str, made.lines())][1:], "backup")
    golden([*map(str, back.lines())][2:], "restore")
    restored = Foreign(tmp_path / "restored", elsewhere.folder, elsewhere.table)
    assert restored.states() == dict.fromkeys(DAYS, State.ADOPTED)
    done = maintain(elsewhere.workspace.lake, 30, datetime.now(UTC), "ada")
    assert {table.name: (table.removed, table.problem) for table in done.tables}[A.name] == ({}, "")
    assert files_below(elsewhere.folder) == files


def test_a_cut_off_commit_of_a_table_elsewhere_is_moved_into_the_lake(elsewhere):
    elsewhere.write()
    elsewhere.adopt()
    SmallLake(elsewhere.root).write({D0: 3})
    commit = elsewhere.folder / "_delta_log" / f"{2:020}.json"
    commit.write_text(commit.read_text()[:-40])
    moved, _ = repair(str(elsewhere.root), [A.name])
    assert [broken.file for broken in moved] == [commit]
    assert not commit.exists()
    assert list((elsewhere.root / "_damaged").rglob(commit.name))
