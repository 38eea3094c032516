"""A backup is the lake at one moment, and its restored lake goes on from there."""

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from backfill_assets.errors import Conflict, TableUnreadable, UsageError
from backfill_assets.lake import backup as module
from backfill_assets.lake.acts import finish
from backfill_assets.lake.backup import back_up, last_backup, restore
from backfill_assets.lake.channels import STABLE, ChannelHistory, Pointer
from backfill_assets.lake.recorded_acts import Acts
from backfill_assets.lake.releases import NUMBERS_LEFT_OUT, Releases
from backfill_assets.publish.release_live import release_live
from tests.worlds.depth import deep
from tests.worlds.small_lake import (
    DAYS,
    RELEASED,
    A,
    B,
    SmallLake,
    age,
    copy_of,
    files_on_disk,
    gets,
    killed_after,
    maintain_later,
    publish,
    rebuilt_in_shadow,
    released_lake,
    values_of_release,
)

pytestmark = pytest.mark.lake

NEW = dict.fromkeys(DAYS[:2], 7)
PUBLISHED = RELEASED | NEW


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return copy_of(released_lake, tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "backups")


def restored_from(place: str, root: Path, number: int = 0) -> SmallLake:
    restore(place, str(root), number, "ada")
    return SmallLake(root)


def rows(root: Path, table: str) -> list[tuple]:
    """The rows of the live table, read by DuckDB from the files that its log names."""
    files = SmallLake(root).files(table).values()
    paths = [str(root / table / path) for of_day in files for path in of_day]
    return duckdb.execute(
        f"SELECT day, n, count(*) FROM read_parquet({paths}, hive_partitioning=true)"
        " GROUP BY ALL ORDER BY ALL"
    ).fetchall()


def test_a_restored_lake_has_the_rows_the_pins_the_plans_and_the_releases(lake, place, tmp_path):
    history = ChannelHistory(str(lake.root))
    history.move(history.now(), STABLE, Pointer(release=1), who="ada", reason="hold")
    plan = rebuilt_in_shadow(lake, NEW)
    made = back_up(str(lake.root), place)
    assert (made.number, made.act, made.release) == (1, 0, 1)
    assert last_backup(str(lake.root)) == made
    publish(lake, plan)
    restored = restored_from(place, tmp_path / "again")
    assert rows(restored.root, A.name) == [(at, n, n) for at, n in RELEASED.items()]
    assert values_of_release(restored, 1) == gets(restored) == RELEASED
    assert ChannelHistory(str(restored.root)).now().pinned(STABLE) == 1
    assert last_backup(str(restored.root)) == made
    publish(restored, plan)
    assert restored.values() == restored.values(B.name) == PUBLISHED


def test_a_number_of_the_lost_lake_is_never_given_to_other_rows(lake, place, tmp_path):
    back_up(str(lake.root), place)
    lake.write({DAYS[0]: 9})
    release_live(lake.workspace, who="sensor")
    restored = restored_from(place, tmp_path / "again")
    releases = Releases(str(restored.root))
    assert [release.number for release in releases.all()] == [1, 1 + NUMBERS_LEFT_OUT]
    with pytest.raises(UsageError):
        releases.get(2)
    assert gets(restored) == RELEASED
    restored.write({DAYS[0]: 5})
    restored.write({DAYS[0]: 5}, table=B.name)
    assert release_live(restored.workspace, who="sensor")
    assert releases.newest().number == 2 + NUMBERS_LEFT_OUT  # type: ignore[union-attr]


def test_a_lake_without_releases_goes_on_with_a_number_of_its_own(place, tmp_path):
    lake = SmallLake(tmp_path / "lake")
    for table in (A.name, B.name):
        lake.write(RELEASED, table=table)
    back_up(str(lake.root), place)
    restored = restored_from(place, tmp_path / "again")
    release_live(restored.workspace, who="sensor")
    assert values_of_release(restored, 1 + NUMBERS_LEFT_OUT) == RELEASED


@pytest.mark.parametrize("act", deep(["publish", "roll back"], ["publish"]))
def test_an_act_between_any_two_writes_is_finished_or_gone_in_the_copy(act, lake, place, tmp_path):
    plan = rebuilt_in_shadow(lake, NEW)
    before = RELEASED
    after = PUBLISHED
    if act == "roll back":
        publish(lake, plan)
        before = PUBLISHED
        after = RELEASED
    for write in range(1, 60):
        halted = SmallLake(tmp_path / f"lake{write}", runs=lake.runs.copy())
        shutil.copytree(lake.root, halted.root)
        with killed_after(write) as killed:
            publish(halted, plan) if act == "publish" else halted.roll_back(plan)
        back_up(str(halted.root), f"{place}{write}")
        restored = restored_from(f"{place}{write}", tmp_path / f"again{write}")
        finish(str(restored.root))
        assert Acts(str(restored.root)).unfinished() is None
        values = restored.values()
        assert values == restored.values(B.name) == gets(restored)
        assert values in (before, after)
        if not killed:
            assert values == after
            return
    pytest.fail("the act never ended")


def each_listing(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object] | None) -> None:
    """Do an act before each of the first listings of the lake."""
    waiting = list(acts)
    listed = module._listed

    def interrupted(root: str, *folders: list[str]) -> object:
        if waiting and "lake" in root.rpartition("/")[2] and (act := waiting.pop(0)):
            act()
        return listed(root, *folders)

    monkeypatch.setattr(module, "_listed", interrupted)


