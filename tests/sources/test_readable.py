"""Files that Spark cannot read as they lie, and what it reads of their copies."""

import gzip
import json
from datetime import UTC, datetime, time
from decimal import Decimal

import numpy as np
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


def test_columns_that_differ_only_in_case_are_refused(tmp_path):
    pq.write_table(
        pa.table({"N": [1], "a": [2], "n": [3]}), put(tmp_path, "events/2019-08-15.parquet", b"")
    )
    refused = refusal_of(
        Landing("events", format=Parquet(), fields=[field("a BIGINT")]), LandingArea(tmp_path)
    )
    assert refused.what.endswith(
        "2019-08-15.parquet has the columns N, n, which Spark takes for one"
    )


@pytest.mark.parametrize("packed", ["gzip", "zstd"])
def test_spark_reads_a_cut_packed_file_as_far_as_it_goes(tmp_path, spark, packed):
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
    assert "cannot be read to its end" in delivery.doubts[name]
    read = [row["line"] for row in rows_of(spark, tmp_path, source)]
    assert 100 < len(read) == delivery.files[name] < 9000
    # The last one may be half a line.
    assert [json.loads(line)["n"] for line in read[:-1]] == list(range(len(read) - 1))


def test_a_file_that_changed_meanwhile_is_not_copied(tmp_path):
    path = put(tmp_path, "a.csv.gz", gzip.compress(b"a,b\n1,2\n")[:-9])
    contents = Csv().contents(path)
    assert spark_readable(path, contents, tmp_path / "cache").read_text() == "a,b\n1,2\n"
    with pytest.raises(OSError, match="it changed after it was first read"):
        spark_readable(path, FileContents(content="other", cut=contents.cut), tmp_path / "cache")
