"""features/region_daily_v2: the grain and columns of features/region_daily, other logic.

Momentary outages are left out. Shares and mean restoration times are weighted by customers, and so
describe a customer rather than an outage. `backfill switch features/region_daily --to
features/region_daily_v2` gives it to readers.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.datasets.outages.descriptions import OF_COLUMNS
from backfill_assets.datasets.outages.features import CAUSES, WEEK, region_daily, with_week
from backfill_assets.datasets.outages.staging import outages
from backfill_assets.quality.rules import has_rows, no_nulls, rows_within, unique_key
from backfill_assets.tables.declaration import table, window

# An interruption of up to five minutes is momentary (IEEE Std 1366). Captures are taken every ten
# minutes, so the end of an outage is seen in the next capture. An outage of five minutes or less is
# gone within fifteen.
MOMENTARY_MINUTES = 5 + 10
WEIGHTED = {
    "outages": (
        "The outages that began in the region on the day and were not momentary; the other columns"
        " are of these."
    ),
    **{
        f"{cause}_share": f"{OF_COLUMNS[f'{cause}_share'][:-8]}, by their customers, 0 to 1."
        for cause in CAUSES
    },
    "mean_restoration_minutes": (
        "Minutes from the beginning to the capture in which it was gone, on average over customers."
    ),
}


@table(
    "features/region_daily_v2",
    partition_by="outage_day",
    key=["outage_day", "region"],
    columns=region_daily.columns,
    reads={"outages": window(outages, first=1 - WEEK, last=0)},
    rules=[
        has_rows(),
        no_nulls("region", "outages", "customers"),
        unique_key(),
        rows_within(0.05, 20.0),
    ],
    descriptions=OF_COLUMNS | WEIGHTED,
)
def region_daily_v2(outages: DataFrame) -> DataFrame:
    """One row per region and day, without momentary outages and weighted by customers."""
    return with_week(by_customers(sustained(outages)))


def sustained(outages: DataFrame) -> DataFrame:
    """The outages that were not momentary, and those not restored within the horizon."""
    return outages.where(F.coalesce(_seconds() > MOMENTARY_MINUTES * 60, F.lit(True)))


def by_customers(outages: DataFrame) -> DataFrame:
    """Outages that began per region and day; shares and mean times weighted by customers.

    A share is null where no customers are known. The mean restoration time is the CAIDI of IEEE Std
    1366, in minutes.
    """
    customers = F.coalesce("customers", F.lit(0)).cast("bigint")
    restored = F.when(F.col("restored_at").isNotNull(), customers)
    return outages.groupBy("outage_day", "region").agg(
        F.count(F.lit(1)).alias("outages"),
        F.sum(customers).alias("customers"),
        F.sum(F.coalesce("peak_customers", F.lit(0)).cast("bigint")).alias("peak_customers"),
        F.count("restored_at").alias("restored"),
        *[
            F.try_divide(
                F.sum(F.when(F.col("cause").rlike(text), customers).otherwise(F.lit(0))),
                F.sum(customers),
            ).alias(f"{cause}_share")
            for cause, text in CAUSES.items()
        ],
        (F.try_divide(F.sum(_seconds() * restored), F.sum(restored)) / 60).alias(
            "mean_restoration_minutes"
        ),
        (F.max(_seconds()) / 60).alias("max_restoration_minutes"),
    )


def _seconds() -> Column:
    return F.unix_timestamp("restored_at") - F.unix_timestamp("started_at")
