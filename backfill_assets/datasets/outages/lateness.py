"""features: the lateness of the rows of an arrival day.

One row per arrival day and event day. The two days determine which of the three counts has its
rows. The counts are separate so that they can be summed. Lags are percentiles over the rows, taken
in whole seconds, so that the order of rows does not matter.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.datasets.outages.descriptions import OF_COLUMNS
from backfill_assets.datasets.outages.staging import PLACED, WATERMARK, outage_updates
from backfill_assets.quality.rules import has_rows, no_nulls, unique_key
from backfill_assets.tables.declaration import same_day, table

IN_TIME = f"{PLACED} AND datediff(arrival_day, outage_day) <= {WATERMARK}"
LAGS = {"median": 0.5, "p90": 0.9, "max": 1.0}
COUNTS = {
    "in_time": IN_TIME,
    "late": f"{PLACED} AND NOT ({IN_TIME})",
    "outside_horizon": f"NOT {PLACED}",
}


@table(
    "features/late_arrivals",
    partition_by="arrival_day",
    key=["arrival_day", "outage_day"],
    columns="arrival_day DATE, outage_day DATE, updates BIGINT, appeared BIGINT, "
    + ", ".join(f"{name}_lag_hours DOUBLE" for name in LAGS)
    + ", "
    + ", ".join(f"{name} BIGINT" for name in COUNTS),
    reads={"updates": same_day(outage_updates)},
    rules=[has_rows(), no_nulls("updates"), unique_key()],
    measures={name: name for name in COUNTS},
    descriptions=OF_COLUMNS,
)
def late_arrivals(updates: DataFrame) -> DataFrame:
    """One row per arrival day and event day: the number of rows, their lags, and their place."""
    lag = F.unix_timestamp("captured_at") - F.unix_timestamp("started_at")
    return (
        updates.withColumn("lag", lag)
        .groupBy("arrival_day", "outage_day")
        .agg(
            F.count(F.lit(1)).alias("updates"),
            F.count_if(F.col("change") == "I").alias("appeared"),
            *[
                (F.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY lag)") / 3600).alias(
                    f"{name}_lag_hours"
                )
                for name, share in LAGS.items()
            ],
            *[F.count_if(F.expr(counted)).alias(name) for name, counted in COUNTS.items()],
        )
    )
