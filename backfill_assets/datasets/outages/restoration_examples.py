"""features: one training example per outage: the facts after one hour, and its duration.

A day S of examples depends on the updates about S that arrive on S .. S+14, as `staging/outages`
does, and on the region_daily of S-21 .. S-14. It is built when S+2 is in, and again when later rows
arrive: they may bring outcomes, but no feature changes.

- An update is known from its capture on, and not before the day it arrives: an update that is
  delivered a day late was not known when it was captured.
- The request for an outage is one hour after it began, by the first known time of that. One time in
  forty is corrected later, and a time known only later would be a leak.
- Its own features are those of the last capture before the request. All are null for an outage that
  was not seen before the request. `change` D: the outage was over, and there is nothing to predict.
- The features of its region are of the last final day. The horizon of a final day has passed, so
  that the table holds the rows known then. Days that were not final, or more than a week older, are
  left out.
- The outcome is that of `staging/outages`: null for an outage that still lasts.

`reads` names the version of the region features. `reading(region_daily_v2)` gives the table with
that version. Declare it in place of `restoration_examples`: then its days have another code version
and are outdated, and they name their new input.

`known_by(date(2019, 10, 1))` gives the table as it was known when that day began. Rows that arrived
later, also corrections, do not count, so that every build gives the same rows. It is another code
version, too. A replaced delivery of an earlier day does change it, because the new rows have the
times of the old ones. Status and plan name these days. Training on a release
(`backfill_assets.read`) keeps the rows of that release.
"""

from dataclasses import replace
from datetime import date, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.datasets.outages.descriptions import OF_COLUMNS
from backfill_assets.datasets.outages.features import WEEK, region_daily
from backfill_assets.datasets.outages.staging import (
    HORIZON,
    PLACED,
    WATERMARK,
    last_state,
    outage_updates,
)
from backfill_assets.point_in_time.as_of import as_of, instant
from backfill_assets.quality.rules import has_rows, no_leak, no_nulls, rows_within, unique_key
from backfill_assets.tables.declaration import Table, Window, code_version_of, table, window

KEY = ("outage_day", "outage_number")
OUTCOMES = ("restored_at", "restoration_minutes")
# An event day's rows are final when the last day of its horizon is over.
FINAL_AT = f"date_add(outage_day, {HORIZON + 1})"
KNOWN_AT = "greatest(captured_at, cast(arrival_day AS TIMESTAMP))"
STATE = {
    "change": "STRING",
    "region": "STRING",
    "cause": "STRING",
    "crew_status": "STRING",
    "customers": "INT",
    "hazard_flags": "INT",
    "latitude": "DOUBLE",
    "longitude": "DOUBLE",
    "devices": "INT",
    "estimated_restoration_at": "TIMESTAMP",
}
OF_REGION = {
    "day": "DATE", "outages": "BIGINT", "customers": "BIGINT", "mean_restoration_minutes": "DOUBLE",
    "max_restoration_minutes": "DOUBLE", "outages_7d": "BIGINT", "customers_7d": "BIGINT",
}  # fmt: skip
DESCRIPTIONS = {
    "started_at": "When the outage began, by the first that was known of it.",
    "asked_at": "One hour after that: the features are what was known before.",
    "captured_at": "The capture whose values these are; null if none had shown the outage by then.",
    "customers": "The estimated number of customers affected.",
    "region_day": "The day that the columns of the region are of: the last one that was final.",
    **{
        f"region_{name}": f"Of the region, on that day: {OF_COLUMNS[name]}"
        for name in OF_REGION
        if name != "day"
    },
    "restoration_minutes": "Minutes from the beginning to that; null while it lasts.",
}


def _of_final_days(regions: Table) -> Window:
    return window(regions, first=-(HORIZON + WEEK), last=-HORIZON)


