"""Local files that are written whole or not at all."""

import pytest

from backfill_assets.lake.storage import replacing, write_whole


def test_a_written_file_takes_the_place_of_the_one_before(tmp_path):
    write_whole(tmp_path / "a.json", "first")
    write_whole(tmp_path / "a.json", b"second")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.json": "second"}


def failing_write(path):
    with replacing(path) as draft:
        draft.write_text("sec")
        raise OSError("full")


def test_an_error_while_writing_leaves_the_file_that_was_there_and_no_draft(tmp_path):
    write_whole(tmp_path / "a.json", "first")
    with pytest.raises(OSError, match="full"):
        failing_write(tmp_path / "a.json")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.json": "first"}
