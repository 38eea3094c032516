"""A Dagster project with assets of its own, and a lake that another team made: outages of
California by local day, written by plain Spark.

`Grid` says by DuckDB, from the delivered files, what each table should hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from backfill_assets.calendar import between
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import ReleasedTable

ZONE = "America/Los_Angeles"
DAYS = list(between(date(2019, 8, 15), date(2019, 8, 18)))
WRONG = DAYS[1]
EVENTS = "outages/events"
BY_REGION = "features/by_region"
UPSTREAM = "station/weather"
DOWNSTREAM = "newsletter"

# What this project's people wrote before they had daily tables.
THEIR_ASSETS = '''
"""The weather of each day, and the newsletter about it."""

import dagster as dg
import pandas as pd

DAILY = dg.DailyPartitionsDefinition(
    start_date="{first}", end_date="{end}", timezone="{zone}"
)


@dg.asset(key=["station", "weather"], partitions_def=DAILY)
def weather(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    day = context.partition_key
    degrees = 20 + int(day[-2:]) % 5
    rows = pd.DataFrame({{"region": ["Alamo", "Chico"], "celsius": [degrees, degrees + 9]}})
    rows.to_parquet(f"{root}/weather/{{day}}.parquet")
    return dg.MaterializeResult(data_version=dg.DataVersion(str(degrees)))


@dg.asset(
    partitions_def=DAILY, ins={{"by_region": dg.AssetIn(key=["features", "by_region"])}}
)
def newsletter(context: dg.AssetExecutionContext, by_region: pd.DataFrame) -> None:
    by_region.to_parquet(f"{root}/newsletter/{{context.partition_key}}.parquet")
'''

OUR_TABLES = '''
"""Outages by local day, with the place of each region."""

from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import backfill_assets
from backfill_assets import (
    DagsterAsset, JsonLines, Landing, field, reference, rules, same_day, table, window,
)

FIELDS = ("outageNumber", "regionName", "estCustAffected", "_op", "_captured_at")
DELIVERED = Landing(
    "outage_events", format=JsonLines(), fields=[field(f"{{name}} STRING") for name in FIELDS]
)


@table("raw/changes", partition_by="arrival_day", columns=DELIVERED.row_columns,
       reads={{"rows": DELIVERED}}, rules=[rules.has_rows()])
def changes(rows: DataFrame) -> DataFrame:
    """One row per delivered change. Folders are days in UTC."""
    return rows


def weather_of(day: date) -> str:
    return f"{root}/weather/{{day}}.parquet"


@table("raw/weather", partition_by="arrival_day",
       columns="arrival_day DATE, region STRING, celsius BIGINT",
       reads={{"rows": DagsterAsset("station/weather", read=weather_of)}})
def weather(rows: DataFrame) -> DataFrame:
    """The rows of the asset."""
    return rows.select("arrival_day", "region", "celsius")


regions = reference(
    "ref/regions",
    source="reference/regions.csv",
    columns="region STRING, latitude DOUBLE, longitude DOUBLE",
    key=["region"],
)


@table("outages/events", path="{root}/their_lake/events", partition_by="day",
       columns="day DATE, outage STRING, region STRING, customers BIGINT, at TIMESTAMP",
       key=["outage", "at"], reads={{"changes": window(changes, first=0, last=1)}},
       rules=[rules.no_nulls("outage")])
def events(changes: DataFrame) -> DataFrame:
    """One row per outage that began, by the day in California."""
    at = F.to_timestamp("_captured_at")
    return changes.where("_op = 'I'").select(
        F.to_date(F.from_utc_timestamp(at, "{zone}")).alias("day"),
        F.col("outageNumber").alias("outage"),
        F.col("regionName").alias("region"),
        F.col("estCustAffected").cast("bigint").alias("customers"),
        at.alias("at"),
    )


@table("features/by_region", partition_by="day", key=["region"],
       columns="day DATE, region STRING, customers BIGINT, latitude DOUBLE, celsius BIGINT",
       reads={{"events": same_day(events), "regions": regions, "weather": same_day(weather)}},
       rules=[rules.unique_key()])
def by_region(events: DataFrame, regions: DataFrame, weather: DataFrame) -> DataFrame:
    """One row per region: its affected customers, its place and its weather."""
    of_day = weather.withColumnRenamed("arrival_day", "day")
    total = events.groupBy("day", "region").agg(F.sum("customers").alias("customers"))
    return (
        total.join(regions, "region").join(of_day, ["day", "region"], "left")
        .select("day", "region", "customers", "latitude", "celsius")
    )


defs = backfill_assets.definitions(
    tables=[changes, weather, regions, events, by_region],
    first_day=date({first:%Y, %-m, %-d}), last_day=date({last:%Y, %-m, %-d}), zone="{zone}",
)
'''

EVENTS_SQL = """
    SELECT CAST(timezone('{zone}', CAST(_captured_at AS TIMESTAMPTZ)) AS DATE) AS day,
        outageNumber AS outage, regionName AS region,
        CAST(estCustAffected AS BIGINT) AS customers, CAST(_captured_at AS TIMESTAMPTZ) AS at
    FROM read_json('{landing}/outage_events/*/*/*/*', format = 'newline_delimited')
    WHERE _op = 'I'
