"""Archives and a landing that end in one table: each day holds what both delivered of it, as it was
declared.
"""

import random
import shutil
import threading
from datetime import date, timedelta
from pathlib import Path

import pytest

from backfill_assets.step.inputs import NOTES
from backfill_assets.step.sources import unread_lines
from tests.worlds.archives import DAYS, ArchiveLake, History, killed_load

pytestmark = pytest.mark.long

RAW = "raw/orders"
SALES = "staging/sales"


def delivered(history: History) -> History:
    """Six days: four in an archive, four in the landing, so that two are in both."""
    for n, at in enumerate(DAYS[2:]):
        history.land(at, n, n + 1)
    history.file_away("2019.jsonl.gz", dict.fromkeys(DAYS[:4], (100, 200, 300)))
    return history


@pytest.fixture
def history(tmp_path, spark) -> History:
    return delivered(History(tmp_path, lambda: spark))


@pytest.fixture(scope="module")
def first_run(tmp_path_factory, spark) -> History:
    """The archive is in, and the days are built. Read only."""
    history = delivered(History(tmp_path_factory.mktemp("first run"), lambda: spark))
    history.take_in()
    history.run()
    return history


@pytest.fixture
def built(first_run, tmp_path) -> History:
    """The same, to be changed."""
    shutil.copytree(first_run.root, tmp_path / "copy")
    return History(tmp_path / "copy", first_run.spark)


def sales(history: History) -> list[tuple]:
    return history.rows(SALES, "arrival_day", "orders", "cents")


@pytest.mark.parametrize("precedence", ["landing", "archive", "both"])
def test_a_day_that_both_have_gets_the_rows_that_precedence_says_and_it_is_reported(
    history, precedence, golden
):
    history.precedence = precedence
    history.take_in()
    result = history.run()
    assert sales(history) == history.expected()
    overlap = history.status().partitions[RAW, DAYS[2]].why
    golden(overlap)
    samples = {build.day: build.samples.get(NOTES) for build in result[RAW].built}
    assert samples == {at: [overlap] if at in DAYS[2:4] else None for at in DAYS}
    source = history.workspace.tables[0].source()
    assert overlap in source.described(history.workspace.area, DAYS[2])
    files = {build.day: len(build.files) for build in result[RAW].built}
    assert files == {at: 2 if precedence == "both" and at in DAYS[2:4] else 1 for at in DAYS}


def unread(history):
    workspace = history.workspace
    return unread_lines(workspace.tables, workspace.area, workspace.calendar)


def test_days_are_outdated_once_an_archive_is_in_and_where_it_changed_them(history):
    history.run()
    # Those that nothing was delivered for.
    assert {build.day for build in history.run()[RAW].built} <= {*DAYS[:2]}
    assert "past/2019.jsonl.gz" in unread(history)[RAW]
    history.take_in()
    assert unread(history) == {}
    assert {build.day for build in history.run()[RAW].built} == {*DAYS[:2]}
    assert sales(history) == history.expected()
    history.file_away(
        "2019.jsonl.gz", {DAYS[0]: (100, 200, 300), DAYS[1]: (5, 6, 7), DAYS[2]: (1,)}
    )
    history.take_in()
    # The first day is the same in both, the third is the landing's.
    assert history.outdated() == [DAYS[1]]
    assert {build.day for build in history.run()[RAW].built} == {DAYS[1]}
    assert sales(history) == [
        row if row[0] != DAYS[1] else (DAYS[1], 3, 18) for row in history.expected()
    ]


def test_nothing_is_computed_and_nothing_read_when_nothing_changed(history):
    history.take_in()
    history.run()
    assert history.take_in() == {}
    history.spark = no_engine
    assert not any(result.built for result in history.run().values())


def no_engine():
    raise AssertionError("Spark was asked for although nothing was to be computed")


def test_a_full_refresh_of_the_same_archives_makes_no_day_outdated(built):
    (again,) = built.take_in(full_refresh=True).values()
    assert again.bytes_read == (built.workspace.area.root / "past" / "2019.jsonl.gz").stat().st_size
    assert built.outdated() == []
    built.spark = no_engine
    assert not any(result.built for result in built.run().values())


def test_which_of_two_archives_was_taken_in_last_changes_no_day_that_both_have(history):
    history.precedence = "both"
    history.file_away("older.jsonl", {DAYS[0]: (7, 8)})
    history.take_in()
    history.run()
    assert sales(history) == history.expected()
    history.file_away(
        "2019.jsonl.gz", dict.fromkeys(DAYS[:3], (100, 200, 300)) | {DAYS[3]: (1, 2, 3)}
    )
    history.take_in()
    assert history.outdated() == [DAYS[3]]


