"""A power cut at every write: what was acknowledged is there, the rest is finished or gone.

`worlds/power_cut.py` says what a cut may leave. After each cut the readers of the release get the
rows before or after the act. A command works, or names the broken file and `reconcile --repair`,
after which it works. DuckDB reads the tables from their logs, as another program does.
"""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.history import BuildKey, build_key
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.maintenance import MANY_FILES
from backfill_assets.lake.releases import Releases
from backfill_assets.publish.release_live import NothingNew, release_live
from backfill_assets.reconcile.broken import broken_files, repair
from tests.worlds.power_cut import watched, written
from tests.worlds.small_lake import (
    DAYS,
    RELEASED,
    A,
    B,
    SmallLake,
    copy_of,
    gets,
    maintain_later,
    publish,
    rebuilt_in_shadow,
    released_lake,
    values_of_release,
    write_in_many_files,
)

TABLES = (A.name, B.name)
NEW = RELEASED | {DAYS[0]: 7}
MANY = RELEASED | {DAYS[0]: MANY_FILES + 1}
Values = dict[date, int]
# To open one takes longer than to read a table.
DATABASE = duckdb.connect()


def rows_of(folder: Path) -> Values:
    """The number of rows of each day, as another program reads the log and the files."""
    log = f"{folder}/_delta_log/*.json"
    database = DATABASE.cursor()
    files = database.execute(
        f"""
        WITH actions AS (
            SELECT filename, json->'$.add' AS added, json->'$.remove' AS removed
            FROM read_ndjson_objects('{log}', filename=true)
        ), last AS (
            SELECT coalesce(added->>'$.path', removed->>'$.path') AS path,
                   arg_max(added IS NOT NULL, filename) AS listed
            FROM actions WHERE added IS NOT NULL OR removed IS NOT NULL GROUP BY path
        ) SELECT path FROM last WHERE listed
        """
    ).fetchall()
    paths = [f"{folder}/{path}" for (path,) in files]
    if not paths:
        return {}
    days = database.execute(
        f"SELECT day, count(*), min(n), max(n) FROM read_parquet({paths}, hive_partitioning=true)"
        " GROUP BY day ORDER BY day"
    ).fetchall()
    assert all(count == low == high for _, count, low, high in days), days
    return {day: count for day, count, _, _ in days}


def night(lake: SmallLake) -> None:
    for table in (A.name, B.name):
        if lake.values(table) != NEW:
            lake.write({DAYS[0]: 7}, table=table)
    release(lake)
    if gets(lake) != NEW:  # B was built of rows that were lost: it is outdated
        lake.write({DAYS[0]: 7}, table=B.name)
        release(lake)


def release(lake: SmallLake) -> None:
    if gets(lake) != lake.values(B.name):
        release_live(lake.workspace, who="sensor")


def publication(lake: SmallLake) -> None:
    (plan,) = lake.plans.ids()
    publish(lake, lake.plans.read(plan))


def rollback(lake: SmallLake) -> None:
    (plan,) = lake.plans.ids()
    lake.roll_back(lake.plans.read(plan))


@dataclass
class Act:
    """An act, what is prepared before it, and the values of readers after it.

    `commits`: whether it commits to tables. A commit may be cut off before it is flushed.
    """

    do: Callable[[SmallLake], object]
    prepare: Callable[[SmallLake], object] = lambda _: None
    before: Values = field(default_factory=lambda: RELEASED)
    after: Values = field(default_factory=lambda: NEW)
    commits: bool = True


def build_outdated(lake: SmallLake) -> None:
    for table in (A.name, B.name):
        lake.write({DAYS[0]: 7}, table=table)


def published(lake: SmallLake) -> None:
    publish(lake, rebuilt_in_shadow(lake, {DAYS[0]: 7}))


def many_files(lake: SmallLake) -> None:
    write_in_many_files(lake, DAYS[0])
    lake.write({DAYS[0]: MANY_FILES + 1}, table=B.name)
    release(lake)


def many_versions(lake: SmallLake) -> None:
    for number in range(18):
        lake.write({DAYS[1]: number % 2 + 1})


ACTS = {
    "night": Act(night),
    "checkpoint": Act(night, many_versions),
    "release": Act(release, build_outdated, commits=False),
    "publication": Act(publication, lambda lake: rebuilt_in_shadow(lake, {DAYS[0]: 7})),
    "rollback": Act(rollback, published, before=NEW, after=RELEASED),
    "maintenance": Act(lambda lake: maintain_later(lake, 40), many_files, MANY, MANY),
}


# To record a checkpoint takes long. A rollback writes what a publication writes.
LATER = ("checkpoint", "rollback")
# By act: one of this number of cuts is tried.
CUTS = [
    pytest.param(name, 10, marks=[pytest.mark.scale] if name in LATER else []) for name in ACTS
] + [
    pytest.param(name, 1, marks=pytest.mark.nightly if name in LATER else pytest.mark.scale)
    for name in ACTS
]


