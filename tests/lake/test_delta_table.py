"""Tables that are kept open are as they are on disk: after any commit, by anybody, and after they
were made anew.
"""

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import TableUnreadable
from backfill_assets.lake import delta
from backfill_assets.lake.data_files import write_table
from backfill_assets.lake.delta import last_commit, open_table, table_to_write, version_of
from backfill_assets.lake.file_commit import FileCommit
from tests.worlds.small_lake import columns


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    delta._kept.clear()
    yield
    delta._kept.clear()


def write(folder: Path, n: int, mode: str = "append") -> None:
    write_deltalake(str(folder), pa.table({"n": [n]}), mode=mode)  # type: ignore[call-overload]


def files(table: DeltaTable | None) -> int:
    assert table is not None
    return int(pa.table(table.get_add_actions(flatten=True)).num_rows)


def test_a_table_is_opened_once_for_each_version(tmp_path: Path) -> None:
    write(tmp_path / "t", 1)
    first = open_table(str(tmp_path / "t"))
    assert first is not None
    assert open_table(str(tmp_path / "t")) is first is open_table(str(tmp_path / "t"), 0)
    assert first.get_add_actions(flatten=True) is first.get_add_actions(flatten=True)
    write(tmp_path / "t", 2)
    second = open_table(str(tmp_path / "t"))
    assert second is not first
    assert (files(second), files(first), files(open_table(str(tmp_path / "t"), 0))) == (2, 1, 1)
    assert version_of(str(tmp_path / "t")) == 1


def test_a_table_that_was_made_anew_is_not_the_one_that_was_kept(tmp_path: Path) -> None:
    write(tmp_path / "t", 1)
    before = open_table(str(tmp_path / "t"))
    assert before is not None
    shutil.rmtree(tmp_path / "t")
    assert open_table(str(tmp_path / "t")) is None
    assert version_of(str(tmp_path / "t")) == -1
    write(tmp_path / "t", 1)
    after = open_table(str(tmp_path / "t"))
    assert after is not None
    assert after.metadata().id != before.metadata().id


def test_a_commit_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    write(tmp_path / "t", 1)
    open_table(str(tmp_path / "t"))
    (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").write_text("not a commit\n")
    with pytest.raises(TableUnreadable):
        open_table(str(tmp_path / "t"))


def test_whoever_writes_has_a_table_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "t", 1)
    kept = open_table(str(tmp_path / "t"))
    own = table_to_write(str(tmp_path / "t"))
    assert own is not None
    write_deltalake(own, pa.table({"n": [2]}), mode="append")
    assert (own.version(), files(kept)) == (1, 1)
    assert not any(table is own for table in delta._kept.values())


def test_a_table_that_files_are_committed_with_stays_as_it_was(tmp_path: Path) -> None:
    """So that a commit need not open its table anew. If a later `deltalake` does otherwise, it
    must.
    """
    folder = str(tmp_path / "t")
    first = date(2020, 1, 1)
    for value in (1, 2):
        rows = pa.table({"n": pa.array([value], pa.int64()), "day": pa.array([first], pa.date32())})
        kept = open_table(folder)
        files_of_day = write_table(rows, folder, "day")
        before = kept and (
            kept.version(),
            pa.table(DeltaTable(folder).get_add_actions(flatten=True)),
        )
        FileCommit(folder, "day", files_of_day, columns("day"))(kept, [first], "{}")
    assert kept
    assert before == (kept.version(), pa.table(kept.get_add_actions(flatten=True)))
    assert before != (0, pa.table(DeltaTable(folder).get_add_actions(flatten=True)))
    assert version_of(folder) == 1


def test_only_so_many_tables_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert delta.KEPT == 256  # as one act looks at
    monkeypatch.setattr(delta, "KEPT", 3)
    for n in range(5):
        write(tmp_path / "t", n)
        open_table(str(tmp_path / "t"))
    assert len(delta._kept) == 3
    assert files(open_table(str(tmp_path / "t"), 0)) == 1  # opened again


def test_the_last_commit_is_another_text_after_every_commit(tmp_path: Path) -> None:
    seen = [last_commit(str(tmp_path / "t"))]
    for n in range(3):
        write(tmp_path / "t", n)
        seen.append(last_commit(str(tmp_path / "t")))
    assert seen[0] == ""
    assert len(set(seen)) == 4


def test_the_newest_commit_is_found_from_the_checkpoint_or_whatever_it_says(tmp_path):
    path = str(tmp_path / "t")
    log = tmp_path / "t" / "_delta_log"
    for n in range(4):
        write_deltalake(path, pa.table({"n": [n]}), mode="append")
        if n == 1:
            DeltaTable(path).create_checkpoint()
    for said in (
        (log / "_last_checkpoint").read_text(),
        '{"version": 3}',
        '{"version": 7}',
        '{"version": null}',
        "",
        "[]",
    ):
        (log / "_last_checkpoint").write_text(said)
        assert last_commit(path) == f"{3:020d}.json", said
    (log / f"{0:020d}.json").unlink()  # as commits go once they are old
    (log / "_last_checkpoint").unlink()
    assert last_commit(path) == f"{3:020d}.json"
