"""What a Delta table says of itself, without Spark: tables are written with the deltalake library
as a step would.
"""

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.lake.damage import Damage, DamageKind, Depth, ForeignCommits
from backfill_assets.lake.integrity import TableState, damaged, damaged_files, read_state
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.listed_files import data_files, day_files
from tests.worlds.deliveries import day, days
from tests.worlds.recorded import TABLE, build, write_days


@pytest.fixture
def root(tmp_path) -> Path:
    """Three days of two, three and no rows in one commit; the second again, with four rows, in
    another.
    """
    write_days(tmp_path, build(0, rows=2), build(1, rows=3), build(2, rows=0))
    write_days(tmp_path, build(1, 1, rows=4))
    return tmp_path


def state_of(root: Path) -> TableState:
    return read_state(str(root / TABLE))


def recorded(number: int, version: int, minutes: int = 0, rows: int = 2) -> Build:
    return build(number, minutes, delta_version=version, rows=rows)


def test_a_table_that_is_not_there_holds_nothing(tmp_path):
    assert state_of(tmp_path) == TableState()


def test_rows_are_counted_by_day_and_builds_read_from_commits(root):
    state = state_of(root)
    assert (state.version, state.oldest, state.rows, state.foreign_commits) == (
        1,
        0,
        {day(0): 2, day(1): 4},
        [],
    )
    assert [(b.day, b.delta_version) for b in state.builds] == [
        (day(0), 0),
        (day(1), 0),
        (day(2), 0),
        (day(1), 1),
    ]
    every = [recorded(0, 0), recorded(1, 1, minutes=1, rows=4), recorded(2, 0, rows=0)]
    assert [state.damage_of(b) for b in every] == [None, None, None]


def test_commits_of_others_are_named_with_the_days_they_changed_and_no_others(root, golden):
    DeltaTable(root / TABLE).delete(f"outage_day = '{day(0)}'")
    DeltaTable(root / TABLE).update({"n": "7"}, predicate=f"outage_day = '{day(1)}'")
    (commits,) = state_of(root).foreign_commits
    assert commits == ForeignCommits(2, 3, ["DELETE", "UPDATE"], frozenset(days(0, 1)))
    golden(str(commits))


def test_a_day_that_somebody_changed_is_not_held_until_it_is_built_again(root, golden):
    DeltaTable(root / TABLE).update({"n": "7"}, predicate=f"outage_day = '{day(1)}'")
    before = recorded(1, 1, minutes=1, rows=4)
    other = recorded(0, 0)
    golden(str(state_of(root).damage_of(before)))
    assert state_of(root).damage_of(other) is None
    write_days(root, build(1, 2, rows=4))
    assert state_of(root).damage_of(recorded(1, 3, minutes=2, rows=4)) is None
    assert state_of(root).damage_of(before) == Damage(DamageKind.NOT_IN_LEDGER, 3)


def test_of_several_days_those_are_named_that_others_wrote_to(root, golden):
    path = str(root / TABLE)
    builds = [recorded(0, 0), recorded(1, 1, minutes=1, rows=4), recorded(2, 0, rows=0)]
    assert damaged(path, builds) == {}
    DeltaTable(path).delete(f"outage_day = '{day(0)}'")
    ((rewritten, damage),) = damaged(path, builds).items()
    assert rewritten == day(0)
    golden(str(damage))
    assert damaged(path, builds, version=1) == {}
    assert damaged(str(root / "raw/none"), builds) == dict.fromkeys(
        days(0, 1), Damage(DamageKind.TABLE_GONE)
    )


def test_a_table_restored_to_an_earlier_copy_lacks_the_commits_that_came_after(root):
    path = root / TABLE
    builds = [recorded(0, 0), recorded(1, 1, minutes=1, rows=4)]
    (path / "_delta_log" / f"{1:020}.json").unlink()
    assert damaged(str(path), builds) == {day(1): Damage(DamageKind.COMMIT_GONE, 1)}
    write_days(root, build(2, 5, rows=1))
    assert damaged(str(path), builds) == {day(1): Damage(DamageKind.COMMIT_GONE, 1)}


@pytest.mark.parametrize("later", [0, 1], ids=["the newest", "an earlier one"])
def test_a_commit_that_a_writer_without_conditions_has_overwritten_is_named(root, later):
    path = root / TABLE
    accepted = [recorded(0, 0), recorded(1, 1, minutes=1, rows=4)]
    accepted = [
        replace(each, data_files=data_files(DeltaTable(path), [each.day])[each.day])
        for each in accepted
    ]
    assert damaged(str(path), accepted) == {}
    other = root / "of-another-writer"
    copytree(path, other / TABLE)
    (other / TABLE / "_delta_log" / f"{1:020}.json").unlink()
    for number in range(1 + later):
        write_days(other, build(3 + number), ours=False)
    copytree(other / TABLE, path, dirs_exist_ok=True)
    (commits,) = state_of(root).foreign_commits
    assert damaged(str(path), accepted) == {day(1): Damage(DamageKind.OVERWRITTEN, 1, commits)}
    assert (commits.first, commits.last) == (1, 1 + later)


