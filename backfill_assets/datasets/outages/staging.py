"""staging: the meaning of the raw rows.

Updates are the changes of an arrival day, typed, each once. Outages are the last known state of
every outage, by the day it began. That depends only on the rows about the day that arrive within
the horizon, and not on the time of the computation. In a growing calendar a day is first built when
the watermark has passed. Rows outside the horizon are in no day of outages. They stay in updates
and are counted.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.datasets.outages.descriptions import OF_COLUMNS
from backfill_assets.datasets.outages.raw import outage_events
from backfill_assets.quality.rules import (
    has_rows,
    no_nulls,
    rows_within,
    unique_key,
    unparsed_at_most,
)
from backfill_assets.quality.thresholds import ANOTHER_POPULATION, DriftThresholds
from backfill_assets.sources.files.values import map_of
from backfill_assets.tables.declaration import same_day, table, window

# Days after an event day: the horizon for placing its rows, and the watermark for its first build.
HORIZON = 14
WATERMARK = 2
UNPARSED_SHARE = 0.05
# Features count the customers of outages: a rebuild that changes them needs a person's decision. A
# rebuild after which the population differs is a mistake.
CUSTOMERS = DriftThresholds(warn=0.01, fail=ANOTHER_POPULATION)

TIMES = {
    "started_at": "outageStartTime",
    "last_update_at": "lastUpdateTime",
    "estimated_restoration_at": "currentEtor",
    "automatic_estimate_at": "autoEtor",
    "crew_expected_at": "crewEta",
}
NUMBERS = {
    "customers": ("estCustAffected", "INT"),
    "latitude": ("latitude", "DOUBLE"),
    "longitude": ("longitude", "DOUBLE"),
    "devices": ("n_devices", "INT"),
    "hazard_flags": ("hazardFlag", "INT"),
}
TYPED = {**TIMES, **{name: field for name, (field, _) in NUMBERS.items()}}
PLACED = f"coalesce(datediff(arrival_day, outage_day) BETWEEN 0 AND {HORIZON}, false)"


@table(
    "staging/outage_updates",
    partition_by="arrival_day",
    key=["outage_number", "captured_at", "change"],
    columns=(
        "arrival_day DATE, outage_number STRING, captured_at TIMESTAMP, change STRING, outage_day"
        " DATE, "
    )
    + ", ".join(f"{name} TIMESTAMP" for name in TIMES)
    + ", "
    + ", ".join(f"{name} {kind}" for name, (_, kind) in NUMBERS.items())
    + ", cause STRING, crew_status STRING, region STRING, unparsed MAP<STRING, STRING>",
    reads={"events": same_day(outage_events)},
    rules=[
        has_rows(),
        no_nulls("outage_number", "captured_at", "change"),
        unique_key(),
        unparsed_at_most(UNPARSED_SHARE, list(TYPED)),
    ],
    fingerprint_by="outage_day",
    measures={"unplaced": f"cast(NOT {PLACED} AS INT)"},
    samples={
        "unplaced": (
            f"CASE WHEN {PLACED} THEN array() ELSE array(concat(outage_number, ' began ',"
            " coalesce(cast(started_at AS STRING), 'unknown'))) END"
        )
    },
    descriptions=OF_COLUMNS,
)
def outage_updates(events: DataFrame) -> DataFrame:
    """One row per change of an outage, typed. A change that was delivered twice is one row."""
    return once(events.select(*typed()))


def typed() -> list[Column]:
    """The columns of an update.

    A value that cannot be read is null, and its text is in `unparsed`.
    """
    times = [_time(field).alias(name) for name, field in TIMES.items()]
    numbers = [
        F.expr(f"try_cast({field} AS {kind})").alias(name)
        for name, (field, kind) in NUMBERS.items()
    ]
    return [
        F.col("arrival_day"),
        F.col("outageNumber").alias("outage_number"),
        F.to_timestamp("_captured_at").alias("captured_at"),
        F.col("_op").alias("change"),
        _time("outageStartTime").cast("date").alias("outage_day"),
        *times,
        *numbers,
        F.col("cause"),
        F.col("crewCurrentStatus").alias("crew_status"),
        F.col("regionName").alias("region"),
        unparsed().alias("unparsed"),
    ]


def unparsed() -> Column:
    """By column, the text that is present but cannot be read."""
    read = {name: _seconds(field) for name, field in TIMES.items()}
    read |= {name: f"try_cast({field} AS {kind})" for name, (field, kind) in NUMBERS.items()}
    faults = [
        F.when(F.col(TYPED[name]).isNotNull() & F.expr(sql).isNull(), _entry(name))
        for name, sql in read.items()
    ]
    return map_of(faults)


def _entry(name: str) -> Column:
    return F.struct(F.lit(name).alias("key"), F.col(TYPED[name]).alias("value"))


def _time(field: str) -> Column:
    return F.timestamp_seconds(F.expr(_seconds(field)))


def _seconds(field: str) -> str:
    """Epoch seconds of the years 1 to 9999.

    Larger numbers are null: they may be milliseconds.
    """
    return (
        f"CASE WHEN try_cast({field} AS BIGINT) BETWEEN -62135596800 AND 253402300799 THEN"
        f" try_cast({field} AS BIGINT) END"
    )


def once(updates: DataFrame) -> DataFrame:
    """One row per key. Of copies that differ, the greatest by all columns stays."""
    key = ["arrival_day", "outage_number", "captured_at", "change"]
    # Spark can compare lists of entries, but not maps.
    listed = updates.withColumn("unparsed", F.map_entries("unparsed"))
    kept = listed.groupBy(*key).agg(F.max(F.struct("*")).alias("kept")).select("kept.*")
    return kept.withColumn("unparsed", F.map_from_entries("unparsed"))


STATE = (
    "started_at",
    "region",
    "cause",
    "crew_status",
    "customers",
    "hazard_flags",
    "latitude",
    "longitude",
    "devices",
    "estimated_restoration_at",
)


@table(
    "staging/outages",
    partition_by="outage_day",
    key=["outage_day", "outage_number"],
    columns=(
        "outage_day DATE, outage_number STRING, started_at TIMESTAMP, region STRING, cause STRING,"
        " crew_status STRING, customers INT, hazard_flags INT, latitude DOUBLE, longitude DOUBLE,"
        " devices INT, estimated_restoration_at TIMESTAMP, first_seen_at TIMESTAMP, last_seen_at"
        " TIMESTAMP, restored_at TIMESTAMP, peak_customers INT, updates BIGINT"
    ),
    reads={"updates": window(outage_updates, first=0, last=HORIZON, wait_for=WATERMARK)},
    rules=[
        has_rows(),
        no_nulls("outage_number", "started_at", "region"),
        unique_key(),
        rows_within(0.05, 20.0),
    ],
    descriptions=OF_COLUMNS,
    drift={"customers": CUSTOMERS},
)
def outages(updates: DataFrame) -> DataFrame:
    """One row per outage and the day it began: its last known state."""
    # If several days are computed together, the days read are more than one day's horizon.
    return last_state(updates.where(PLACED))


def last_state(updates: DataFrame) -> DataFrame:
    """Keep the last update of each outage.

    `last_update_at` repeats and runs backwards in the source, so the capture time decides, and a
    removal wins over a change seen at the same moment.
    """
    rank = F.expr("CASE change WHEN 'D' THEN 2 WHEN 'U' THEN 1 ELSE 0 END")
    order = F.struct(F.col("captured_at"), rank, *STATE)
    latest = updates.groupBy("outage_day", "outage_number").agg(
        F.max_by(F.struct("captured_at", "change", *STATE), order).alias("last"),
        F.min("captured_at").alias("first_seen_at"),
        F.max("customers").alias("peak_customers"),
        F.count(F.lit(1)).alias("updates"),
    )
    return latest.select(
        "outage_day",
        "outage_number",
        *[F.col("last")[name].alias(name) for name in STATE],
        "first_seen_at",
        F.col("last")["captured_at"].alias("last_seen_at"),
        F.when(F.col("last")["change"] == "D", F.col("last")["captured_at"]).alias("restored_at"),
        "peak_customers",
        "updates",
    )