@pytest.mark.parametrize(("name", "one_in"), CUTS)
def test_after_a_cut_readers_get_a_release_and_the_next_command_works(name, one_in, tmp_path):
    act = ACTS[name]
    lake = copy_of(released_lake, tmp_path)
    act.prepare(lake)
    ledger = keys(lake)
    with watched(lake.root) as disk:
        act.do(lake)
    trees = {
        hash(frozenset(tree.items())): tree
        for n, moment in enumerate(disk.moments)
        for tree in moment.cuts(seed=n)
    }
    repaired = 0
    for n, tree in enumerate([*trees.values()][::one_in]):
        root = tmp_path / f"cut{n}" / "lake"
        written(tree, root)
        repaired += next_command_works(SmallLake(root), act, ledger)
    assert len(trees) >= 5
    assert (repaired > 0) == act.commits


def next_command_works(lake: SmallLake, act: Act, ledger: set[BuildKey]) -> bool:
    """Check a lake after a cut. True if it had to be repaired."""
    root = str(lake.root)
    number = last_release(lake)
    assert gets(lake) in (act.before, act.after)
    is_broken = bool(broken_files(root, TABLES))
    # A command that does not need what is broken may succeed.
    with suppress(TableUnreadable) if is_broken else nullcontext():
        act.do(lake)
    if is_broken:
        repair(root, TABLES)
        assert gets(lake) in (act.before, act.after)
        act.do(lake)
    assert broken_files(root, TABLES) == []
    assert gets(lake) == rows_of(lake.root / A.name) == rows_of(lake.root / B.name) == act.after
    assert ledger <= keys(lake)
    assert last_release(lake) >= number
    return is_broken


def keys(lake: SmallLake) -> set[BuildKey]:
    return {*map(build_key, Ledger(str(lake.root)).builds())}


def last_release(lake: SmallLake) -> int:
    newest = Releases(str(lake.root)).newest()
    return newest.number if newest else 0


def newest(folder: Path, pattern: str = "*") -> Path:
    return sorted(folder.glob(pattern))[-1]


