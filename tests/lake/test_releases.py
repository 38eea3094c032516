"""Releases: none is lost, one publisher wins each number, pointers stay where they were moved
last. No Spark.
"""

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backfill_assets.errors import Conflict, ServiceUnavailable, UsageError
from backfill_assets.lake.channels import CANDIDATE, STABLE, ChannelHistory, Channels, Pointer
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import (
    Release,
    Releases,
    TableVersion,
    commit_release,
)
from tests.worlds.depth import tries
from tests.worlds.recorded import (
    add_release,
    channel_numbers,
    move_pointer,
    release_many,
    table_versions,
)


@pytest.fixture
def releases(tmp_path: Path) -> Releases:
    return Releases(str(tmp_path))


def test_a_lake_without_releases_has_none_and_reading_makes_nothing(releases, tmp_path):
    assert (releases.newest(), releases.all()) == (None, [])
    for read in (lambda: open_channel(releases.root), lambda: releases.get(1)):
        with pytest.raises(
            UsageError,
            match="--reason",
        ):
            read()
    assert list(tmp_path.iterdir()) == []


def test_a_release_is_read_as_it_was_added(releases):
    first = add_release(releases, 3)
    assert channel_numbers(releases.root) == {STABLE: 1}
    second = releases.add(
        first, table_versions(4), kind="publish", who="ben", reason="Größe [1]", plans=["a1"]
    )
    assert channel_numbers(releases.root) == {STABLE: 2}
    assert (first.number, second.number, second.tables) == (1, 2, table_versions(4))
    assert (first.plans, second.plans) == ((), ("a1",))
    assert second.at > first.at
    assert releases.all() == [first, second]
    assert releases.all(after=1) == [second]
    assert (releases.newest(), releases.get(1)) == (second, first)
    assert (second.changed(first), second.changed(second), first.changed(None)) == (
        ["staging/o"],
        [],
        ["staging/o"],
    )


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda r: r.get(9), id="a number"),
        pytest.param(lambda r: open_channel(r.root, "beta"), id="a channel"),
    ],
)
def test_what_there_is_not_is_named_with_what_there_is(releases, read, golden):
    add_release(releases, 1)
    with pytest.raises(UsageError) as refused:
        read(releases)
    golden(str(refused.value))
    assert len(releases.all()) == 1


def test_a_release_made_from_an_outdated_one_is_refused_and_nothing_is_lost(releases, golden):
    first = add_release(releases, 1)
    second = add_release(releases, 2)
    with pytest.raises(Conflict) as refused:
        add_release(releases, 3, first)
    golden(str(refused.value))
    with pytest.raises(Conflict) as refused:
        releases.add(None, table_versions(1), kind="live", who="ben", reason="")
    golden(str(refused.value), "first")
    assert releases.all() == [first, second]


def test_a_release_comes_after_the_one_before_it_on_hosts_whose_clocks_differ(releases):
    first = add_release(releases, 1)
    ahead = replace(first, at=first.at.replace(year=first.at.year + 1))
    assert releases.add(ahead, table_versions(2), kind="live", who="", reason="").at > ahead.at


def test_each_release_is_a_document_and_is_read_as_it_was_added(releases, tmp_path):
    added = [add_release(releases, version) for version in range(12)]
    names = sorted(path.name for path in (tmp_path / "_releases").iterdir())
    assert names == [f"{number:09d}.json" for number in range(1, 13)]
    assert releases.all() == added
    assert [releases.get(each.number) for each in added] == added
    assert releases.newest() == added[-1]


def test_one_of_several_publishers_with_the_same_predecessor_wins(releases):
    for number in range(1, 6):
        after = releases.newest()
        start = Barrier(4)

        def publish(
            who: str, after: Release | None = after, start: Barrier = start
        ) -> Release | None:
            start.wait()
            try:
                return releases.add(after, table_versions(1), kind="live", who=who, reason="")
            except Conflict:
                return None

        with ThreadPoolExecutor(4) as pool:
            won = [added for added in pool.map(publish, "abcd") if added]
        assert [each.number for each in won] == [number]
        assert releases.newest() == won[0]


def test_publishers_in_threads_lose_nothing(releases):
    start = Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda who: release_many(releases.root, who, 8, start.wait), "abcd"))
    assert_each_added_its_own(releases, 4, 8)


def test_publishers_in_processes_that_begin_at_once_lose_nothing(releases):
    spawn = get_context("spawn")
    start = spawn.Barrier(3)
    publishers = [
        spawn.Process(target=release_many_at_once, args=(releases.root, who, start))
        for who in "abc"
    ]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.join()
    assert [publisher.exitcode for publisher in publishers] == [0, 0, 0]
    assert_each_added_its_own(releases, 3, 12)


def release_many_at_once(root: str, who: str, start) -> None:
    release_many(root, who, 12, start.wait)


def assert_each_added_its_own(releases: Releases, publishers: int, times: int) -> None:
    every = releases.all()
    assert [each.number for each in every] == list(range(1, publishers * times + 1))
    assert sorted((each.who, each.reason) for each in every) == sorted(
        (who, f"version {n}") for who in "abcd"[:publishers] for n in range(times)
    )
    assert channel_numbers(releases.root) == {STABLE: len(every)}
    assert all(before.at < later.at for before, later in pairwise(every))


