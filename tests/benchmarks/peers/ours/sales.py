"""The three tables in this package."""

from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import backfill_assets
from backfill_assets import Csv, Landing, SliceDays, field, rules, same_day, table, window

EVENTS = Landing(
    "events",
    format=Csv(),
    fields=[
        field("number BIGINT", required=True),
        field("region STRING"),
        field("customers BIGINT"),
    ],
)


@table(
    "raw/events",
    partition_by="arrival_day",
    columns=EVENTS.row_columns,
    reads={"rows": EVENTS},
    rules=[rules.has_rows()],
)
def events(rows: DataFrame) -> DataFrame:
    """One row per line of the day's file."""
    return rows


@table(
    "staging/daily",
    partition_by="day",
    key=["region"],
    columns="day DATE, region STRING, updates BIGINT, customers BIGINT",
    reads={"events": same_day(events)},
    rules=[rules.has_rows(), rules.unique_key()],
)
def daily(events: DataFrame) -> DataFrame:
    """One row per day and region."""
    rows = events.withColumnRenamed("arrival_day", "day").groupBy("day", "region")
    return rows.agg(F.count("*").alias("updates"), F.max("customers").alias("customers"))


@table(
    "features/weekly",
    partition_by="day",
    key=["region"],
    columns="day DATE, region STRING, updates BIGINT, customers BIGINT",
    reads={"days": SliceDays(), "daily": window(daily, first=-6, last=0)},
    rules=[rules.has_rows(), rules.unique_key()],
)
def weekly(days: DataFrame, daily: DataFrame) -> DataFrame:
    """One row per day and region: the seven days that end on the day."""
    of_days = days.withColumnRenamed("day", "end")
    rows = daily.join(of_days, F.expr("day BETWEEN end - 6 AND end"))
    sums = rows.groupBy(F.col("end").alias("day"), "region")
    return sums.agg(F.sum("updates").alias("updates"), F.max("customers").alias("customers"))


defs = backfill_assets.definitions(
    tables=[events, daily, weekly], first_day=date(2019, 8, 15), last_day=date(2019, 10, 13)
)