def torn(file: Path) -> None:
    contents = file.read_bytes()
    file.write_bytes(contents[: len(contents) // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


# What a disk that lost what it acknowledged does to a lake with a publication.
LOSSES: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "the newest commit of a table, empty": ("raw/a/_delta_log", "*.json", emptied),
    "the newest commit of a table, torn": ("raw/b/_delta_log", "*.json", torn),
    "the newest release, empty": ("_releases", "*.json", emptied),
    "the newest release, torn": ("_releases", "*.json", torn),
    "the end of the newest act": ("_acts", "*-ended.json", torn),
    "the decision of the newest act": ("_acts", "*-decided.json", emptied),
    "the newest commit of the ledger": ("_ledger/_delta_log", "*.json", emptied),
    "a file of the ledger, empty": ("_ledger", "*/*.parquet", emptied),
    "a file of the ledger, torn": ("_ledger", "*/*.parquet", torn),
    "a file of the ledger, missing": ("_ledger", "*/*.parquet", Path.unlink),
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_a_disk_lost_is_named_and_put_right_and_no_number_is_given_twice(name, tmp_path):
    folder, pattern, lose = LOSSES[name]
    lake = copy_of(released_lake, tmp_path)
    published(lake)
    root = str(lake.root)
    number = last_release(lake)
    builds = keys(lake)
    lost = newest(lake.root / folder, pattern)
    lose(lost)
    assert values_of_release(lake, 1) == RELEASED
    (broken,) = broken_files(root, TABLES)
    assert lost.is_relative_to(broken.file)
    moved, _ = repair(root, TABLES)
    assert broken in moved
    assert broken_files(root, TABLES) == []
    assert gets(lake) == rows_of(lake.root / A.name) == rows_of(lake.root / B.name) == NEW
    assert builds <= keys(lake)
    assert last_release(lake) == number + ("release" in name)
    assert isinstance(release_live(lake.workspace, who="sensor"), NothingNew)


def test_the_readers_of_a_lost_version_get_an_error_and_never_other_rows(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    build_outdated(lake)
    release(lake)
    newest(lake.root / A.name / "_delta_log", "*.json").unlink()
    with pytest.raises(TableUnreadable):
        values_of_release(lake, 2)
    with pytest.raises(TableUnreadable, match="reconcile --repair"):
        lake.write({DAYS[0]: 9})
    moved, _ = repair(str(lake.root), TABLES)
    assert [broken.lost for broken in moved] == ["release 2"]
    build_outdated(lake)
    release(lake)
    assert gets(lake) == NEW
    with pytest.raises(UsageError):
        values_of_release(lake, 2)
    assert last_release(lake) == 3


def test_a_data_file_that_is_not_whole_is_named_to_its_readers(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    emptied(newest(lake.root / A.name, "*/*/*.parquet"))
    with pytest.raises(TableUnreadable, match="0 bytes"):
        gets(lake)


def first_of_act(lake: SmallLake) -> None:
    emptied(lake.root / "_acts/000000001.json")


def first_of_act_and_end(lake: SmallLake) -> None:
    first_of_act(lake)
    (lake.root / "_acts/000000001-ended.json").unlink()


def first_of_act_missing(lake: SmallLake) -> None:
    (lake.root / "_acts/000000001.json").unlink()
    (lake.root / "_acts/000000001-ended.json").unlink()


@pytest.mark.parametrize("lose", [first_of_act, first_of_act_and_end, first_of_act_missing])
def test_an_act_without_its_first_document_is_moved_aside_as_a_whole(lose, tmp_path):
    lake = copy_of(released_lake, tmp_path)
    published(lake)
    lose(lake)
    root = str(lake.root)
    assert repair(root, TABLES)[0]
    assert broken_files(root, TABLES) == []
    assert gets(lake) == NEW
    publish(lake, rebuilt_in_shadow(lake, {DAYS[1]: 5}))
    assert gets(lake) == NEW | {DAYS[1]: 5}
    assert not [*(lake.root / "_acts").glob("000000001*")]
    assert [*(lake.root / "_acts").glob("000000002-ended.json")]


def test_two_broken_commits_of_a_table_are_moved_aside_by_one_repair(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    build_outdated(lake)
    for commit in (lake.root / A.name / "_delta_log").glob("*.json"):
        emptied(commit)
    moved, _ = repair(str(lake.root), TABLES)
    assert [file.lost for file in moved] == ["commit 1 of raw/a", "commit 0 of raw/a"]
    assert broken_files(str(lake.root), TABLES) == []
    with pytest.raises(TableUnreadable):
        values_of_release(lake, 1)
    lake.write(NEW)
    lake.write(NEW, table=B.name)
    release_live(lake.workspace, who="sensor")
    assert gets(lake) == rows_of(lake.root / A.name) == NEW
    with pytest.raises(TableUnreadable):
        values_of_release(lake, 1)


def test_a_ledger_that_has_lost_its_only_file_is_there_after_one_repair(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    lake.fail(DAYS[0])
    emptied(newest(lake.root / "_ledger", "*/*.parquet"))
    assert len(repair(str(lake.root), TABLES)[0]) == 1
    assert repair(str(lake.root), TABLES) == ([], "")
    assert broken_files(str(lake.root), TABLES) == []


def test_a_lost_checkpoint_after_an_earlier_one_is_named_and_read_without(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    folder = str(lake.root / A.name)
    for value in (5, 6):
        lake.write({DAYS[0]: value})
        DeltaTable(folder).create_checkpoint()
    newest(lake.root / A.name / "_delta_log", "*.checkpoint.parquet").unlink()
    with pytest.raises(TableUnreadable, match="leads to a checkpoint that is lost"):
        lake.values()
    moved, _ = repair(str(lake.root), TABLES)
    assert [(file.file.name, file.lost) for file in moved] == [("_last_checkpoint", "nothing")]
    assert lake.values() == RELEASED | {DAYS[0]: 6}


def test_nothing_is_committed_on_a_checkpoint_whose_commit_is_lost(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    lake.write({DAYS[0]: 5})
    DeltaTable(lake.root / A.name).create_checkpoint()
    newest(lake.root / A.name / "_delta_log", "*.json").unlink()
    with pytest.raises(TableUnreadable, match="reconcile --repair"):
        lake.write({DAYS[1]: 6})
    repair(str(lake.root), TABLES)
    lake.write({DAYS[1]: 6})
    assert lake.values() == rows_of(lake.root / A.name) == RELEASED | {DAYS[1]: 6}


# What other programs and our own maintenance do to logs that are whole.


def test_a_ledger_whose_earlier_compactions_were_cleaned_up_is_whole(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    for number in range(21):
        lake.write({DAYS[number % 4]: number + 1})
    before = keys(lake)
    done = maintain_later(lake, 60)
    assert sum(len(table.removed) for table in done.tables) > 10
    assert keys(lake) == before
    assert broken_files(str(lake.root), TABLES) == []


def test_a_table_with_a_change_data_feed_is_whole(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    folder = str(lake.root / A.name)
    table = DeltaTable(folder)
    table.alter.set_table_properties(
        {"delta.enableChangeDataFeed": "true"}, raise_if_not_exists=False
    )
    write_deltalake(
        folder,
        pa.table({"n": [3, 4, 4, 4], "day": pa.array([DAYS[2]] * 4, pa.date32())}),
        mode="append",
    )
    DeltaTable(folder).delete("n = 3")
    assert repair(str(lake.root), TABLES) == ([], "")
    opened = open_table(folder)
    assert opened
    assert opened.version() == 3


def test_a_checkpoint_without_commits_and_a_table_of_another_program_are_left_alone(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    table = DeltaTable(lake.root / A.name)
    table.create_checkpoint()
    newest(lake.root / A.name / "_delta_log", "*.json").unlink()
    theirs = lake.root / "other/table/_delta_log/00000000000000000000.json"
    theirs.parent.mkdir(parents=True)
    emptied(theirs)
    assert repair(str(lake.root), TABLES) == ([], "")
    assert theirs.exists()
    assert gets(lake) == RELEASED
