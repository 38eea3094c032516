"""Files that Spark cannot read as they lie, and what it reads of their copies."""

import gzip
import json
from datetime import UTC, datetime, time
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets import Csv, Landing, Parquet, field
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.formats import FileContents
from backfill_assets.sources.files.rows import spark_readable
from tests.worlds.deliveries import day, delivery_of, put, refusal_of

AT = datetime(2019, 8, 15, 1, 2, 3, 456789, tzinfo=UTC)
UNKNOWN = {
    "a time of day": (pa.array([time(1, 2, 3)], pa.time64("us")), "01:02:03.000000"),
    "a small float": (pa.array(np.array([1.5], np.float16)), "1.5"),
    "a number of 50 digits": (pa.array([Decimal("1.50")], pa.decimal256(50, 2)), "1.50"),
    "times in a list": (
        pa.array([[AT]], pa.list_(pa.timestamp("ns", "UTC"))),
        "[2019-08-15 01:02:03.456789]",
    ),
    "times in an object": (
        pa.array([{"a": AT}], pa.struct({"a": pa.timestamp("ns", "UTC")})),
        "{2019-08-15 01:02:03.456789}",
    ),
}


def rows_of(spark, root, source: Landing) -> list[dict]:
    delivery_of(source, LandingArea(root))
    return [row.asDict() for row in source.read(LandingArea(root), spark, [day(0)]).collect()]


def test_spark_reads_nanoseconds_of_pandas_and_unusual_names(tmp_path, spark):
    columns = {
        "at": pa.array([AT, None], pa.timestamp("ns", "UTC")),
        "n": [1, 2],
        "t`ick": ["x", "y"],
    }
    pq.write_table(pa.table(columns), put(tmp_path, "events/2019-08-15.parquet", b""))
    fields = [field("at TIMESTAMP"), field("n BIGINT"), field("tick STRING", "t`ick")]
    rows = rows_of(spark, tmp_path, Landing("events", format=Parquet(), fields=fields))
    assert [
        (row["at"] and row["at"].replace(tzinfo=UTC), row["n"], row["tick"], row["unparsed"])
        for row in rows
    ] == [
        (AT, 1, "x", {}),
        (None, 2, "y", {}),
    ]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_with_digits_after_microseconds_are_unparsed(tmp_path, spark, zone):
    """Two files of one day; the times of one of them are exact."""
    exact = pd.to_datetime(
        ["2024-06-01 12:00:00.123456", "1969-12-31 23:59:59.9", None], format="ISO8601"
    )
    rounded = pd.to_datetime(
        ["2024-06-01 12:00:00.123456789", "2024-06-01", "1969-01-01"], format="ISO8601"
    )
    for name, times in (("a", exact), ("b", rounded)):
        path = put(tmp_path, f"events/{day(0)}/{name}.parquet", b"")
        times = (times.tz_localize("UTC").tz_convert(zone) if zone else times).astype(
            pd.DatetimeTZDtype("ns", zone) if zone else "datetime64[ns]"
        )
        table = pa.table({"at": pa.Array.from_pandas(times), "as_text": ["x"] * 3})
        assert "ns" in str(table.schema.field("at").type)
        pq.write_table(table, path)
    fields = [field("at TIMESTAMP"), field("as_text STRING")]
    source = Landing("events", "%Y-%m-%d/*.parquet", format=Parquet(), fields=fields)
    read = {
        (r["source_file"][-9:], r["at"], *r["unparsed"].values())
        for r in rows_of(spark, tmp_path, source)
    }
    moments = {("a.parquet", None if at is pd.NaT else at.to_pydatetime()) for at in exact}
    moments |= {("b.parquet", at.to_pydatetime()) for at in rounded[1:]}
    lost = {row for row in read if len(row) == 3}
    assert {(name, at and at.replace(tzinfo=None)) for name, at in read - lost} == moments
    [(name, at, text)] = lost
    assert (name, at) == ("b.parquet", None)
    assert pd.Timestamp(text) == rounded[0].tz_localize("UTC" if zone else None)