@pytest.mark.parametrize("listing", deep(range(5), (0, 3)))
def test_a_publication_at_any_moment_of_a_backup_is_whole_or_not_in_it(
    listing, lake, place, tmp_path, monkeypatch
):
    plan = rebuilt_in_shadow(lake, NEW)
    acts = [None] * listing
    each_listing(monkeypatch, *acts, lambda: publish(lake, plan))
    made = back_up(str(lake.root), place)
    monkeypatch.undo()
    restored = restored_from(place, tmp_path / "again")
    assert restored.values() == restored.values(B.name) == gets(restored)
    assert restored.values() == (PUBLISHED if made.act else RELEASED)


def eight_releases(root: Path) -> SmallLake:
    """A lake whose release N has the value N on the first day."""
    lake = released_lake(root)
    for value in range(2, 9):
        for table in (A.name, B.name):
            lake.write({DAYS[0]: value}, table=table)
        release_live(lake.workspace, who="sensor")
    return lake


@pytest.mark.parametrize("listing", deep(range(5), (0, 3)))
def test_maintenance_at_any_moment_takes_no_file_from_a_backup(
    listing, place, tmp_path, monkeypatch
):
    lake = copy_of(eight_releases, tmp_path)
    age(lake, 1000)
    acts = [None] * listing
    each_listing(monkeypatch, *acts, lambda: maintain_later(lake, 500))
    back_up(str(lake.root), place)
    monkeypatch.undo()
    restored = restored_from(place, tmp_path / "again")
    retired = ChannelHistory(str(restored.root)).now().retired
    readable = [r.number for r in Releases(str(restored.root)).all() if r.number not in retired]
    assert {n: values_of_release(restored, n)[DAYS[0]] for n in readable if n <= 8} == {
        n: n for n in range(1, 9) if n in readable
    }


def test_a_lake_that_never_rests_is_a_conflict(lake, place, monkeypatch, golden):
    monkeypatch.setattr(module, "_ATTEMPTS", 2)

    def write() -> None:
        lake.write({DAYS[0]: len(files_on_disk(lake))})

    each_listing(monkeypatch, *[write] * 40)
    with golden.raises(Conflict, lake=lake.root):
        back_up(str(lake.root), place)


def test_a_second_backup_copies_only_what_is_new(lake, place, tmp_path):
    first = back_up(str(lake.root), place)
    assert back_up(str(lake.root), place).copied == 0
    lake.write({DAYS[0]: 5})
    second = back_up(str(lake.root), place)
    assert (second.number, first.copied) == (3, first.files)
    assert 0 < second.copied < 6
    one = next(Path(place, "files", A.name).rglob("*.parquet"))
    assert one.stat().st_nlink > 1
    assert restored_from(place, tmp_path / "one", 1).values() == RELEASED
    assert restored_from(place, tmp_path / "three").values() == RELEASED | {DAYS[0]: 5}


def test_an_interrupted_backup_is_none_and_goes_on(lake, place, tmp_path):
    for write in range(1, 500, 7):
        with killed_after(write) as killed:
            back_up(str(lake.root), place)
        if not killed:
            break
        if not (Path(place, "backups")).exists():
            with pytest.raises(UsageError):
                restore(place, str(tmp_path / "again"), 0, "ada")
    assert restored_from(place, tmp_path / "again").values() == RELEASED


def test_an_interrupted_restore_is_no_lake_and_goes_on(lake, place, tmp_path):
    plan = rebuilt_in_shadow(lake, NEW)
    back_up(str(lake.root), place)
    restored = SmallLake(tmp_path / "again")
    # The first two writes keep readers and writers away.
    for write in range(2, 500, 7):
        with killed_after(write) as killed:
            restore(place, str(restored.root), 0, "ada")
        if not killed:
            break
        for use in (lambda: Releases(str(restored.root)).newest(), lambda: restored.write(NEW)):
            with pytest.raises(TableUnreadable):
                use()
    assert everything(restored) == RELEASED
    publish(restored, plan)
    assert everything(restored) == PUBLISHED


def everything(lake: SmallLake) -> dict:
    assert lake.values() == lake.values(B.name) == gets(lake)
    return lake.values()


def test_what_cannot_be_backed_up_or_restored_is_refused(lake, place, tmp_path, golden):
    names = {"lake": lake.root, "place": place, "empty": tmp_path / "empty"}
    with golden.raises(UsageError, "in the lake", **names):
        back_up(str(lake.root), f"{lake.root}/copies")
    with golden.raises(UsageError, "no lake", **names):
        back_up(str(tmp_path / "empty"), place)
    with golden.raises(UsageError, "no backup", **names):
        restore(place, str(tmp_path / "empty"), 0, "ada")
    back_up(str(lake.root), place)
    with golden.raises(UsageError, "no such backup", **names):
        restore(place, str(tmp_path / "empty"), 5, "ada")
    with golden.raises(UsageError, "a lake", **names):
        restore(place, str(lake.root), 0, "ada")
    with killed_after(3):
        restore(place, str(tmp_path / "empty"), 0, "ada")
    with golden.raises(TableUnreadable, "being restored", **names):
        Releases(str(tmp_path / "empty")).newest()
    back_up(str(lake.root), place)
    with golden.raises(UsageError, "another backup", **names):
        restore(place, str(tmp_path / "empty"), 2, "ada")
    lost = Path(place, "files", A.name, sorted(files_on_disk(lake))[0])
    lost.unlink()
    with pytest.raises(TableUnreadable):
        restore(place, str(tmp_path / "other"), 0, "ada")
    assert not (tmp_path / "other").exists()


def test_a_broken_note_of_the_last_backup_counts_as_none(tmp_path):
    (tmp_path / "_backup.json").write_text("{")
    assert last_backup(str(tmp_path)) is None
