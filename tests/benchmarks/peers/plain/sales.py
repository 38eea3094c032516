"""The three tables in plain Dagster: one asset a table, one partition a day, one run a day."""

import os
from pathlib import Path

from dagster import (
    AssetExecutionContext,
    DailyPartitionsDefinition,
    Definitions,
    asset,
    in_process_executor,
)
from delta import configure_spark_with_delta_pip
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

LAKE = Path(os.environ["LAKE"])
LANDING = Path(os.environ["LANDING"])
DAYS = DailyPartitionsDefinition("2019-08-15", end_date="2019-10-14")


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[*]")
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    builder = builder.config("spark.sql.catalog.spark_catalog", catalog)
    builder = builder.config("spark.ui.enabled", "false")
    return configure_spark_with_delta_pip(builder).getOrCreate()


def save(rows: DataFrame, name: str, day: str) -> None:
    writer = rows.write.format("delta").mode("overwrite").partitionBy("day")
    writer.option("replaceWhere", f"day = '{day}'").save(str(LAKE / name))


@asset(partitions_def=DAYS)
def events(context: AssetExecutionContext) -> None:
    day = context.partition_key
    schema = "number BIGINT, region STRING, customers BIGINT"
    rows = session().read.csv(str(LANDING / "events" / f"{day}.csv"), schema=schema, header=True)
    save(rows.select(F.lit(day).cast("date").alias("day"), "*"), "events", day)


@asset(partitions_def=DAYS, deps=[events])
def daily(context: AssetExecutionContext) -> None:
    day = context.partition_key
    rows = session().read.format("delta").load(str(LAKE / "events")).where(f"day = '{day}'")
    sums = rows.groupBy("day", "region")
    save(
        sums.agg(F.count("*").alias("updates"), F.max("customers").alias("customers")), "daily", day
    )


@asset(partitions_def=DAYS, deps=[daily])
def weekly(context: AssetExecutionContext) -> None:
    day = context.partition_key
    days = f"day BETWEEN date'{day}' - 6 AND date'{day}'"
    rows = session().read.format("delta").load(str(LAKE / "daily")).where(days)
    sums = rows.groupBy(F.lit(day).cast("date").alias("day"), "region")
    save(
        sums.agg(F.sum("updates").alias("updates"), F.max("customers").alias("customers")),
        "weekly",
        day,
    )


# One Spark session per run. Else each step would start one of its own.
defs = Definitions(assets=[events, daily, weekly], executor=in_process_executor)