"""
REGION_SQL = """
    SELECT day, region, CAST(sum(customers) AS BIGINT), any_value(latitude), any_value(celsius)
    FROM events JOIN read_csv('{landing}/reference/regions.csv') USING (region)
    LEFT JOIN (
        SELECT CAST(regexp_extract(filename, '\\d+-\\d+-\\d+') AS DATE) AS day, region, celsius
        FROM read_parquet('{root}/weather/*.parquet', filename = true)
    ) USING (day, region)
    GROUP BY day, region
"""


@dataclass(frozen=True)
class Grid:
    """The folders of the two teams below `root`, and the project in `project`."""

    root: Path
    project: Path

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    @property
    def their_table(self) -> Path:
        return self.root / "their_lake" / "events"

    @property
    def lake(self) -> str:
        return str(self.project / ".backfill" / "lake")

    def parquet_files(self) -> dict[str, bytes]:
        """The data files of the other team's table, as they are."""
        found = sorted(self.their_table.rglob("*.parquet"))
        return {path.name: path.read_bytes() for path in found}

    def database(self, *, is_corrected: bool) -> duckdb.DuckDBPyConnection:
        """A database with the view `events`: what each day should have."""
        database = duckdb.connect()
        database.execute("SET TimeZone = 'UTC'")
        customers = "customers" if is_corrected else f"if(day = DATE '{WRONG}', 10, 1) * customers"
        database.execute(
            f"CREATE VIEW events AS SELECT * REPLACE ({customers} AS customers)"
            f" FROM ({EVENTS_SQL.format(zone=ZONE, landing=self.landing)})"
            f" WHERE day BETWEEN DATE '{DAYS[0]}' AND DATE '{DAYS[-1]}'"
        )
        return database

    def expected(self, table: str, *, is_corrected: bool) -> list[tuple[Any, ...]]:
        sql = {
            EVENTS: "FROM events",
            BY_REGION: REGION_SQL.format(landing=self.landing, root=self.root),
        }
        with self.database(is_corrected=is_corrected) as database:
            return database.sql(f"FROM ({sql[table]}) ORDER BY ALL").fetchall()

    def held(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of live, by another reader of Delta."""
        folder = str(self.their_table) if table == EVENTS else f"{self.lake}/{table}"
        return _sorted(DeltaTable(folder).to_pyarrow_table())

    def released(self, table: str) -> list[tuple[Any, ...]]:
        """The rows that readers get."""
        release = open_channel(self.lake, "stable")
        return _sorted(ReleasedTable(self.lake, release, table).dataset(None).to_table())

    def written(self, days: Sequence[date] = DAYS) -> list[tuple[Any, ...]]:
        """What the asset downstream wrote about these days."""
        files = [str(self.root / "newsletter" / f"{day}.parquet") for day in days]
        with duckdb.connect() as database:
            return database.sql(f"FROM read_parquet({files}) ORDER BY ALL").fetchall()


def _sorted(rows: Any) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        return database.from_arrow(rows).order("ALL").fetchall()