@table(
    "features/restoration_examples",
    partition_by="outage_day",
    key=KEY,
    columns=(
        "outage_day DATE, outage_number STRING, started_at TIMESTAMP, asked_at TIMESTAMP,"
        " captured_at TIMESTAMP, "
    )
    + ", ".join(f"{name} {kind}" for name, kind in STATE.items())
    + ", "
    + ", ".join(f"region_{name} {kind}" for name, kind in OF_REGION.items())
    + ", restored_at TIMESTAMP, restoration_minutes DOUBLE",
    reads={
        "updates": window(outage_updates, first=0, last=HORIZON, wait_for=WATERMARK),
        "regions": _of_final_days(region_daily),
    },
    rules=[
        has_rows(),
        no_nulls("started_at", "asked_at"),
        unique_key(),
        rows_within(0.05, 20.0),
        no_leak("asked_at", known={"updates": KNOWN_AT, "regions": FINAL_AT}, outcomes=OUTCOMES),
    ],
    descriptions=OF_COLUMNS | DESCRIPTIONS,
)
def restoration_examples(updates: DataFrame, regions: DataFrame) -> DataFrame:
    """One row per outage and the day it began: facts known one hour later, and its end."""
    return outage_examples(updates.where(PLACED), regions)


def reading(regions: Table) -> Table:
    """`features/restoration_examples` from another table of region features.

    The other table has the same columns.
    """
    reads = {**restoration_examples.reads, "regions": _of_final_days(regions)}
    switched = replace(restoration_examples, reads=reads)
    return replace(switched, version=code_version_of(switched))


def known_by(day: date, table: Table = restoration_examples) -> Table:
    """`features/restoration_examples`, or `reading(...)`, as known when `day` began (UTC)."""

    def compute(updates: DataFrame, regions: DataFrame) -> DataFrame:
        return outage_examples(updates.where(PLACED), regions, known_by=day)

    compute.__doc__ = f"{table.documentation} As known when {day} began."
    return replace(table, compute=compute, version=f"{table.version}, known by {day}")


def outage_examples(
    updates: DataFrame, regions: DataFrame, known_by: date | None = None
) -> DataFrame:
    """One example for each outage of `updates`, as known when the day `known_by` began."""
    if known_by:
        updates, regions = (
            rows.where(F.expr(known).cast("timestamp") < instant(known_by))
            for rows, known in ((updates, KNOWN_AT), (regions, FINAL_AT))
        )
    state = as_of(
        asked(updates),
        seen(updates),
        KEY,
        "asked_at",
        happened_at="captured_at",
        known_at="known_at",
    )
    features = as_of(
        state,
        final(regions),
        "region",
        "asked_at",
        happened_at="over_at",
        known_at="final_at",
        max_age=timedelta(days=HORIZON + WEEK),
        prefix="region_",
    )
    outcomes = last_state(updates).select(*KEY, "restored_at")
    return (
        features.drop("rank", "known_at", "region_over_at", "region_final_at")
        .join(outcomes, [*KEY])
        .withColumn("restoration_minutes", _minutes("started_at", "restored_at"))
    )


def asked(updates: DataFrame) -> DataFrame:
    """Each outage with its first known beginning, and the time one hour later."""
    known = F.struct(F.expr(KNOWN_AT).alias("known_at"), "captured_at", "started_at")
    first = updates.groupBy(*KEY).agg(F.min(known)["started_at"].alias("started_at"))
    return first.withColumn("asked_at", F.col("started_at") + F.lit(timedelta(hours=1)))


def seen(updates: DataFrame) -> DataFrame:
    """The state that each capture showed.

    If changes have the same capture time, a removal wins, as in `staging/outages`.
    """
    rank = F.expr("CASE change WHEN 'D' THEN 2 WHEN 'U' THEN 1 ELSE 0 END").alias("rank")
    return updates.select(*KEY, "captured_at", F.expr(KNOWN_AT).alias("known_at"), rank, *STATE)


def final(regions: DataFrame) -> DataFrame:
    """The days of regions, with the times at which each day was over and final."""
    return regions.select(
        "region",
        F.date_add("outage_day", 1).alias("over_at"),
        F.expr(FINAL_AT).alias("final_at"),
        F.col("outage_day").alias("day"),
        *[name for name in OF_REGION if name != "day"],
    )


def _minutes(since: str, until: str) -> Column:
    return (F.unix_timestamp(until) - F.unix_timestamp(since)) / 60
