"""What an act acknowledges is on the disk before: its files, and the folders that lead to them."""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backfill_assets.errors import ServiceUnavailable
from backfill_assets.lake.acts import finish
from backfill_assets.lake.durable import VARIABLE, put_log_on_disk, put_on_disk
from backfill_assets.publish.release_live import release_live
from tests.worlds.small_lake import (
    DAYS,
    RELEASED,
    A,
    B,
    SmallLake,
    copy_of,
    killed_when,
    preview,
    publish,
    rebuilt_in_shadow,
    released_lake,
)

# Locks and marks of running steps are of no use after a power cut.
EPHEMERAL = {"_locks"}


@dataclass
class Disk:
    """What was put on the disk, by inode: the last change of a file, the entries of a folder."""

    flushed: dict[int, object] = field(default_factory=dict)

    def flush(self, opened: int) -> None:
        self.flushed[os.fstat(opened).st_ino] = state(Path(f"/proc/self/fd/{opened}").resolve())

    def lost(self, root: Path) -> list[str]:
        """The files, and the folders with new entries, that a power cut would take away."""
        return [
            str(path.relative_to(root.parent))
            for path in sorted([root, *root.rglob("*")])
            if EPHEMERAL.isdisjoint(path.parts) and not self.has(path)
        ]

    def has(self, path: Path) -> bool:
        now = state(path)
        flushed = self.flushed.get(path.stat().st_ino)
        if isinstance(now, frozenset) and isinstance(flushed, frozenset):
            # A deletion may be lost: what is deleted is not used again.
            return now <= flushed
        return now == flushed


def state(path: Path) -> frozenset[str] | int:
    if path.is_dir():
        return frozenset(entry.name for entry in path.iterdir() if entry.name not in EPHEMERAL)
    return path.stat().st_mtime_ns


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setenv(VARIABLE, "true")
    monkeypatch.setattr(os, "fsync", made.flush)
    return made


def test_nothing_that_an_act_has_acknowledged_is_lost_by_a_power_cut(disk, tmp_path):
    lake = SmallLake(tmp_path / "lake")
    values = dict.fromkeys(DAYS, 3)

    def acts() -> Iterator[str]:
        for table in (A.name, B.name):
            lake.write(values, table=table)
            yield f"a build of {table}"
        release_live(lake.workspace, who="sensor")
        yield "a release"
        plan = rebuilt_in_shadow(lake, {DAYS[0]: 7})
        yield "a plan and its shadow"
        preview(lake, plan)
        yield "a preview"
        publish(lake, plan)
        yield "a publication"
        lake.roll_back(plan)
        yield "a rollback"
        for number in range(25):
            lake.write({DAYS[1]: number % 2 + 1})
        yield "a checkpoint"

    assert {act: lost for act in acts() if (lost := disk.lost(tmp_path / "lake"))} == {}


def test_what_a_killed_writer_committed_is_on_the_disk_before_it_is_recorded(disk, tmp_path):
    lake = SmallLake(tmp_path / "lake")
    lake.write({DAYS[0]: 3})
    with killed_when(lambda: lake.values() == {DAYS[0]: 4}) as killed:
        lake.write({DAYS[0]: 4})
    assert killed
    assert [path for path in disk.lost(lake.root) if path.endswith("1.json")]
    lake.workspace.lake.recover([A.name])
    assert disk.lost(lake.root) == []


def test_a_folder_without_files_is_no_error_and_a_missing_file_is_one(disk, tmp_path):
    put_on_disk(str(tmp_path / "no table"))
    with pytest.raises(FileNotFoundError):
        put_on_disk(str(tmp_path), ["no file"])


def test_files_that_another_writer_is_staging_are_left_alone(disk, tmp_path):
    lake = SmallLake(tmp_path / "lake")
    lake.write({DAYS[0]: 1})
    staged = lake.root / A.name / "_delta_log/00000000000000000001.json#7"
    staged.write_bytes(b"{")
    put_log_on_disk(str(lake.root / A.name))
    assert staged.stat().st_ino not in disk.flushed


def test_a_decision_that_another_process_wrote_is_on_the_disk_before_its_commits(
    disk, tmp_path, monkeypatch
):
    lake = copy_of(released_lake, tmp_path)
    plan = rebuilt_in_shadow(lake, {DAYS[0]: 7})
    decided = lake.root / "_acts/000000001-decided.json"

    def refuses_the_decision(opened: int) -> None:
        if decided.exists() and Path(f"/proc/self/fd/{opened}").resolve() == decided.parent:
            raise OSError(errno.EIO, "Input/output error")
        disk.flush(opened)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuses_the_decision)
        with pytest.raises(ServiceUnavailable):
            publish(lake, plan)
    assert not disk.has(decided.parent)
    with killed_when(lambda: lake.values() != RELEASED):
        finish(str(lake.root))
    assert lake.values() != RELEASED
    assert disk.has(decided.parent)
