"""raw: the delivered lines as they arrived.

One row per line with a readable change, every field as text. Other lines are in a separate table,
with the reason. Grain: a line of a file of an arrival day. Raw does not promise unique rows: a file
that was delivered twice is here twice.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.datasets.outages.descriptions import OF_COLUMNS
from backfill_assets.quality.rules import has_rows, no_nulls, rejected_at_most, rows_within
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.files.rows import more_than_one, with_fields
from backfill_assets.tables.declaration import table

FIELDS = (
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
)
NEEDED = ("outageNumber", "_op", "_captured_at")
CHANGES = ("I", "U", "D")
# `_captured_at`, as a pattern of LIKE. Spark would read a time without a date as a time of today.
CAPTURED_AT = "____-__-__T__:__:__Z"
# With more unreadable lines, the delivery as a whole is not to be trusted.
REJECTED_SHARE = 0.05

# A file that is sent twice adds rows only to raw: staging takes each update once.
LANDED = Landing("outage_events", duplicates="allow")


@table(
    "raw/rejected_lines",
    partition_by="arrival_day",
    columns="arrival_day DATE, source_file STRING, line STRING, reason STRING",
    reads={"lines": LANDED},
    rules=[no_nulls("line", "reason")],
    samples={"rejected": "array(concat(source_file, ': ', reason))"},
    pool="ingestion",
    descriptions=OF_COLUMNS,
    lineage=["source_file"],
)
def rejected_lines(lines: DataFrame) -> DataFrame:
    """One row per line that could not be read, with the reason."""
    read = with_fields(lines).withColumn("reason", reason())
    return read.where("reason IS NOT NULL").select("arrival_day", "source_file", "line", "reason")


@table(
    "raw/outage_events",
    partition_by="arrival_day",
    columns="arrival_day DATE, source_file STRING, "
    + ", ".join(f"{name} STRING" for name in FIELDS)
    + ", unknown_fields MAP<STRING, STRING>",
    reads={"lines": LANDED},
    rules=[
        has_rows(),
        rows_within(0.02, 50.0).as_warning(),
        rejected_at_most(REJECTED_SHARE, "raw/rejected_lines"),
    ],
    samples={"unknown_fields": "map_keys(unknown_fields)"},
    compared_with=[rejected_lines],
    pool="ingestion",
    descriptions=OF_COLUMNS,
    lineage=["source_file"],
)
def outage_events(lines: DataFrame) -> DataFrame:
    """One row per received change, every field as text, unknown fields in a map."""
    read = with_fields(lines).where(reason().isNull())
    known = read.select(
        "arrival_day",
        "source_file",
        "fields",
        *[F.col("fields")[name].alias(name) for name in FIELDS],
    )
    return known.select(
        "arrival_day", "source_file", *FIELDS, unknown_fields().alias("unknown_fields")
    )


def unknown_fields() -> Column:
    """The fields that are not in FIELDS, as a map. Computed only for lines with more fields."""
    present = sum((F.col(name).isNotNull().cast("int") for name in FIELDS), F.lit(0))
    unknown = F.map_filter("fields", lambda name, _: ~name.isin(*FIELDS))
    # A known field that is null counts as absent above. Then the map is computed without need.
    return F.when(F.size("fields") > present, unknown).otherwise(
        F.create_map().cast("MAP<STRING, STRING>")
    )


def reason() -> Column:
    """The reason why a line cannot be read; null if it can."""
    fields = F.col("fields")
    checks = F.when(~F.col("is_utf8"), "not UTF-8")
    checks = checks.when(
        fields.isNull(),
        F.when(F.try_parse_json("line").isNull(), "not JSON").otherwise("not an object"),
    )
    checks = checks.when(more_than_one(), "not JSON")
    for name in NEEDED:
        checks = checks.when(fields[name].isNull(), f"no {name}")
    checks = checks.when(
        ~fields["_op"].isin(*CHANGES), F.concat(F.lit("unknown _op "), fields["_op"])
    )
    time = fields["_captured_at"]
    return checks.when(
        ~time.like(CAPTURED_AT) | time.try_cast("timestamp").isNull(), "_captured_at is not a time"
    )
