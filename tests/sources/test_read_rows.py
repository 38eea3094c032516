"""The rows that Spark reads of files, against Python's own reading of the same files."""

import csv
import gzip
import io
import json
import random
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets import Csv, JsonLines, Landing, Parquet, field
from backfill_assets.sources.area import LandingArea
from tests.worlds.deliveries import day, put

CELLS = [
    "",
    "a",
    "1",
    "-7",
    "1.5",
    "x,y",
    'say "x"',
    " b ",
    "é",
    "NULL",
    "null",
    "\\",
    "#x",
    "9999999999",
]
FIELDS = [
    field("country STRING", "Country_Region", "Country/Region", required=True),
    field("cases BIGINT", "Confirmed"),
    field("lat DOUBLE", "Lat", "Latitude"),
]
LAYOUTS = [
    ["Country/Region", "Confirmed"],
    ["Confirmed", "Country/Region", "Latitude"],
    ["ISO3", "Country_Region", "Lat"],
]


def rows_of(spark, root, source: Landing) -> list[dict]:
    read = source.read(LandingArea(root), spark, [day(0)])
    return [row.asDict() for row in read.collect()]


def as_number(text, kind):
    try:
        number = kind(text) if text and "_" not in text else None
    except ValueError:
        return None
    return number if number is None or kind is float or abs(number) < 2**63 else None


def test_csv_files_of_any_layout_give_the_rows_of_python_s_reader(tmp_path, spark, seed):
    """Twelve files of three layouts, plain and packed, in one reading."""
    chosen = random.Random(seed)
    expected = []
    for n in range(12):
        layout = chosen.choice(LAYOUTS)
        text = io.StringIO()
        rows = [[chosen.choice(CELLS) for _ in layout] for _ in range(6)]
        csv.writer(
            text, lineterminator=chosen.choice(["\n", "\r\n"]), quoting=csv.QUOTE_ALL
        ).writerows([layout, *rows])
        packed = chosen.choice(["", ".gz", ".zst"])
        data = text.getvalue().encode()
        data = {
            "": data,
            ".gz": gzip.compress(data),
            ".zst": bytes(pa.compress(data, "zstd", asbytes=True)),
        }[packed]
        name = f"cases/2019-08-15/{n}.csv{packed}"
        put(tmp_path, name, data)
        for row in rows:
            cells = dict(zip(layout, row, strict=True))
            lat = cells.get("Lat", cells.get("Latitude"))
            expected.append(
                (
                    name,
                    cells.get("Country_Region", cells.get("Country/Region")) or None,
                    as_number(cells.get("Confirmed"), int),
                    as_number(lat, float),
                    cells.get("ISO3") or None,
                )
            )
    read = rows_of(spark, tmp_path, Landing("cases", format=Csv(), fields=FIELDS))
    found = [
        (
            r["source_file"],
            r["country"] or None,
            r["cases"],
            r["lat"],
            r["unknown_fields"].get("ISO3") or None,
        )
        for r in read
    ]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert all(row["malformed"] is None for row in read)


def test_a_row_that_does_not_fit_its_header_is_only_kept_as_text(tmp_path, spark):
    put(
        tmp_path,
        "cases/2019-08-15.csv",
        b'Country_Region;Confirmed\na;1\nb;2;3\nc\n\n"d;4";x\n\xff;5\n',
    )
    read = rows_of(spark, tmp_path, Landing("cases", format=Csv(delimiter=";"), fields=FIELDS))
    assert [(row["country"], row["cases"], row["unparsed"], row["malformed"]) for row in read] == [
        ("a", 1, {}, None),
        (None, None, {}, "b;2;3"),
        (None, None, {}, "c"),
        ("d;4", None, {"cases": "x"}, None),
        (None, None, {}, "\ufffd;5"),
    ]