def test_a_day_that_lands_after_it_was_built_from_an_archive_is_the_landings(built):
    built.land(DAYS[0], 1, 2, 3)
    assert built.outdated() == [DAYS[0]]
    assert [build.outcome for build in built.run()[RAW].built] == ["accepted"]
    assert sales(built) == built.expected()


def test_a_day_gone_from_the_landing_is_read_from_an_archive_with_as_many_rows(history):
    history.run(DAYS[2:])
    history.take_in()
    for at in DAYS[2:4]:
        (history.workspace.area.root / "orders" / f"{at}.jsonl").unlink()
    assert [build.outcome for build in history.run(DAYS[2:4])[RAW].built] == [
        "accepted",
        "accepted",
    ]
    assert sales(history) == [row for row in history.expected() if row[0] >= DAYS[2]]


def test_an_archive_that_loses_a_day_leaves_that_day_as_it_was(built):
    before = sales(built)
    built.file_away("2019.jsonl.gz", {DAYS[0]: (100, 200, 300)})
    built.take_in()
    built.run()
    assert sales(built) == before


def test_a_day_of_far_fewer_rows_is_refused_whichever_flow_it_comes_by(built, golden):
    built.file_away("2019.jsonl.gz", {DAYS[0]: (1,), DAYS[1]: (100, 200, 300)})
    built.take_in()
    failed = built.run()[RAW].failed()
    assert [build.day for build in failed] == [DAYS[0]]
    golden(failed[0].message)


def test_no_day_has_rows_of_an_archive_that_is_half_in(history):
    history.run(DAYS[2:])
    more = [date(2000, 1, 1) + timedelta(days=n) for n in range(1500)]
    history.file_away("2019.jsonl.gz", dict.fromkeys([*DAYS[:4], *more], (100, 200, 300)))
    killed_load(ArchiveLake(history.root))
    assert history.outdated() == []
    # Only the four days of the landing are there.
    assert not history.run()[RAW].accepted()[4:]
    history.take_in()
    history.run()
    assert sales(history) == [row for row in history.expected() if row[0] in DAYS]


@pytest.mark.parametrize("precedence", ["landing", "both"])
def test_both_flows_at_once_lose_nothing_and_double_nothing(tmp_path, spark, precedence, seed):
    """Archives are taken in, changed and taken in again while days land, are corrected and are
    built; then all that is outdated is built once more. The tables equal those of a lake that has
    seen only the last state, and DuckDB's.
    """
    chance = random.Random(seed)
    history = History(tmp_path / "one", lambda: spark, precedence)
    stop = threading.Event()
    errors = list[BaseException]()

    def archives() -> None:
        try:
            for n in range(6):
                filed = {
                    at: [chance.randrange(1000) for _ in range(5)] for at in chance.sample(DAYS, 5)
                }
                history.file_away(f"{n % 2}.jsonl.gz", filed)
                history.take_in()
        except BaseException as error:
            errors.append(error)
        finally:
            stop.set()

    thread = threading.Thread(target=archives)
    thread.start()
    rounds = 0
    while not stop.is_set() or rounds < 2:
        history.land(DAYS[rounds % len(DAYS)], *[rounds, rounds + 1, 3, 4])
        history.run(accept=everything(history))
        rounds += 1
    thread.join()
    assert errors == []
    history.run(accept=everything(history))
    assert history.outdated() == []
    fresh = History(tmp_path / "two", lambda: spark, precedence)
    (fresh.root / "landing").parent.mkdir(parents=True)
    (fresh.root / "landing").symlink_to(history.root / "landing")
    fresh.take_in()
    fresh.run()
    columns = ("arrival_day", "source_file", "number", "cents")
    days = {row[0] for row in fresh.rows(RAW, *columns)}
    assert [row for row in history.rows(RAW, *columns) if row[0] in days] == fresh.rows(
        RAW, *columns
    )
    assert sales(fresh) == fresh.expected()


def everything(history: History) -> str:
    """Every file, to be accepted where it has fewer lines or is gone from a day."""
    root = history.workspace.area.root
    return ",".join(
        path.relative_to(root).as_posix() for path in sorted(Path(root).rglob("*.jsonl*"))
    )
