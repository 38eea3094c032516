"""`backfill_assets.read`: a release as pandas, DuckDB and Spark see it, while others are added and
versions go.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, time
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from backfill_assets import open_release, read
from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake.channels import CANDIDATE, STABLE, Pointer
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.releases import Releases, TableVersion
from backfill_assets.publish.pointers import follow
from tests.worlds.deliveries import day
from tests.worlds.recorded import (
    RELEASED_COLUMN,
    RELEASED_TABLE,
    THREE_DAYS,
    add_release,
    move_pointer,
    table_versions,
    write_rows,
)
from tests.worlds.tables import accepted_build, table


@pytest.fixture
def releases(tmp_path: Path, monkeypatch) -> Releases:
    """Release 1 has three days; release 2 has another second day and a fourth one. Readers of
    `stable` are pinned to release 1.
    """
    monkeypatch.setenv("BACKFILL_LAKE", str(tmp_path))
    releases = Releases(str(tmp_path))
    write_rows(tmp_path, THREE_DAYS)
    first = add_release(releases, 0)
    write_rows(tmp_path, {day(1): ["new"], day(3): ["3a"]})
    releases.add(first, table_versions(1), kind="publish", who="ben", reason="")
    move_pointer(releases.root, STABLE, Pointer(1), "a wrong night")
    move_pointer(releases.root, CANDIDATE, Pointer(2), "to compare")
    return releases


FIRST = sorted((at, n) for at, of_day in THREE_DAYS.items() for n in of_day)
SECOND = [
    (day(0), "0a"),
    (day(0), "0b"),
    (day(1), "new"),
    (day(2), "2a"),
    (day(2), "2b"),
    (day(3), "3a"),
]


def rows(dataset) -> list[tuple[date, str]]:
    return sorted((row[RELEASED_COLUMN], row["n"]) for row in dataset.to_table().to_pylist())


def test_a_release_is_read_by_its_number_and_by_its_channel(releases):
    assert rows(read(RELEASED_TABLE)) == rows(read(RELEASED_TABLE, release=1)) == FIRST
    assert (
        rows(read(RELEASED_TABLE, channel=CANDIDATE))
        == rows(read(RELEASED_TABLE, release=2))
        == SECOND
    )
    assert rows(read(table(RELEASED_TABLE), release=open_release(channel=CANDIDATE))) == SECOND
    assert (open_release(1), open_release()) == (releases.get(1), releases.get(1))


def test_live_has_rows_that_no_release_has_yet(releases, tmp_path):
    write_rows(tmp_path, {day(4): ["just built"]})
    expected = [*SECOND, (day(4), "just built")]
    assert rows(read(RELEASED_TABLE, live=True)) == expected
    assert rows(read(table(RELEASED_TABLE), live=True, days=day(4))) == expected[-1:]
    assert rows(read(RELEASED_TABLE, channel=CANDIDATE)) == SECOND


@pytest.mark.parametrize(
    "named", [{"release": 1}, {"channel": CANDIDATE}, {"preview": "ab"}, {}], ids=str
)
def test_live_excludes_a_release_and_needs_a_table(releases, named):
    name = RELEASED_TABLE if named else "staging/unknown"
    with pytest.raises(UsageError):
        read(name, live=True, **named)


@pytest.mark.parametrize(
    ("days", "numbers"),
    [
        pytest.param(day(1), {1}, id="a date"),
        pytest.param(
            [datetime.combine(day(1), time(12))], {1}, id="a time of a date, such as pandas has"
        ),
        pytest.param(
            f"{day(0)},{day(2)}..{day(9)}",
            {0, 2},
            id="as typed, with a gap, and days that the release has not",
        ),
        pytest.param([day(2), str(day(0)), day(2)], {0, 2}, id="several, in any order, one twice"),
        pytest.param([], set(), id="none"),
        pytest.param(
            "2001-01-01",
            set(),
            id="a day outside",
            marks=pytest.mark.filterwarnings("ignore:Version 0 of staging/o,"),
        ),
    ],
)
def test_exactly_the_days_are_read(releases, days, numbers):
    dataset = read(RELEASED_TABLE, days=days)
    assert rows(dataset) == [row for row in FIRST if row[0] in {day(n) for n in numbers}]
    assert dataset.schema.names == [RELEASED_COLUMN, "n"]
    assert dataset.count_rows() == 2 * len(numbers)


@pytest.mark.parametrize(
    "days", ["2001-01-01", f"{day(3)},{day(9)}"], ids=["a day before", "days after"]
)
def test_who_names_only_days_outside_those_of_the_release_is_warned(releases, days, golden):
    with pytest.warns(UserWarning, match="^Version 0") as warned:
        dataset = read(RELEASED_TABLE, days=days)
    assert rows(dataset) == []
    (warning,) = warned
    golden(str(warning.message))


def test_a_list_of_days_is_complete_or_its_missing_days_are_named(releases, tmp_path, golden):
    """A day that was built without rows is not missing, unless it was built after the release."""
    assert rows(read(RELEASED_TABLE, days=[day(0), f"{day(2)}..{day(9)}"])) == [
        row for row in FIRST if row[0] != day(1)
    ]
    with pytest.raises(UsageError) as refused:
        read(RELEASED_TABLE, days=[day(0), day(3), str(day(9))])
    golden(str(refused.value), "two days")
    assert rows(read(RELEASED_TABLE, days=[day(0), day(3)], release=2)) == [
        row for row in SECOND if row[0] in (day(0), day(3))
    ]
    empty = replace(accepted_build(5, table=RELEASED_TABLE), rows=0, delta_version=0)
    later = replace(accepted_build(6, table=RELEASED_TABLE), rows=0, delta_version=2)
    Ledger(str(tmp_path)).append([empty, later])
    assert rows(read(RELEASED_TABLE, days=[day(0), day(5)])) == FIRST[:2]
    assert rows(read(RELEASED_TABLE, days=[day(3), day(5)], release=2)) == SECOND[-1:]
    with pytest.raises(UsageError) as refused:
        read(RELEASED_TABLE, days=(at for at in (day(5), day(6))))
    golden(str(refused.value), "one day")


def test_pandas_and_duckdb_read_the_same_rows_and_duckdb_filters_them(releases):
    dataset = read(RELEASED_TABLE, days=[day(1), day(2)])
    frame = dataset.to_table().to_pandas()
    by_pandas = sorted(zip(frame[RELEASED_COLUMN], frame["n"], strict=True))
    with duckdb.connect() as database:
        database.register("released", dataset)
        by_duckdb = sorted(
            database.execute(f"SELECT {RELEASED_COLUMN}, n FROM released").fetchall()
        )
        second = database.execute(
            f"SELECT n FROM released WHERE {RELEASED_COLUMN} = '{day(1)}' ORDER BY n"
        ).fetchall()
    assert by_pandas == by_duckdb == FIRST[2:]
    assert second == [("1a",), ("1b",)]


def test_spark_reads_the_same_rows(releases, spark):
    for number, expected in ((1, FIRST), (2, SECOND)):
        assert (
            sorted(
                tuple(row) for row in read(RELEASED_TABLE, release=number, spark=spark).collect()
            )
            == expected
        )
    frame = read(RELEASED_TABLE, days=[day(0), day(2)], spark=spark)
    assert sorted(tuple(row) for row in frame.collect()) == [
        row for row in FIRST if row[0] != day(1)
    ]


def test_a_reader_keeps_the_release_that_it_opened(releases, tmp_path):
    dataset = read(RELEASED_TABLE)
    opened = open_release()
    follow(releases.root, STABLE, who="ben", reason="")
    for version in range(2, 5):
        write_rows(tmp_path, {day(n): [f"version {version}"] for n in range(4)})
        add_release(releases, version)
    assert rows(dataset) == rows(read(RELEASED_TABLE, release=opened)) == FIRST
    assert {n for _, n in rows(read(RELEASED_TABLE))} == {"version 4"}


def test_readers_see_both_tables_of_one_release_and_never_go_backwards(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKFILL_LAKE", str(tmp_path))
    both = (RELEASED_TABLE, "features/p")
    releases = Releases(str(tmp_path))
    last = 25

    def publish(number: int) -> None:
        for name in both:
            write_rows(tmp_path, {day(0): [str(number)], day(number): ["new"]}, name)
        versions = {name: TableVersion(name, number - 1) for name in both}
        releases.add(releases.newest(), versions, kind="live", who="", reason="")

    def observe(_: int) -> list[tuple[int, tuple[str, ...], tuple[int, ...]]]:
        seen: list[tuple[int, tuple[str, ...], tuple[int, ...]]] = []
        while not seen or seen[-1][0] < last:
            add_release = open_release()
            table_versions = [read(name, release=add_release).to_table() for name in both]
            numbers = tuple(
                n for table in table_versions for n in table["n"].to_pylist() if n != "new"
            )
            seen.append(
                (add_release.number, numbers, tuple(table.num_rows for table in table_versions))
            )
        return seen

    publish(1)
    with ThreadPoolExecutor(3) as readers:
        observed = [readers.submit(observe, n) for n in range(3)]
        for number in range(2, last + 1):
            publish(number)
        histories = [each.result() for each in observed]
    for seen in histories:
        assert seen == sorted(seen)
        assert seen == [(n, (str(n), str(n)), (n + 1, n + 1)) for n, _, _ in seen]
    assert sum(map(len, histories)) > last


def test_a_table_may_be_read_from_where_the_release_has_it(releases):
    follow(releases.root, STABLE, who="ben", reason="")
    releases.add(
        releases.newest(),
        {"staging/p": TableVersion(RELEASED_TABLE, 0)},
        kind="switch",
        who="",
        reason="",
    )
    assert rows(read("staging/p")) == FIRST


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"release": 9}, id="no such release"),
        pytest.param(
            {"release": "stable"},
            id="no number",
        ),
        pytest.param({"channel": "beta"}, id="no such channel"),
        pytest.param(
            {"table": "staging/p"},
            id="no such table",
        ),
        pytest.param({"days": "monday"}, id="no day"),
        pytest.param({"days": "last 7"}, id="days of a calendar"),
        pytest.param({"days": 20190901}, id="a number"),
        pytest.param({"days": [20190901]}, id="a list of numbers"),
    ],
)
def test_what_there_is_not_is_said_with_what_there_is(releases, given, golden):
    with pytest.raises(UsageError) as refused:
        read(**{"table": RELEASED_TABLE} | given)
    golden(str(refused.value))


def test_without_any_release_it_is_said_how_to_make_one(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKFILL_LAKE", str(tmp_path))
    with pytest.raises(UsageError, match="--reason"):
        read(RELEASED_TABLE)


def test_a_vacuumed_version_is_said_and_other_releases_and_days_are_read(
    releases, tmp_path, golden
):
    DeltaTable(str(tmp_path / RELEASED_TABLE)).vacuum(
        0, enforce_retention_duration=False, dry_run=False
    )
    with pytest.raises(TableUnreadable) as unreadable:
        read(RELEASED_TABLE, release=1)
    golden(re.sub("part-.*parquet", "<FILE>", str(unreadable.value)))
    assert rows(read(RELEASED_TABLE, release=1, days=day(0))) == FIRST[:2]
    assert rows(read(RELEASED_TABLE, release=2)) == SECOND


@pytest.mark.parametrize("all_of_it", [False, True], ids=["of the version", "all of it"])
def test_a_log_that_is_gone_is_said_and_other_releases_are_read(
    releases, tmp_path, all_of_it, golden
):
    log = tmp_path / RELEASED_TABLE / "_delta_log"
    DeltaTable(str(tmp_path / RELEASED_TABLE)).create_checkpoint()
    for path in sorted(log.iterdir()):
        if all_of_it or path.name == f"{0:020}.json":
            path.unlink()
    with pytest.raises(TableUnreadable) as unreadable:
        read(RELEASED_TABLE, release=1)
    golden(str(unreadable.value))
    if not all_of_it:
        assert rows(read(RELEASED_TABLE, release=2)) == SECOND


def test_a_table_with_deletion_vectors_is_left_to_spark(releases, tmp_path, spark, golden):
    folder = tmp_path / RELEASED_TABLE
    spark.sql(
        f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE n = '0a'")
    add_release(releases, DeltaTable(str(folder)).version())
    follow(releases.root, STABLE, who="ben", reason="")
    with pytest.raises(TableUnreadable) as unreadable:
        read(RELEASED_TABLE, days=day(0))
    golden(re.sub("The table has .*deletionVectors.* reader\\.", "<WHY>", str(unreadable.value)))
    assert [tuple(row) for row in read(RELEASED_TABLE, days=day(0), spark=spark).collect()] == [
        (day(0), "0b")
    ]
    assert rows(read(RELEASED_TABLE, release=1)) == FIRST
