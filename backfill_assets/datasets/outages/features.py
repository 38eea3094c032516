"""features: figures for models, one row per region and day.

region_daily looks back over seven days. region_history covers all days since the calendar began, by
adding a day to the day before. A region has a row only if it had an outage that day (region_daily)
or ever (region_history). Sums are of whole numbers, and shares are divided last, so that the order
of rows does not matter.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.datasets.outages.descriptions import OF_COLUMNS
from backfill_assets.datasets.outages.staging import outages
from backfill_assets.quality.rules import has_rows, no_nulls, rows_within, unique_key
from backfill_assets.tables.declaration import SliceDays, itself, same_day, table, window

CAUSES = {
    "equipment": "equipment issue",
    "weather": "caused by the weather",
    "planned": "scheduled maintenance",
    "safety_shutoff": "To protect public safety",
    "unknown": "Unknown|investigating",
}
WEEK = 7


@table(
    "features/region_daily",
    partition_by="outage_day",
    key=["outage_day", "region"],
    columns=(
        "outage_day DATE, region STRING, outages BIGINT, customers BIGINT, peak_customers BIGINT,"
        " restored BIGINT, "
    )
    + ", ".join(f"{cause}_share DOUBLE" for cause in CAUSES)
    + ", mean_restoration_minutes DOUBLE, max_restoration_minutes DOUBLE, outages_7d BIGINT,"
    " customers_7d BIGINT",
    reads={"outages": window(outages, first=1 - WEEK, last=0)},
    rules=[
        has_rows(),
        no_nulls("region", "outages", "customers"),
        unique_key(),
        rows_within(0.05, 20.0),
    ],
    descriptions=OF_COLUMNS,
)
def region_daily(outages: DataFrame) -> DataFrame:
    """One row per region and day: outages, customers, causes, restoration time, 7-day sums."""
    return with_week(by_region(outages))


def by_region(outages: DataFrame) -> DataFrame:
    """Counts and shares of the outages that began in each region on each day. Times in minutes."""
    seconds = F.unix_timestamp("restored_at") - F.unix_timestamp("started_at")
    return outages.groupBy("outage_day", "region").agg(
        F.count(F.lit(1)).alias("outages"),
        F.sum(F.coalesce("customers", F.lit(0)).cast("bigint")).alias("customers"),
        F.sum(F.coalesce("peak_customers", F.lit(0)).cast("bigint")).alias("peak_customers"),
        F.count("restored_at").alias("restored"),
        *[
            _share(F.col("cause").rlike(text)).alias(f"{cause}_share")
            for cause, text in CAUSES.items()
        ],
        (F.sum(seconds) / F.count(seconds) / 60).alias("mean_restoration_minutes"),
        (F.max(seconds) / 60).alias("max_restoration_minutes"),
    )


def _share(holds: Column) -> Column:
    return F.count_if(holds) / F.count(F.lit(1))


def with_week(daily: DataFrame) -> DataFrame:
    """Add the sums over the day and the six before it. Days without an outage count as 0."""
    day = F.datediff("outage_day", F.lit("1970-01-01").cast("date"))
    week = Window.partitionBy("region").orderBy(day).rangeBetween(1 - WEEK, 0)
    return daily.withColumn("outages_7d", F.sum("outages").over(week)).withColumn(
        "customers_7d", F.sum("customers").over(week)
    )


@table(
    "features/region_history",
    partition_by="outage_day",
    key=["outage_day", "region"],
    columns=(
        "outage_day DATE, region STRING, outages_total BIGINT, customers_total BIGINT,"
        " days_with_outages BIGINT, first_outage_day DATE"
    ),
    reads={"days": SliceDays(), "before": itself(), "daily": same_day(region_daily)},
    rules=[
        has_rows(),
        no_nulls("region", "outages_total", "first_outage_day"),
        unique_key(),
        rows_within(0.5, 20.0),
    ],
    descriptions=OF_COLUMNS,
)
def region_history(days: DataFrame, before: DataFrame, daily: DataFrame) -> DataFrame:
    """One row per region and day: totals from the first day of the calendar to this one."""
    return totals_of_days(days, before.drop("outage_day"), added(daily))


def added(daily: DataFrame) -> DataFrame:
    """The amounts that a day adds to the totals of its regions."""
    return daily.select(
        "outage_day",
        "region",
        F.col("outages").alias("outages_total"),
        F.col("customers").alias("customers_total"),
        F.lit(1).cast("bigint").alias("days_with_outages"),
        F.col("outage_day").alias("first_outage_day"),
    )


def totals_of_days(days: DataFrame, before: DataFrame, daily: DataFrame) -> DataFrame:
    """Totals at the end of each of the consecutive `days`.

    They are the totals before the first day plus the amounts of each day. A region has a row from
    its first outage on, also on days without one.
    """
    regions = before.select("region").unionByName(daily.select("region")).distinct()
    known = days.crossJoin(regions).join(daily, ["outage_day", "region"], "left")
    so_far = (
        Window.partitionBy("region").orderBy("outage_day").rowsBetween(Window.unboundedPreceding, 0)
    )
    base = before.select(
        "region", *[F.col(c).alias(f"base_{c}") for c in before.columns if c != "region"]
    )
    totals = known.join(base, "region", "left").select(
        "outage_day",
        "region",
        *[
            _grown(name, so_far).alias(name)
            for name in ("outages_total", "customers_total", "days_with_outages")
        ],
        F.least("base_first_outage_day", F.min("first_outage_day").over(so_far)).alias(
            "first_outage_day"
        ),
    )
    return totals.where("first_outage_day IS NOT NULL")


def _grown(name: str, so_far: object) -> Column:
    return F.coalesce(f"base_{name}", F.lit(0)) + F.coalesce(F.sum(name).over(so_far), F.lit(0))  # type: ignore[arg-type]
