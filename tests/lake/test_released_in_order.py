"""The rows of a released table in order, whatever order they were written in."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Release, TableVersion

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
        (day, f"s{store}", 10 * at + (store % 2)) for at, day in sorted(enumerate(DAYS), key=lambda each: each[1])
        for store in (1, 2, 3, 4)
    ]  # fmt: skip
    assert rows(table, ["store"]) == expected
    assert rows(table, ["store"], DAYS[:2]) == [row for row in expected if row[0] in DAYS[:2]]


def test_without_a_key_all_columns_say_the_order(table):
    assert rows(table) == sorted(rows(table))
    assert rows(table, ["not a column"]) == rows(table)
