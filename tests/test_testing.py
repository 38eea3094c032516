"""`backfill_assets.testing`: a table's function on rows that a test writes."""

from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import DeltaSource, Landing, SliceDays, field, itself, same_day, table
from backfill_assets.errors import UsageError
from backfill_assets.testing import run

pytestmark = pytest.mark.spark
FIRST = date(2024, 6, 1)
SECOND = date(2024, 6, 2)
LINES = Landing("lines", fields=[field("cents BIGINT"), field("at TIMESTAMP")])


@table(
    "raw/lines",
    partition_by="arrival_day",
    key=["cents"],
    columns=LINES.row_columns,
    reads={"rows": LINES},
    version="1",
)
def lines(rows):
    return rows


@table(
    "features/sums",
    partition_by="arrival_day",
    key=["arrival_day"],
    columns="arrival_day DATE, cents BIGINT, before BIGINT",
    reads={"days": SliceDays(), "lines": same_day(lines), "own": itself()},
    version="1",
)
def sums(days, lines, own):
    cents = lines.groupBy("arrival_day").agg(F.sum("cents").alias("cents"))
    before = own.agg(F.max("cents").alias("before"))
    return days.join(cents, "arrival_day", "left").crossJoin(before)


@table(
    "raw/wrong",
    partition_by="arrival_day",
    columns="arrival_day DATE, cents BIGINT",
    reads={"rows": DeltaSource("wrong", day="day")},
    version="1",
)
def wrong(rows):
    return rows.withColumn("cents", F.col("cents").cast("string"))


def test_rows_come_back_typed_and_in_order_of_day_and_key(spark):
    at = datetime(2024, 6, 1, 9, 30)
    rows = run(
        lines,
        {
            "rows": [
                {"arrival_day": SECOND, "cents": 1},
                {"arrival_day": FIRST, "cents": 3, "at": at},
                {"arrival_day": FIRST, "cents": 2, "unparsed": [("at", "noon")]},
            ]
        },
        spark=spark,
    )
    assert [(row["arrival_day"], row["cents"], row["at"]) for row in rows] == [
        (FIRST, 2, None),
        (FIRST, 3, at.replace(tzinfo=UTC)),
        (SECOND, 1, None),
    ]
    assert rows[0]["unparsed"] == [("at", "noon")]


def test_an_input_that_is_left_out_has_no_rows(spark):
    days = {"days": [{"arrival_day": FIRST}]}
    assert run(sums, days, spark=spark) == [{"arrival_day": FIRST, "cents": None, "before": None}]


def test_a_table_gets_its_own_rows_of_before(spark):
    reads: dict[str, Any] = {
        "days": [{"arrival_day": SECOND}],
        "lines": [{"arrival_day": SECOND, "cents": 4}, {"arrival_day": SECOND, "cents": 5}],
        "own": [{"arrival_day": FIRST, "cents": 7}],
    }
    assert run(sums, reads, spark=spark) == [{"arrival_day": SECOND, "cents": 9, "before": 7}]


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param({"line": []}, id="an input"),
        pytest.param({"lines": [{"cent": 1}]}, id="a column"),
    ],
)
def test_unknown_names_are_refused(spark, golden, reads):
    with golden.raises(UsageError):
        run(sums, reads, spark=spark)


def test_other_columns_than_declared_are_refused(spark, golden):
    with golden.raises(UsageError):
        run(wrong, {"rows": [{"arrival_day": FIRST, "cents": 1}]}, spark=spark)