def test_the_log_is_read_only_for_days_whose_files_are_not_those_of_their_build(root):
    path = root / TABLE
    files = data_files(DeltaTable(path), days(0, 1))
    builds = [
        replace(recorded(0, 0), data_files=files[day(0)]),
        replace(recorded(1, 1, 1, rows=4), data_files=files[day(1)]),
    ]
    (path / "_delta_log" / f"{1:020}.json").write_text(
        (path / "_delta_log" / f"{1:020}.json").read_text()
    )
    assert damaged(str(path), builds) == {}
    DeltaTable(path).optimize.compact()
    assert damaged(str(path), builds) == {}


def test_upkeep_of_a_table_changes_no_day(root):
    write_days(root, build(0, 5, rows=2))
    DeltaTable(root / TABLE).optimize.compact()
    DeltaTable(root / TABLE).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    )
    assert state_of(root).foreign_commits == []


def test_rows_that_somebody_added_are_counted(root):
    write_days(root, build(5, rows=6), ours=False)
    state = state_of(root)
    assert (state.rows[day(5)], state.foreign_commits[0].days) == (6, frozenset(days(5)))


def test_commits_that_the_table_has_forgotten_are_neither_missed_nor_judged(root):
    for minutes in range(2, 6):
        write_days(root, build(0, minutes, rows=2))
    DeltaTable(root / TABLE).create_checkpoint()
    for version in range(3):
        (root / TABLE / "_delta_log" / f"{version:020}.json").unlink()
    state = state_of(root)
    assert (state.oldest, state.rows) == (3, {day(0): 2, day(1): 4})
    assert state.damage_of(recorded(1, 1, minutes=1, rows=4)) is None


def test_no_day_is_named_for_a_foreign_commit_whose_predecessor_is_gone(root):
    DeltaTable(root / TABLE).update({"n": "7"}, predicate=f"outage_day = '{day(1)}'")
    DeltaTable(root / TABLE).create_checkpoint()
    for version in range(2):
        (root / TABLE / "_delta_log" / f"{version:020}.json").unlink()
    (commits,) = state_of(root).foreign_commits
    assert (commits.first, commits.days) == (2, frozenset())


def test_a_table_without_days_holds_none(tmp_path):
    write_deltalake(str(tmp_path / TABLE), pa.table({"n": [1]}))
    assert state_of(tmp_path).rows == {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of three days in a folder whose name needs escaping."""
    root = tmp_path / "a läke #1+"
    write_days(root, build(1, rows=2), build(2, rows=2), build(3, rows=2))
    return root / TABLE


def file_of(folder: Path, number: int) -> Path:
    (name,) = [name for at, name, _ in day_files(DeltaTable(folder)) if at == day(number)]
    return folder / name


def test_files_as_they_were_written_are_not_lost(folder):
    assert (
        damaged_files(str(folder), days(1, 2, 3, 4))
        == damaged_files(str(folder), days(1, 2, 3), depth=Depth.BYTES)
        == {}
    )


def test_a_file_that_is_gone_is_named(folder, golden):
    file = file_of(folder, 2)
    file.unlink()
    ((at, damage),) = damaged_files(str(folder), days(1, 2)).items()
    assert (at, damage.kind) == (day(2), DamageKind.FILE_MISSING)
    golden(str(damage), FILE=file.relative_to(folder))


def test_only_the_days_in_question_are_looked_at(folder):
    file_of(folder, 2).unlink()
    assert damaged_files(str(folder), days(1, 3)) == {}


def test_a_file_of_another_size_is_not_the_one_that_was_written(folder, golden):
    file = file_of(folder, 2)
    written = file.stat().st_size
    file.write_bytes(file.read_bytes() + b"more")
    ((at, damage),) = damaged_files(str(folder), days(1, 2)).items()
    assert (at, damage.kind) == (day(2), DamageKind.FILE_SIZE)
    sizes = {"WRITTEN": f"{written:,}", "FOUND": f"{written + 4:,}"}
    golden(str(damage), FILE=file.relative_to(folder), **sizes)


def test_a_file_of_the_same_size_is_known_to_be_damaged_by_reading_it(folder):
    file = file_of(folder, 2)
    file.write_bytes(b"x" * file.stat().st_size)
    assert damaged_files(str(folder), days(1, 2)) == {}
    found = damaged_files(str(folder), days(1, 2), depth=Depth.BYTES)
    assert (
        list(found),
        f"its file {file.relative_to(folder)} cannot be read: " in str(found[day(2)]),
    ) == (days(2), True)


def test_files_are_those_that_the_log_lists_at_a_version(folder):
    file_of(folder, 2).unlink()
    write_days(folder.parent.parent, build(2, rows=2))
    assert damaged_files(str(folder), days(2)) == {}
    assert list(damaged_files(str(folder), days(2), 0)) == days(2)
    assert (
        damaged_files(str(folder), days(2), -1)
        == damaged_files(str(folder / "none"), days(2))
        == {}
    )
