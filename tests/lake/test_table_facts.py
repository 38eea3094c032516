"""Kept facts about a table are those of its log, and are used while the log is as it was."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.transaction import AddAction

from backfill_assets.lake.delta import table_to_write
from backfill_assets.lake.table_facts import MANY_DAYS, TableFacts, keep_facts, table_facts
from tests.benchmarks import growth

pytestmark = pytest.mark.lake

DAYS = 20


def append(folder: Path, name: str) -> None:
    """Commit a file of the last day."""
    table = table_to_write(str(folder))
    assert table
    at = str(growth.LAST)
    add = AddAction(f"arrival_day={at}/{name}", 1, {"arrival_day": at}, 0, True, "{}")
    table.create_write_transaction([add], "append", table.schema(), ["arrival_day"])


def facts_of(folder: Path) -> TableFacts:
    facts = table_facts(str(folder))
    assert facts
    return facts


def is_kept(folder: Path) -> bool:
    return isinstance(facts_of(folder).files, pa.Table)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A table with a checkpoint at version 9, and two later commits."""
    growth.make(tmp_path / "lake", 1, DAYS, 1)
    folder = tmp_path / "lake" / "raw" / "t0"
    append(folder, "x.parquet")
    append(folder, "y.parquet")
    return folder


@pytest.fixture
def kept(folder) -> Path:
    """The same, in a lake that was moved after its facts were kept."""
    keep_facts([str(folder)], at_least=1)
    root = folder.parents[1]
    return root.rename(root.with_name("moved")) / "raw" / "t0"


def test_kept_facts_are_those_of_the_log(folder):
    opened = facts_of(folder)
    days = [growth.LAST, growth.calendar_of(DAYS).first]
    expected = (opened.columns, opened.hashes_of(days), opened.hashes.to_pydict(), opened.days())
    assert not is_kept(folder)
    keep_facts([str(folder)], at_least=1)
    root = folder.parents[1]
    facts = facts_of(root.rename(root.with_name("moved")) / "raw" / "t0")
    assert isinstance(facts.files, pa.Table)
    found = (facts.columns, facts.hashes_of(days), facts.hashes.to_pydict(), facts.days())
    assert found == expected


def _replaced(file: Path) -> None:
    """Put the same bytes there, as a program does that writes a file again."""
    contents = file.read_bytes()
    file.unlink()
    file.write_bytes(contents)


def _in_place(file: Path) -> None:
    """Write another name of the same length into the file that is there, a moment later."""
    at = file.stat().st_mtime_ns + 1_000_000
    file.write_bytes(file.read_bytes().replace(b"x.parquet", b"w.parquet").replace(b"y.p", b"v.p"))
    os.utime(file, ns=(at, at))


def _restored(folder: Path) -> None:
    """Put the table back from a copy that has the times of the files."""
    shutil.copytree(folder, folder.with_name("copy"))
    shutil.rmtree(folder)
    folder.with_name("copy").rename(folder)


LOG = "_delta_log"
CHANGES: dict[str, Callable[[Path], object]] = {
    "a new commit": lambda folder: append(folder, "z.parquet"),
    "the newest commit is overwritten": lambda folder: _in_place(folder / LOG / f"{11:020d}.json"),
    "an earlier commit is overwritten": lambda folder: _in_place(folder / LOG / f"{10:020d}.json"),
    "the checkpoint is replaced": lambda folder: _replaced(
        folder / LOG / f"{9:020d}.checkpoint.parquet"
    ),
    "restored from a copy": _restored,
    "the newest commit is gone": lambda folder: (folder / LOG / f"{11:020d}.json").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_facts_of_another_log_are_not_used(kept, change):
    assert is_kept(kept)
    CHANGES[change](kept)
    assert not is_kept(kept)


def test_there_are_no_facts_about_a_table_that_is_gone(kept):
    assert is_kept(kept)
    shutil.rmtree(kept)
    assert table_facts(str(kept)) is None


@pytest.mark.parametrize("length", [0, 3, 200, -1])
def test_torn_facts_are_not_used(kept, length):
    (file,) = (kept.parents[1] / "_table_facts").iterdir()
    file.write_bytes(file.read_bytes()[:length])
    assert facts_of(kept).version == 11
    assert not is_kept(kept)


def test_facts_of_a_lake_that_may_only_be_read_are_not_kept(folder):
    (folder.parents[1] / "_table_facts").write_text("in the way")
    keep_facts([str(folder)], at_least=1)
    assert not is_kept(folder)


@pytest.mark.parametrize("act", [growth.status, growth.plan])
@pytest.mark.parametrize("days", [MANY_DAYS, MANY_DAYS - 1])
def test_commands_keep_the_facts_about_long_histories(tmp_path, act, days):
    growth.make(tmp_path, 1, days, 1)
    act(growth.workspace_at(tmp_path, 1, days))
    assert is_kept(tmp_path / "raw" / "t0") == (days == MANY_DAYS)
