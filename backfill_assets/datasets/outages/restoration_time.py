"""models: the duration of an outage, predicted from the facts known one hour after it began.

The model of a day S is fitted to the examples of S-28 .. S-1 that were over when S began. It is
judged by those of S, which it has not seen. At the beginning of history there are fewer days
(`trained_days`). With fewer than 7 no model is accepted, so the table begins that many days after
the sample. It is built when S+2 is in, as the examples are: every week by a schedule,
and on request for any day.

A random forest predicts the logarithm of the minutes: few outages last for days, and would decide
on everything. Outages that were over or not seen within the hour are left out. An outage that still
lasted when S began has no label for S: of the last days before it, long outages are missing. A day
whose examples change, by late rows or another version of theirs, is outdated as the days of any
table; the rule that a model must be better than the median refuses days as any rule does.
"""

from datetime import timedelta

from pyspark.ml import Pipeline
from pyspark.ml.feature import SQLTransformer, StringIndexer, VectorAssembler
from pyspark.ml.regression import RandomForestRegressor
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import models
from backfill_assets.datasets.outages.restoration_examples import KEY, restoration_examples
from backfill_assets.datasets.outages.sample import FIRST_DAY
from backfill_assets.quality.rules import has_rows, unique_key
from backfill_assets.tables.declaration import SliceDays, table, window

TRAIN_DAYS = 28
LEAST_DAYS = 7
LEAST_BETTER = 0.03
SEED = 15
# After the nightly run.
MONDAYS = "0 4 * * 1"
ASKED = "captured_at IS NOT NULL AND change <> 'D'"
# Features are computed from these columns. An unknown value is replaced by one that no row has.
TEXTS = {
    "cause_text": "coalesce(cause, 'unknown')",
    "crew_text": "coalesce(crew_status, 'unknown')",
}
NUMBERS = {
    "customers_affected": "coalesce(customers, -1)",
    "flags": "coalesce(hazard_flags, -1)",
    "devices_affected": "coalesce(devices, -1)",
    "degrees_north": "coalesce(latitude, 0)",
    "degrees_east": "coalesce(longitude, 0)",
    "minutes_estimated": (
        "coalesce((unix_timestamp(estimated_restoration_at) - unix_timestamp(asked_at)) / 60,"
        " -100000)"
    ),
    "hour": "hour(started_at)",
    "weekday": "dayofweek(started_at)",
    "region_minutes": "coalesce(region_mean_restoration_minutes, -1)",
    "region_outages_of_day": "coalesce(region_outages, -1)",
    "region_outages_of_week": "coalesce(region_outages_7d, -1)",
}
INDEXED = {"cause_text": "cause_number", "crew_text": "crew_number"}
FEATURES = (*INDEXED.values(), *NUMBERS)
LABEL = "restoration_minutes"
PREDICTION = "predicted_minutes"


@table(
    "models/restoration_time",
    partition_by="outage_day",
    key=["outage_day"],
    columns=f"outage_day DATE, {models.COLUMNS}",
    reads={
        "days": SliceDays(),
        "examples": window(restoration_examples, first=-TRAIN_DAYS, last=0),
    },
    rules=[
        has_rows(),
        unique_key(),
        models.trained_on_at_least(LEAST_DAYS),
        models.better_than_median(by=LEAST_BETTER),
    ],
    measures=models.MEASURES,
    descriptions=models.DESCRIPTIONS,
    first_day=FIRST_DAY + timedelta(days=LEAST_DAYS),
    cron=MONDAYS,
    shows=models.shown,
)
def restoration_time(days: DataFrame, examples: DataFrame) -> DataFrame:
    """One row per day: the model fitted to the 28 days before, and its errors on the day."""
    return models.by_day(
        days,
        examples.where(ASKED).withColumn("log_minutes", F.log1p(LABEL)),
        pipeline(),
        day="outage_day",
        key=KEY,
        label=LABEL,
        prediction=PREDICTION,
        known_at="restored_at",
        features=FEATURES,
        least_days=LEAST_DAYS,
        train_days=TRAIN_DAYS,
    )


def pipeline() -> Pipeline:
    """The stages from an example, with or without a label, to `predicted_minutes`."""
    values = [f"{sql} AS {name}" for name, sql in TEXTS.items()]
    values += [f"CAST({sql} AS DOUBLE) AS {name}" for name, sql in NUMBERS.items()]
    prepared = SQLTransformer(statement=f"SELECT *, {', '.join(values)} FROM __THIS__")
    # In alphabetical order. By frequency, the order of equally frequent texts would be random.
    indexed = StringIndexer(
        inputCols=[*INDEXED],
        outputCols=[*INDEXED.values()],
        stringOrderType="alphabetAsc",
        handleInvalid="keep",
    )
    assembled = VectorAssembler(inputCols=[*FEATURES], outputCol="features")
    forest = RandomForestRegressor(
        featuresCol="features",
        labelCol="log_minutes",
        predictionCol="predicted_log",
        numTrees=20,
        maxDepth=6,
        maxBins=64,
        minInstancesPerNode=5,
        seed=SEED,
    )
    minutes = SQLTransformer(
        statement=f"SELECT *, exp(predicted_log) - 1 AS {PREDICTION} FROM __THIS__"
    )
    return Pipeline(stages=[prepared, indexed, assembled, forest, minutes])
