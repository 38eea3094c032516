"""A Delta table as a source: a day is its files; a commit makes exactly the days outdated whose files it changed."""

from datetime import date

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.sources.delta import DeltaSource
from backfill_assets.sources.protocol import Delivery, LandingArea
from tests.deliveries import day, days

DATES = pa.date32()
ORDERS = DeltaSource("orders", "ordered_on")


def append(root, rows: dict[date, list[int]], kind: pa.DataType = DATES) -> None:
    table = pa.table({
        "ordered_on": pa.array([at for at, cents in rows.items() for _ in cents]).cast(kind),
        "cents": [each for cents in rows.values() for each in cents],
    })  # fmt: skip
    write_deltalake(str(root / "orders"), table, mode="append", partition_by=["ordered_on"])


def fingerprints(root) -> dict[date, str]:
    delivered = ORDERS.delivered(LandingArea(root), days(0, 1, 2))
    return {at: each.fingerprint for at, each in delivered.items() if isinstance(each, Delivery)}


@pytest.mark.parametrize("kind", [pa.date32(), pa.string()], ids=["dates", "texts"])
def test_a_day_is_delivered_as_the_files_of_its_partition(tmp_path, kind):
    append(tmp_path, {day(0): [1, 2], day(1): [3]}, kind)
    delivered = ORDERS.delivered(LandingArea(tmp_path), days(0, 1, 2))
    assert [isinstance(each, Delivery) and list(each.files.values()) for each in delivered.values()] == [[2], [1], False]
    assert isinstance(delivered[day(2)], NotDelivered)
    first, *files = ORDERS.described(LandingArea(tmp_path), day(0))
    assert (first, [file.rpartition(", ")[2] for file in files]) == ("orders at version 0", ["2 rows"])


def test_a_commit_changes_the_days_that_it_writes_to_and_no_others(tmp_path):
    append(tmp_path, {day(0): [1, 2], day(1): [3]})
    before = fingerprints(tmp_path)
    append(tmp_path, {day(1): [4], day(2): [5]})
    after = fingerprints(tmp_path)
    assert after[day(0)] == before[day(0)]
    assert after[day(1)] != before[day(1)]
    DeltaTable(str(tmp_path / "orders")).delete(f"ordered_on = '{day(2)}'")
    assert fingerprints(tmp_path) == {at: after[at] for at in days(0, 1)}


def test_a_table_that_is_not_there_or_has_other_partitions_fails_its_days_and_says_so(tmp_path):
    area = LandingArea(tmp_path)
    missing = ORDERS.delivered(area, [day(0)])[day(0)]
    assert isinstance(missing, NotDelivered)
    assert str(missing) == f"no source for {day(0)}: there is no Delta table at {tmp_path}/orders"
    append(tmp_path, {day(0): [1]})
    other = DeltaSource("orders", "cents").delivered(area, [day(0)])[day(0)]
    assert (type(other), str(other)) == (
        SourceError, f"no source for {day(0)}: the Delta table {tmp_path}/orders is partitioned by ordered_on, not by cents",
    )  # fmt: skip


def test_spark_reads_the_rows_of_the_days_asked_for(tmp_path, spark):
    append(tmp_path, {day(0): [1, 2], day(1): [3]}, pa.string())
    append(tmp_path, {day(1): [4]}, pa.string())
    read = ORDERS.read(LandingArea(tmp_path), spark, days(1, 2)).orderBy("cents").collect()
    assert [row.asDict() for row in read] == [
        {"arrival_day": day(1), "ordered_on": str(day(1)), "cents": cents} for cents in (3, 4)
    ]
    assert ORDERS.size(LandingArea(tmp_path), days(1)) > 0
