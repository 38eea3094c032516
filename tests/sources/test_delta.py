"""A Delta table as a source: a day is its files; a commit makes exactly the days outdated whose
files it changed.
"""

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import IncompleteDelivery, NotDelivered, SourceError
from backfill_assets.servers.child import free_port
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.delta import DeltaSource
from backfill_assets.sources.protocol import DAYS_UNCHANGED, Delivery
from tests.worlds.deliveries import day, days, refusal_of

DATES = pa.date32()
ORDERS = DeltaSource("orders", "ordered_on")


def append(
    root,
    rows: dict[date, list[int]],
    kind: pa.DataType = DATES,
    by: str = "ordered_on",
    cents: str = "cents",
) -> None:
    table = pa.table(
        {
            by: pa.array([at for at, of_day in rows.items() for _ in of_day]).cast(kind),
            cents: [each for of_day in rows.values() for each in of_day],
        }
    )
    write_deltalake(str(root / "orders"), table, mode="append", partition_by=[by])


def fingerprints(root) -> dict[date, str]:
    delivered = ORDERS.delivered(LandingArea(root), days(0, 1, 2))
    return {at: each.fingerprint for at, each in delivered.items() if isinstance(each, Delivery)}


@pytest.mark.parametrize("kind", [pa.date32(), pa.string()], ids=["dates", "texts"])
def test_a_day_is_delivered_as_the_files_of_its_partition(tmp_path, kind):
    append(tmp_path, {day(0): [1, 2], day(1): [3]}, kind)
    delivered = ORDERS.delivered(LandingArea(tmp_path), days(0, 1, 2))
    assert [
        isinstance(each, Delivery) and list(each.files.values()) for each in delivered.values()
    ] == [[2], [1], False]
    assert isinstance(delivered[day(2)], NotDelivered)
    first, *files = ORDERS.described(LandingArea(tmp_path), day(0))
    assert (first, [file.rpartition(", ")[2] for file in files]) == (
        "orders at version 0",
        ["2 rows"],
    )


def test_a_commit_changes_only_the_days_it_writes_to(tmp_path):
    append(tmp_path, {day(0): [1, 2], day(1): [3]})
    before = fingerprints(tmp_path)
    append(tmp_path, {day(1): [4], day(2): [5]})
    after = fingerprints(tmp_path)
    assert after[day(0)] == before[day(0)]
    assert after[day(1)] != before[day(1)]
    DeltaTable(str(tmp_path / "orders")).delete(f"ordered_on = '{day(2)}'")
    assert fingerprints(tmp_path) == {at: after[at] for at in days(0, 1)}


def test_a_missing_table_or_a_day_of_no_such_type_fails_the_days(tmp_path, golden):
    area = LandingArea(tmp_path)
    missing = refusal_of(ORDERS, area)
    assert type(missing) is NotDelivered
    golden(missing.what, "missing")
    append(tmp_path, {day(0): [1]})
    other = refusal_of(DeltaSource("orders", "cents"), area)
    assert type(other) is SourceError
    golden(other.what, "no day")


def test_another_column_called_arrival_day_fails_the_days(tmp_path, golden):
    append(tmp_path, {day(0): [1]}, cents="Arrival_Day")
    refused = refusal_of(ORDERS, LandingArea(tmp_path))
    golden(str(refused))


@pytest.mark.services
def test_days_stay_as_built_while_the_store_does_not_answer(monkeypatch, golden):
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    away = DeltaSource("orders", "ordered_on", path="s3://bucket/orders").delivered(
        LandingArea(Path("/nowhere")), days(0, 1)
    )
    assert {type(each) for each in away.values()} == {IncompleteDelivery}
    error = away[day(0)]
    assert isinstance(error, SourceError)
    assert error.unchanged == DAYS_UNCHANGED
    golden(str(error), REASON=error.what.split(": ", 2)[2])
    assert str(error).isprintable()


