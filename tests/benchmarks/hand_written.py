"""The alternative that people write today: one PySpark script over a range of days, without any
audit.

Writes the same tables as the code location, with the same rows, to Delta: `hand_written.py LANDING
LAKE FIRST LAST`. Written on its own; it shares no code with what it is compared with, only the
Spark settings given to both.
"""

import json
import sys
from datetime import date, timedelta

from delta import configure_spark_with_delta_pip
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

KNOWN = [
    "outageNumber",
    "outageStartTime",
    "lastUpdateTime",
    "currentEtor",
    "autoEtor",
    "crewEta",
    "crewCurrentStatus",
    "cause",
    "estCustAffected",
    "hazardFlag",
    "latitude",
    "longitude",
    "regionName",
    "n_devices",
    "_op",
    "_captured_at",
    "_commit",
]


def main(landing: str, lake: str, first: str, last: str, conf: str = "{}") -> None:
    builder = SparkSession.builder.appName("hand_written").config(
        "spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"
    )
    builder = builder.config(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
    for name, value in json.loads(conf).items():
        builder = builder.config(name, value)
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    write_tables(spark, landing, lake, date.fromisoformat(first), date.fromisoformat(last))


def write_tables(spark: SparkSession, landing: str, lake: str, start: date, end: date) -> None:
    days = [start + timedelta(days=n) for n in range((end - start).days + 1)]

    def save(frame: DataFrame, table: str, day: str) -> DataFrame:
        where = f"{day} >= '{start}' AND {day} < '{end + timedelta(days=1)}'"
        writer = (
            frame.where(where)
            .write.format("delta")
            .partitionBy(day)
            .mode("overwrite")
            .option("replaceWhere", where)
        )
        # As the other side has it: bounds of a few columns, for files that are found by their day.
        writer.option("delta.dataSkippingNumIndexedCols", 4).save(f"{lake}/{table}")
        return spark.read.format("delta").load(f"{lake}/{table}")

    folders = [f"{landing}/outage_events/year={d:%Y}/month={d:%m}/day={d:%d}" for d in days]
    lines = (
        spark.read.option("recursiveFileLookup", "true")
        .text(folders)
        .withColumn("path", F.col("_metadata.file_path"))
    )
    text = r"year=(\d+)/month=(\d+)/day=(\d+)"
    parsed = lines.where("trim(value) <> ''").select(
        F.make_date(*[F.regexp_extract("path", text, n).cast("int") for n in (1, 2, 3)]).alias(
            "arrival_day"
        ),
        F.regexp_extract("path", "(outage_events/.*)$", 1).alias("source_file"),
        F.col("value").alias("line"),
        F.from_json("value", "MAP<STRING, STRING>").alias("fields"),
    )
    wrong = (
        "fields IS NULL OR fields['outageNumber'] IS NULL OR fields['_op'] IS NULL OR fields['_op']"
        " NOT IN ('I', 'U', 'D') OR try_cast(fields['_captured_at'] AS TIMESTAMP) IS NULL"
    )
    rejected = parsed.where(wrong).select(
        "arrival_day", "source_file", "line", F.lit("unreadable").alias("reason")
    )
    save(rejected, "raw/rejected_lines", "arrival_day")
    events = parsed.where(f"NOT ({wrong})").select(
        "arrival_day",
        "source_file",
        *[F.col("fields")[name].alias(name) for name in KNOWN],
        F.map_filter("fields", lambda name, _: ~name.isin(KNOWN)).alias("unknown_fields"),
    )
    events = save(events, "raw/outage_events", "arrival_day")
    updates = save(typed(events), "staging/outage_updates", "arrival_day")
    outages = save(last_states(updates), "staging/outages", "outage_day")
    daily = save(regions(outages), "features/region_daily", "outage_day")
    save(regions_by_customers(outages), "features/region_daily_v2", "outage_day")
    save(history(spark, daily, days), "features/region_history", "outage_day")
    save(lateness(updates), "features/late_arrivals", "arrival_day")


def typed(events: DataFrame) -> DataFrame:
    numbers = {
        "outageStartTime": "started_at",
        "lastUpdateTime": "last_update_at",
        "currentEtor": "estimated_restoration_at",
    }
    numbers |= {"autoEtor": "automatic_estimate_at", "crewEta": "crew_expected_at"}
    rest = {
        "estCustAffected": ("customers", "INT"),
        "latitude": ("latitude", "DOUBLE"),
        "longitude": ("longitude", "DOUBLE"),
    }
    rest |= {"n_devices": ("devices", "INT"), "hazardFlag": ("hazard_flags", "INT")}
    kinds = {c: (n, "BIGINT") for c, n in numbers.items()} | rest
    bad = [
        f"if({c} IS NOT NULL AND try_cast({c} AS {kind}) IS NULL,"
        f" named_struct('key', '{name}', 'value', {c}), NULL)"
        for c, (name, kind) in kinds.items()
    ]
    rows = events.selectExpr(
        "arrival_day",
        "outageNumber AS outage_number",
        "cast(_captured_at AS TIMESTAMP) AS captured_at",
        "_op AS change",
        "cast(timestamp_seconds(try_cast(outageStartTime AS BIGINT)) AS DATE) AS outage_day",
        *[f"timestamp_seconds(try_cast({c} AS BIGINT)) AS {n}" for c, n in numbers.items()],
        *[f"try_cast({c} AS {k}) AS {n}" for c, (n, k) in rest.items()],
        "cause",
        "crewCurrentStatus AS crew_status",
        "regionName AS region",
        f"map_from_entries(array_compact(array({', '.join(bad)}))) AS unparsed",
    )
    return rows.dropDuplicates(["arrival_day", "outage_number", "captured_at", "change"])


def last_states(updates: DataFrame) -> DataFrame:
    placed = updates.where("datediff(arrival_day, outage_day) BETWEEN 0 AND 14")
    whole = Window.partitionBy("outage_day", "outage_number")
    order = [
        F.desc("captured_at"),
        F.expr("CASE change WHEN 'D' THEN 0 WHEN 'U' THEN 1 ELSE 2 END"),
    ]
    ranked = placed.select(
        "*",
        F.row_number().over(whole.orderBy(*order)).alias("rank"),
        F.min("captured_at").over(whole).alias("first_seen_at"),
        F.max("customers").over(whole).alias("peak_customers"),
        F.count(F.lit(1)).over(whole).alias("updates"),
    )
    state = [
        "started_at",
        "region",
        "cause",
        "crew_status",
        "customers",
        "hazard_flags",
        "latitude",
        "longitude",
        "devices",
    ]
    return ranked.where("rank = 1").selectExpr(
        "outage_day",
        "outage_number",
        *state,
        "estimated_restoration_at",
        "first_seen_at",
        "captured_at AS last_seen_at",
        "if(change = 'D', captured_at, NULL) AS restored_at",
        "peak_customers",
        "updates",
    )


CAUSES = {
    "equipment": "equipment issue",
    "weather": "caused by the weather",
    "planned": "scheduled maintenance",
}
CAUSES |= {"safety_shutoff": "To protect public safety", "unknown": "Unknown|investigating"}


def regions(outages: DataFrame) -> DataFrame:
    seconds = F.unix_timestamp("restored_at") - F.unix_timestamp("started_at")
    daily = outages.groupBy("outage_day", "region").agg(
        F.count(F.lit(1)).alias("outages"),
        F.sum(F.coalesce("customers", F.lit(0)).cast("bigint")).alias("customers"),
        F.sum(F.coalesce("peak_customers", F.lit(0)).cast("bigint")).alias("peak_customers"),
        F.count("restored_at").alias("restored"),
        *[
            (F.count_if(F.col("cause").rlike(t)) / F.count(F.lit(1))).alias(f"{c}_share")
            for c, t in CAUSES.items()
        ],
        (F.sum(seconds) / F.count(seconds) / 60).alias("mean_restoration_minutes"),
        (F.max(seconds) / 60).alias("max_restoration_minutes"),
    )
    return with_week(daily)


def with_week(daily: DataFrame) -> DataFrame:
    week = (
        Window.partitionBy("region")
        .orderBy(F.datediff("outage_day", F.lit("1970-01-01")))
        .rangeBetween(-6, 0)
    )
    sums = [F.sum(name).over(week).alias(f"{name}_7d") for name in ("outages", "customers")]
    return daily.select("*", *sums)


def regions_by_customers(outages: DataFrame) -> DataFrame:
    rows = outages.selectExpr(
        "*",
        "unix_timestamp(restored_at) - unix_timestamp(started_at) AS seconds",
        "bigint(coalesce(customers, 0)) AS n",
    )
    of_causes = [
        f"try_divide(sum(if(cause RLIKE '{t}', n, 0)), sum(n)) AS {c}_share"
        for c, t in CAUSES.items()
    ]
    daily = (
        rows.where("seconds IS NULL OR seconds > 900")
        .groupBy("outage_day", "region")
        .agg(
            F.expr("count(1) AS outages"),
            F.expr("sum(n) AS customers"),
            F.expr("sum(bigint(coalesce(peak_customers, 0))) AS peak_customers"),
            F.expr("count(restored_at) AS restored"),
            *map(F.expr, of_causes),
            F.expr(
                "try_divide(sum(seconds * n), sum(n) FILTER (WHERE restored_at IS NOT NULL)) / 60"
                " AS mean_restoration_minutes"
            ),
            F.expr("max(seconds) / 60 AS max_restoration_minutes"),
        )
    )
    return with_week(daily)


def history(spark: SparkSession, daily: DataFrame, days: list[date]) -> DataFrame:
    every_day = spark.createDataFrame([(d,) for d in days], "outage_day DATE")
    grid = every_day.crossJoin(daily.select("region").distinct()).join(
        daily, ["outage_day", "region"], "left"
    )
    so_far = (
        Window.partitionBy("region").orderBy("outage_day").rowsBetween(Window.unboundedPreceding, 0)
    )
    return grid.select(
        "outage_day",
        "region",
        F.sum("outages").over(so_far).alias("outages_total"),
        F.sum("customers").over(so_far).alias("customers_total"),
        F.count("outages").over(so_far).alias("days_with_outages"),
        F.min(F.when(F.col("outages").isNotNull(), F.col("outage_day")))
        .over(so_far)
        .alias("first_outage_day"),
    ).where("outages_total IS NOT NULL")


def lateness(updates: DataFrame) -> DataFrame:
    days = "coalesce(datediff(arrival_day, outage_day), -1)"
    hours = (
        "percentile_disc({}) WITHIN GROUP (ORDER BY unix_timestamp(captured_at) -"
        " unix_timestamp(started_at)) / 3600 AS {}"
    )
    figures = [
        "count(1) AS updates",
        "count_if(change = 'I') AS appeared",
        *[
            hours.format(share, f"{name}_lag_hours")
            for name, share in {"median": 0.5, "p90": 0.9, "max": 1}.items()
        ],
        f"count_if({days} BETWEEN 0 AND 2) AS in_time",
        f"count_if({days} BETWEEN 3 AND 14) AS late",
        f"count_if({days} NOT BETWEEN 0 AND 14) AS outside_horizon",
    ]
    return updates.groupBy("arrival_day", "outage_day").agg(*map(F.expr, figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
