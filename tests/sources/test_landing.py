"""That Spark reads of files what the manifest says of them."""

import gzip
import random

from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.protocol import Delivery
from tests.worlds.deliveries import LINE, day, delivery_of, put

PIECES = [
    b"{}",
    b"a",
    b"\xff",
    b"\x00",
    b" ",
    b"\t",
    b"\x0b",
    b"\x0c",
    b"\x1c",
    b"\xc2\x85",
    b"\n",
    b"\r",
    b"\r\n",
    b"\xef\xbb\xbf",
]


def test_spark_reads_as_many_lines_of_each_file_as_the_manifest_counts(tmp_path, spark, seed):
    """Forty files, plain and packed, in one job of Spark."""
    chosen = random.Random(seed)
    for n in range(40):
        text = b"".join(chosen.choices(PIECES, k=chosen.randrange(12))) + b"\n{}"
        put(tmp_path, f"lines/2019-08-15/{n}.jsonl", text)
        put(tmp_path, f"lines/2019-08-15/{n}.jsonl.gz", gzip.compress(text))
    source = Landing("lines")
    area = LandingArea(tmp_path)
    delivery = delivery_of(source, area)
    read = (
        source.read(area, spark, [day(0)])
        .groupBy("source_file")
        .agg(F.count("line").alias("lines"))
    )
    assert {row.source_file: row.lines for row in read.collect()} == delivery.files


def test_files_without_lines_are_not_read(tmp_path, spark):
    put(tmp_path, "lines/2019-08-15.jsonl.gz", b"")
    read = Landing("lines").read(LandingArea(tmp_path), spark, [day(0)])
    assert (read.columns, read.collect()) == (["arrival_day", "source_file", "line", "is_utf8"], [])


def test_unread_files_are_named_if_nothing_else_is_delivered(tmp_path, golden):
    for name in (
        "2019-08-15.csv",
        "2019-08-16/a.parquet",
        "2019-08-16/b.jsonl",
        "2019-08-17/_part.csv",
    ):
        put(tmp_path, f"events/{name}", LINE)
    delivered = Landing("events").delivered(LandingArea(tmp_path), [day(0), day(1), day(2)])
    golden(str(delivered[day(0)]), "unread")
    assert isinstance(delivered[day(1)], Delivery)
    golden(str(delivered[day(2)]), "nothing")


def test_unread_files_are_listed_and_change_no_delivery(tmp_path, golden):
    put(tmp_path, "events/2019-08-15/a.jsonl", LINE)
    source = Landing("events")
    area = LandingArea(tmp_path)
    before = delivery_of(source, area)
    for name in (
        "2019-08-15/b.JSONL",
        "2019-08-15/c.jsonl.bz2",
        "2019-08-15/_d.csv",
        "2019-08-15-e.csv",
        "2019-08-15.txt",
    ):
        put(tmp_path, f"events/{name}", LINE)
    (tmp_path / "events/2019-08-15/d").symlink_to(put(tmp_path, "other/d.jsonl", LINE).parent)
    delivery = delivery_of(source, area)
    assert delivery == before
    beside = [
        "2019-08-15/b.JSONL",
        "2019-08-15/c.jsonl.bz2",
        "2019-08-15/d",
        "2019-08-15-e.csv",
        "2019-08-15.txt",
    ]
    assert delivery.unread == [f"events/{name}" for name in beside]
    read, not_read = source.described(area, day(0))
    assert read.startswith("events/2019-08-15/a.jsonl, ")
    golden(not_read)