def test_an_unreadable_deletion_vector_fails_the_days(tmp_path, golden):
    append(tmp_path, {day(0): [1, 2, 3]})
    log = tmp_path / "orders" / "_delta_log"
    added = next(
        action["add"]
        for line in (log / f"{0:020}.json").open()
        if "add" in (action := json.loads(line))
    )
    vector = {"storageType": "i", "pathOrInlineDv": "0" * 20, "sizeInBytes": 16, "cardinality": 1}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": added["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": added | {"deletionVector": vector}},
    ]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, actions)))
    refused = refusal_of(ORDERS, LandingArea(tmp_path))
    assert type(refused) is SourceError
    golden(str(refused).rpartition(": ")[0])


def add_cents(root: Path, of: list, cents: list[int]) -> None:
    """A row of each of these days, as they are."""
    write_deltalake(
        str(root / "orders"),
        pa.table({"ordered_on": of, "cents": cents}),
        partition_by=["ordered_on"],
    )


def test_a_partition_without_a_day_is_listed_and_stops_no_day(tmp_path, spark):
    """Some of these texts are days to Spark, some to Python, and some to neither."""
    area = LandingArea(tmp_path)
    odd = [
        "total",
        f"{day(0):%Y%m%d}",
        f"{day(0):%G-W%V-%u}",
        f" {day(0)}",
        f"{day(0)}T00:00",
        None,
    ]
    add_cents(tmp_path, [str(day(0)), *odd], [1] + [100] * len(odd))
    delivered, missing = ORDERS.delivered(area, days(0, 1)).values()
    assert isinstance(delivered, Delivery)
    assert delivered.files == {"orders": 1}
    assert isinstance(missing, NotDelivered)
    assert [
        (row.arrival_day, row.cents) for row in ORDERS.read(area, spark, [day(0)]).collect()
    ] == [(day(0), 1)]
    assert ORDERS.unmatched(area) == sorted(f"orders/ordered_on={text}" for text in odd)


def test_a_day_column_of_another_type_fails_the_days(tmp_path, golden):
    add_cents(tmp_path, [20190815], [1])
    refused = refusal_of(ORDERS, LandingArea(tmp_path))
    assert type(refused) is SourceError
    golden(str(refused))


def test_a_damaged_table_fails_the_days(tmp_path):
    append(tmp_path, {day(0): [1]})
    next((tmp_path / "orders" / "_delta_log").glob("*.json")).write_text("no json")
    refused = refusal_of(ORDERS, LandingArea(tmp_path))
    assert type(refused) is SourceError
    assert str(refused).endswith("Fix it there.")


@pytest.mark.parametrize(
    ("kind", "by"),
    [
        pytest.param(
            pa.string(), "ordered_on", id="a day of another name", marks=pytest.mark.scale
        ),
        pytest.param(
            pa.string(), "arrival_day", id="an arrival day as text", marks=pytest.mark.scale
        ),
        pytest.param(DATES, "arrival_day", id="an arrival day"),
    ],
)
def test_spark_reads_the_rows_of_the_requested_days(tmp_path, spark, kind, by):
    source = DeltaSource("orders", by)
    area = LandingArea(tmp_path)
    append(tmp_path, {day(0): [1, 2], day(1): [3]}, kind, by)
    append(tmp_path, {day(1): [4]}, kind, by)
    read = source.read(area, spark, days(1)).orderBy("cents").collect()
    of_day = {"arrival_day": day(1)} | ({by: str(day(1))} if by != "arrival_day" else {})
    assert [row.asDict() for row in read] == [of_day | {"cents": cents} for cents in (3, 4)]
    assert [list(row.asDict()) for row in read] == [[*of_day, "cents"]] * 2
    assert source.size(area, days(1)) > 0
    with pytest.raises(NotDelivered, match=str(day(2))):
        source.read(area, spark, days(1, 2))
