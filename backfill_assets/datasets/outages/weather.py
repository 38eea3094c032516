"""external: the weather of each region, and features with it (see `with_weather.py`).

external/weather has a row per region with a known place and per requested day.
features/region_weather does not wait for it: a day without weather is built with `weather_known`
false. It is outdated once its weather is in, and is built again.
"""

import csv
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.datasets.outages.descriptions import OF_COLUMNS
from backfill_assets.datasets.outages.features import region_daily
from backfill_assets.quality.rules import has_rows, no_nulls, unique_key
from backfill_assets.sources.http.open_meteo import OpenMeteo, Place
from backfill_assets.tables.declaration import same_day, table, window

# The places of regions: the median position of their outages in the bundled sample, from the
# utility's map.
REGIONS = Path(__file__).resolve().parents[2] / "sample" / "regions.csv"
VARIABLES = {
    "temperature_2m_max": "°C",
    "temperature_2m_min": "°C",
    "precipitation_sum": "mm",
    "wind_speed_10m_max": "km/h",
    "wind_gusts_10m_max": "km/h",
}
MEASURED = ", ".join(f"{name} DOUBLE" for name in VARIABLES)
DESCRIPTIONS = OF_COLUMNS | {
    "latitude": (
        "Degrees north: the middle of the cell of a quarter of a degree that the region is in."
    ),
    "longitude": (
        "Degrees east: the middle of the cell of a quarter of a degree that the region is in."
    ),
    "temperature_2m_max": (
        "The highest temperature of the day, in UTC, two meters above ground, in °C."
    ),
    "temperature_2m_min": "The lowest of these temperatures, in °C.",
    "precipitation_sum": "Rain and snow of the day, in mm.",
    "wind_speed_10m_max": "The highest mean wind of the day, ten meters above ground, in km/h.",
    "wind_gusts_10m_max": "The strongest gust of the day, ten meters above ground, in km/h.",
    "weather_known": "Whether the weather of the region and day was known when the row was made.",
}


def places() -> dict[str, Place]:
    """The regions with their latitude and longitude."""
    with REGIONS.open(newline="", encoding="utf-8") as file:
        return {
            row["region"]: (float(row["latitude"]), float(row["longitude"]))
            for row in csv.DictReader(file)
        }


@table(
    "external/weather",
    partition_by="outage_day",
    key=["outage_day", "region"],
    columns=f"outage_day DATE, region STRING, latitude DOUBLE, longitude DOUBLE, {MEASURED}",
    reads={"answers": OpenMeteo("weather", places=places(), variables=VARIABLES)},
    rules=[has_rows(), no_nulls(*VARIABLES).as_warning(), unique_key()],
    pool="external",
    descriptions=DESCRIPTIONS,
)
def weather(answers: DataFrame) -> DataFrame:
    """One row per region and day: temperature, rain and wind, by Open-Meteo.com (CC BY 4.0)."""
    return answers.withColumnsRenamed({"arrival_day": "outage_day", "place": "region"})


@table(
    "features/region_weather",
    partition_by="outage_day",
    key=["outage_day", "region"],
    columns=(
        "outage_day DATE, region STRING, outages BIGINT, customers BIGINT, weather_known BOOLEAN,"
        f" {MEASURED}"
    ),
    reads={
        "daily": same_day(region_daily),
        "weather": window(weather, first=0, last=0, wait_for=-1),
    },
    rules=[has_rows(), no_nulls("region", "outages", "customers", "weather_known"), unique_key()],
    descriptions=DESCRIPTIONS,
)
def region_weather(daily: DataFrame, weather: DataFrame) -> DataFrame:
    """One row per region and day with an outage: outages, and weather if `weather_known`."""
    known = weather.select("outage_day", "region", F.lit(True).alias("is_known"), *VARIABLES)
    beside = daily.select("outage_day", "region", "outages", "customers").join(
        known, ["outage_day", "region"], "left"
    )
    is_known = F.coalesce("is_known", F.lit(False)).alias("weather_known")
    return beside.select("outage_day", "region", "outages", "customers", is_known, *VARIABLES)


TABLES = (weather, region_weather)