def test_times_are_read_by_the_declared_patterns_and_others_are_unparsed(tmp_path, spark):
    times = ["1/22/2020 17:00", "2020-02-01T10:13:19", "3/22/20 23:45", "22:00", "", "soon"]
    put(
        tmp_path,
        "cases/2019-08-15.csv",
        "at,day\n" + "\n".join(f"{time},{time[:10]}" for time in times) + "\n",
    )
    patterns = ["M/d/yyyy H:mm", "M/d/yy H:mm", "yyyy-MM-dd'T'HH:mm:ss"]
    fields = [field("at TIMESTAMP", formats=patterns), field("day DATE")]
    read = rows_of(spark, tmp_path, Landing("cases", format=Csv(), fields=fields))
    read_times = [row["at"] and row["at"].replace(tzinfo=None) for row in read]
    assert read_times == [
        datetime(2020, 1, 22, 17),
        datetime(2020, 2, 1, 10, 13, 19),
        datetime(2020, 3, 22, 23, 45),
        None,
        None,
        None,
    ]
    assert [row["unparsed"] for row in read] == [
        {"day": "1/22/2020 "},
        {},
        {"day": "3/22/20 23"},
        {"at": "22:00", "day": "22:00"},
        {},
        {"at": "soon", "day": "soon"},
    ]


def test_json_lines_with_declared_columns_are_rows_and_others_are_malformed(tmp_path, spark):
    objects = [
        {"Country_Region": "a", "Confirmed": 1, "ISO3": "AAA"},
        {"Country/Region": "b", "Lat": 1.5, "Confirmed": "x"},
    ]
    wrong = [
        "[1]",
        '{"Confirmed": 1}',
        '{"Country_Region": "c"} {"Country_Region": "d"}',
        "{'Country_Region': 'e'}",
    ]
    put(tmp_path, "cases/2019-08-15.jsonl", "\n".join([*map(json.dumps, objects), *wrong]) + "\n")
    read = rows_of(spark, tmp_path, Landing("cases", format=JsonLines(), fields=FIELDS))
    assert [
        (row["country"], row["cases"], row["lat"], row["unparsed"], row["unknown_fields"])
        for row in read[:2]
    ] == [
        ("a", 1, None, {}, {"ISO3": "AAA"}),
        ("b", None, 1.5, {"cases": "x"}, {}),
    ]
    assert [row["malformed"] for row in read] == [None, None, *wrong]
    assert [row["country"] for row in read[2:]] == [None] * 4


def test_parquet_files_of_other_types_give_the_declared_ones(tmp_path, spark):
    for name, values in {"a": pa.array([1, None], pa.int32()), "b": pa.array(["2", "x"])}.items():
        path = put(tmp_path, f"cases/2019-08-15/{name}.parquet", b"")
        pq.write_table(
            pa.table({"Confirmed": values, "Country_Region": [name, name], "n": [7, 8]}), path
        )
    read = rows_of(spark, tmp_path, Landing("cases", format=Parquet(), fields=FIELDS))
    found = sorted(
        (row["country"], row["cases"], row["unparsed"], row["unknown_fields"]["n"])
        for row in read
        if row["cases"]
    )
    assert found == [("a", 1, {}, "7"), ("b", 2, {}, "7")]
    unread = [row["unparsed"] for row in read if row["cases"] is None]
    assert sorted(unread, key=len) == [{}, {"cases": "x"}]


def test_without_declared_columns_rows_are_maps_of_text(tmp_path, spark):
    put(tmp_path, "cases/2019-08-15.csv", "a,b\n1,\n")
    read = rows_of(spark, tmp_path, Landing("cases", format=Csv()))
    assert [row["unknown_fields"] for row in read] == [{"a": "1"}]


def test_without_files_there_are_no_rows_and_all_columns(tmp_path, spark):
    put(tmp_path, "cases/2019-08-15.csv", "Country_Region\n")
    source = Landing("cases", format=Csv(), fields=FIELDS)
    put(tmp_path, "cases/2019-08-16.csv", "Country_Region\na\n")
    empty, filled = (source.read(LandingArea(tmp_path), spark, [day(n)]) for n in (0, 1))
    assert (empty.columns, empty.dtypes, empty.collect()) == (filled.columns, filled.dtypes, [])
