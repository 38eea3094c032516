"""Files that a disk, a vacuum or a hand has taken away or changed, of which the log shows nothing.
No Spark.
"""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from backfill_assets.lake.integrity import day_files, lost_files, unreadable_files
from tests.worlds.deliveries import day, days
from tests.worlds.recorded import TABLE, build, write_days

COLUMN = "outage_day"


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
        lost_files(str(folder), COLUMN, days(1, 2, 3, 4))
        == unreadable_files(str(folder), COLUMN, days(1, 2, 3))
        == {}
    )


def test_a_file_that_is_gone_is_named(folder):
    file = file_of(folder, 2)
    file.unlink()
    assert lost_files(str(folder), COLUMN, days(1, 2)) == {
        day(2): f"its file {file.relative_to(folder)} is missing"
    }


def test_only_the_days_in_question_are_looked_at(folder):
    file_of(folder, 2).unlink()
    assert lost_files(str(folder), COLUMN, days(1, 3)) == {}


def test_a_file_of_another_size_is_not_the_one_that_was_written(folder):
    file = file_of(folder, 2)
    written = file.stat().st_size
    file.write_bytes(file.read_bytes() + b"more")
    assert lost_files(str(folder), COLUMN, days(1, 2)) == {
        day(2): (
            f"its file {file.relative_to(folder)} has {written + 4:,} bytes, and {written:,} were"
            " written"
        )
    }


def test_a_file_of_the_same_size_is_known_to_be_damaged_by_reading_it(folder):
    file = file_of(folder, 2)
    file.write_bytes(b"x" * file.stat().st_size)
    assert lost_files(str(folder), COLUMN, days(1, 2)) == {}
    damaged = unreadable_files(str(folder), COLUMN, days(1, 2))
    assert (
        list(damaged),
        f"its file {file.relative_to(folder)} cannot be read: " in damaged[day(2)],
    ) == (days(2), True)


def test_files_are_those_that_the_log_lists_at_a_version(folder):
    file_of(folder, 2).unlink()
    write_days(folder.parent.parent, build(2, rows=2))
    assert lost_files(str(folder), COLUMN, days(2)) == {}
    assert list(lost_files(str(folder), COLUMN, days(2), 0)) == days(2)
    assert (
        lost_files(str(folder), COLUMN, days(2), -1)
        == lost_files(str(folder / "none"), COLUMN, days(2))
        == {}
    )


def test_of_a_table_that_is_partitioned_otherwise_others_say_so(folder):
    assert lost_files(str(folder), "arrival_day", days(1, 2)) == {}
