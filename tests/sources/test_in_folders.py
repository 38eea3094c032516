"""Columns in the names of folders, as Hive and Spark write them: `store=north/2024-06-01.csv`."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets import Csv, JsonLines, Landing, Parquet, field
from backfill_assets.sources.area import LandingArea
from tests.worlds.deliveries import day, days, delivery_of, put, refusal_of

FIELDS = [
    field("store STRING", required=True),
    field("floor INT"),
    field("cents BIGINT", "cents", "amount"),
]
NULL = "__HIVE_DEFAULT_PARTITION__"
# By folder, what the columns `store` and `floor` are, and what of them does not fit its type.
FOLDERS = {
    "store=north/floor=2": ("north", 2, {}),
    "store=a%2Fb %C3%A9/floor=-1": ("a/b é", -1, {}),
    f"store={NULL}/floor=0": (None, 0, {}),
    "store=/floor=x": ("", None, {"floor": "x"}),
    "store=south": ("south", None, {}),
}


def write(root, folder: str, number: int, form) -> str:
    """A file of two rows of its own, and its name."""
    amounts = [10 * number, 10 * number + 1]
    match form:
        case Parquet():
            name = f"sales/{folder}/{day(0)}.parquet"
            pq.write_table(pa.table({"amount": amounts}), put(root, name, b""))
        case Csv():
            name = f"sales/{folder}/{day(0)}.csv.gz"
            put(root, name, "amount\n" + "".join(f"{amount}\n" for amount in amounts))
        case _:
            name = f"sales/{folder}/{day(0)}.jsonl"
            put(root, name, "".join(json.dumps({"amount": n}) + "\n" for n in amounts))
    return name


@pytest.mark.parametrize("form", [Csv(), JsonLines(), Parquet()], ids=["csv", "json", "parquet"])
def test_declared_columns_get_the_values_of_folders(tmp_path, spark, form):
    expected = []
    for number, (folder, values) in enumerate(FOLDERS.items()):
        name = write(tmp_path, folder, number, form)
        expected += [(name, *values, 10 * number + n) for n in range(2)]
    source = Landing("sales", ["*/%Y-%m-%d*", "*/*/%Y-%m-%d*"], form, FIELDS)
    area = LandingArea(tmp_path)
    assert delivery_of(source, area).doubts == {}
    read = source.read(area, spark, days(0)).collect()
    found = [
        (row.source_file, row.store, row.floor, row.unparsed, row.cents)
        for row in read
        if row.malformed is None
    ]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert all(row.unknown_fields == {} for row in read)


def test_the_folders_of_the_day_may_be_columns_too(tmp_path, spark):
    put(tmp_path, "sales/year=2019/month=08/day=15/store=x/a.csv", "cents\n1\n")
    fields = [*FIELDS, field("month STRING")]
    source = Landing("sales", format=Csv(), fields=fields)
    (row,) = source.read(LandingArea(tmp_path), spark, days(0)).collect()
    assert (row.store, row.month, row.cents) == ("x", "08", 1)


def test_a_column_that_no_folder_has_is_missing(tmp_path, golden):
    put(tmp_path, "sales/shop=x/2019-08-15.csv", "cents\n1\n")
    source = Landing("sales", "*/%Y-%m-%d.csv", Csv(), FIELDS)
    (why,) = delivery_of(source, LandingArea(tmp_path)).doubts.values()
    golden(why)


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("2019-08-15.csv", "store,cents\nnorth,1\n", Csv()),
        ("2019-08-15.jsonl", '{"store": "south", "cents": 1}\n', JsonLines()),
    ],
    ids=["csv", "json"],
)
def test_a_file_with_the_column_of_its_folder_is_refused(tmp_path, name, text, form, golden):
    put(tmp_path, f"sales/store=north/{name}", text)
    source = Landing("sales", "store=*/%Y-%m-%d*", form, FIELDS)
    golden(str(refusal_of(source, LandingArea(tmp_path))))


def test_other_folders_and_undeclared_columns_are_ignored(tmp_path):
    put(tmp_path, "sales/store=north/kind=a/2019-08-15.csv", "cents\n1\n")
    source = Landing("sales", "*/*/%Y-%m-%d.csv", Csv(), FIELDS)
    delivery = delivery_of(source, LandingArea(tmp_path))
    assert (delivery.doubts, delivery.undeclared, delivery.absent) == ({}, [], {"floor": ""})