def test_readers_keep_their_release_if_a_new_one_cannot_be_written(releases, tmp_path, golden):
    first = add_release(releases, 1)
    for path in (tmp_path / "_locks").iterdir():
        path.unlink()
    (tmp_path / "_locks").rmdir()
    (tmp_path / "_locks").write_text("")  # as on a disk that takes no new files
    with pytest.raises(ServiceUnavailable) as failed:
        commit_release(releases.root, replace(first, number=2))
    golden(str(failed.value))
    assert releases.all() == [first]


class AsInMemory(RuleBasedStateMachine):
    """Releases and pointers do what a list and a dictionary do, also for late writers."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.releases = Releases(self.root)
        self.numbers: list[int] = []  # of each release, the version of its table
        self.pinned: dict[str, int] = {}
        self.before_move: Channels | None = None

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @rule(version=st.integers(0, 9))
    def add(self, version: int) -> None:
        newest = self.releases.newest()
        tables = table_versions(version)
        added = self.releases.add(newest, tables, kind="live", who="a", reason="b")
        self.numbers.append(version)
        assert added.number == len(self.numbers)

    @precondition(lambda self: self.numbers)
    @rule(channel=st.sampled_from([STABLE, CANDIDATE]), data=st.data())
    def pin(self, channel: str, data) -> None:
        number = data.draw(st.integers(1, len(self.numbers)))
        self.before_move = ChannelHistory(self.root).now()
        move_pointer(self.root, channel, Pointer(number))
        self.pinned[channel] = number

    @precondition(lambda self: self.numbers)
    @rule(channel=st.sampled_from([STABLE, CANDIDATE]))
    def follow(self, channel: str) -> None:
        self.before_move = ChannelHistory(self.root).now()
        move_pointer(self.root, channel, Pointer())
        self.pinned.pop(channel, None)

    @precondition(lambda self: self.before_move)
    @rule(channel=st.sampled_from([STABLE, CANDIDATE]))
    def move_late(self, channel: str) -> None:
        history = ChannelHistory(self.root)
        before = self.before_move
        assert before
        with pytest.raises(Conflict, match="was changed meanwhile by ben"):
            history.move(before, channel, Pointer(1), who="late", reason="")
        with pytest.raises(Conflict, match="was changed meanwhile by ben"):
            history.retire(before, [1], date(2026, 1, 1), who="late", why="")

    @precondition(lambda self: len(self.numbers) > 1)
    @rule(data=st.data())
    def come_late(self, data) -> None:
        after = self.releases.get(data.draw(st.integers(1, len(self.numbers) - 1)))
        with pytest.raises(Conflict):
            self.releases.add(after, table_versions(0), kind="live", who="late", reason="")

    @invariant()
    def agree(self) -> None:
        every = self.releases.all()
        assert [each.tables["staging/o"].version for each in every] == self.numbers
        assert [each.number for each in every] == list(range(1, len(self.numbers) + 1))
        assert self.releases.newest() == (every[-1] if every else None)
        stable = self.pinned.get(STABLE, len(every))
        for channel in (STABLE, CANDIDATE) if every else ():
            number = self.pinned.get(channel, stable)
            assert open_channel(self.root, channel) == every[number - 1]


AsInMemory.TestCase.settings = settings(
    max_examples=tries(10), stateful_step_count=20, deadline=None
)
TestReleasesAsInMemory = AsInMemory.TestCase


DAYS = [date(2024, 6, 2), date(2024, 6, 10), date(2024, 6, 1)]
RELEASE = Release(
    1, datetime(2026, 1, 1, tzinfo=UTC), "ada", "", "live", {"a/b": TableVersion("a/b", 1)}
)


@pytest.fixture
def table(tmp_path: Path) -> ReleasedTable:
    """Two commits, each with rows of three days; `n` falls while the key `store` does not follow
    it.
    """
    for commit in (0, 1):
        rows = [
            (day, store, 10 * at + commit)
            for at, day in enumerate(DAYS)
            for store in (f"s{2 - commit}", f"s{4 - commit}")
        ]
        days, stores, numbers = zip(*rows, strict=True)
        data = pa.table({"day": pa.array(days, pa.date32()), "store": stores, "n": numbers})
        write_deltalake(str(tmp_path / "a/b"), data, mode="append", partition_by=["day"])
    return ReleasedTable(str(tmp_path), RELEASE, "a/b")


def rows(table: ReleasedTable, *options) -> list[tuple]:
    written = [row for batch in table.batches(*options) for row in batch.to_pylist()]
    return [(row["day"], row["store"], row["n"]) for row in written]


def test_rows_are_in_order_of_day_and_key(table):
    expected = [
        (day, f"s{store}", 10 * at + (store % 2))
        for at, day in sorted(enumerate(DAYS), key=lambda each: each[1])
        for store in (1, 2, 3, 4)
    ]
    assert rows(table, ["store"]) == expected
    assert rows(table, ["store"], DAYS[:2]) == [row for row in expected if row[0] in DAYS[:2]]


def test_without_a_key_all_columns_say_the_order(table):
    assert rows(table) == sorted(rows(table))
    assert rows(table, ["not a column"]) == rows(table)