def test_bytes_that_are_no_text_are_unparsed(tmp_path, spark):
    """In columns of bytes and of text, and on a day of which all are text."""
    values = [
        b"ok",
        b"\xff\xfe",
        None,
        "\u00e9\u4e2d\U0001f600".encode(),
        b" \xc3",
        b"-",
        b"",
        b"106",
    ]
    texts = pa.array(values, pa.binary())
    columns = {"bytes": texts, "text": texts.view(pa.string()), "n": texts}
    pq.write_table(pa.table(columns), put(tmp_path, f"events/{day(0)}.parquet", b""))
    valid = pa.table({name: pa.array(["a"], pa.string()) for name in columns})
    pq.write_table(valid, put(tmp_path, f"events/{day(1)}.parquet", b""))
    fields = [field("bytes STRING"), field("text STRING", nulls=["-"]), field("n BIGINT")]
    source = Landing("events", format=Parquet(), fields=fields)

    def text_of(value: bytes | None) -> str | None:
        try:
            return value if value is None else value.decode()
        except UnicodeDecodeError:
            return None

    rows = rows_of(spark, tmp_path, source)
    assert [row["bytes"] for row in rows] == [*map(text_of, values)]
    assert [row["text"] for row in rows] == [None if v == b"-" else text_of(v) for v in values]
    assert [row["n"] for row in rows] == [None] * 7 + [106]
    shown = [{n: t for n, t in row["unparsed"].items() if n != "n"} for row in rows]
    kept = {1: "\ufffd\ufffd", 4: " \ufffd"}
    assert shown == [
        dict.fromkeys(("bytes", "text"), kept[n]) if n in kept else {} for n in range(len(values))
    ]
    (row,) = source.read(LandingArea(tmp_path), spark, [day(1)]).collect()
    assert (row.bytes, row.text, row.n, row.unparsed) == ("a", "a", None, {"n": "a"})


def test_types_that_spark_lacks_are_read_as_text(tmp_path, spark):
    """Five columns of one file."""
    columns = {name.replace(" ", "_"): values for name, (values, _) in UNKNOWN.items()}
    pq.write_table(pa.table(columns), put(tmp_path, "events/2019-08-15.parquet", b""))
    fields = [field("more STRING")]
    source = Landing("events", format=Parquet(), fields=fields)
    (row,) = rows_of(spark, tmp_path, source)
    assert row["unknown_fields"] == {
        name.replace(" ", "_"): text for name, (_, text) in UNKNOWN.items()
    }


def test_columns_that_differ_only_in_case_are_refused(tmp_path, golden):
    pq.write_table(
        pa.table({"N": [1], "a": [2], "n": [3]}), put(tmp_path, "events/2019-08-15.parquet", b"")
    )
    refused = refusal_of(
        Landing("events", format=Parquet(), fields=[field("a BIGINT")]), LandingArea(tmp_path)
    )
    golden(refused.what)


@pytest.mark.parametrize("packed", ["gzip", "zstd"])
def test_spark_reads_a_cut_packed_file_as_far_as_it_goes(tmp_path, spark, packed, golden):
    lines = b"".join(
        b'{"n": %d, "more": "%s"}\n' % (n, bytes(str(n**9), "ascii")) for n in range(9000)
    )
    whole = (
        gzip.compress(lines)
        if packed == "gzip"
        else bytes(pa.compress(lines, "zstd", asbytes=True))
    )
    name = f"events/2019-08-15.jsonl{'.gz' if packed == 'gzip' else '.zst'}"
    put(tmp_path, name, whole[: len(whole) // 2])
    source = Landing("events")
    delivery = delivery_of(source, LandingArea(tmp_path))
    assert [*delivery.doubts] == [name]
    golden(delivery.doubts[name])
    read = [row["line"] for row in rows_of(spark, tmp_path, source)]
    assert 100 < len(read) == delivery.files[name] < 9000
    # The last one may be half a line.
    assert [json.loads(line)["n"] for line in read[:-1]] == list(range(len(read) - 1))


def test_a_file_that_changed_meanwhile_is_not_copied(tmp_path, refused):
    path = put(tmp_path, "a.csv.gz", gzip.compress(b"a,b\n1,2\n")[:-9])
    contents = Csv().contents(path)
    assert spark_readable(path, contents, tmp_path / "cache").read_text() == "a,b\n1,2\n"
    other = FileContents(content="other", cut=contents.cut)
    refused(lambda: spark_readable(path, other, tmp_path / "cache"), kind=OSError)
