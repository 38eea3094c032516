"""Daily case reports as raw, staging and feature tables.

There is one file per day, which its publisher corrects for weeks. A file has the cumulative counts
by place. Its columns changed on 2020-03-01 and 2020-03-22, and older days were published again in a
newer layout. `raw` has each row of the current file, `staging` one row per place, `features` the
new cases of a country. A falling count is a correction by the publisher: it stays, with a flag.
"""

from datetime import date

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import Csv, Landing, field, rules, same_day, table, window

FIRST_DAY = date(2020, 1, 22)
LAST_DAY = date(2020, 5, 15)
PLACES = date(2020, 3, 1)
COUNTIES = date(2020, 3, 22)
COUNTS = ("confirmed", "deaths", "recovered")
WEEK = 7

REPORTS = Landing(
    "case_reports",
    files="%m-%d-%Y.csv*",
    format=Csv(),
    fields=[
        field("country STRING", "Country_Region", "Country/Region", required=True),
        field("province STRING", "Province_State", "Province/State", required=True),
        field("admin2 STRING", "Admin2", since=COUNTIES),
        field("fips STRING", "FIPS", since=COUNTIES),
        field(
            "updated_at TIMESTAMP",
            "Last_Update",
            "Last Update",
            formats=[
                "yyyy-MM-dd HH:mm:ss",
                "yyyy-MM-dd'T'HH:mm:ss",
                "M/d/yy H:mm",
                "M/d/yyyy H:mm",
            ],
        ),
        field("latitude DOUBLE", "Lat", "Latitude", since=PLACES),
        field("longitude DOUBLE", "Long_", "Longitude", since=PLACES),
        field("confirmed BIGINT", "Confirmed", required=True),
        field("deaths BIGINT", "Deaths", required=True),
        field("recovered BIGINT", "Recovered", required=True),
        field("active BIGINT", "Active", since=COUNTIES),
        field("combined_key STRING", "Combined_Key", since=COUNTIES),
    ],
)
# Earlier names that the publisher used for countries.
NAMES = {
    "Mainland China": "China",
    "Korea, South": "South Korea",
    "Republic of Korea": "South Korea",
    "Iran (Islamic Republic of)": "Iran",
    "UK": "United Kingdom",
}


@table(
    "raw/case_reports",
    partition_by="report_day",
    columns=(
        f"report_day DATE, source_file STRING, {REPORTS.columns}, unparsed MAP<STRING, STRING>, "
        "unknown_fields MAP<STRING, STRING>, malformed STRING"
    ),
    reads={"rows": REPORTS},
    rules=[
        rules.has_rows(),
        rules.rows_within(0.2, 20.0),
        rules.nulls_at_most(0.01, "country"),
    ],
    samples={"unknown_fields": "map_keys(unknown_fields)"},
    pool="ingestion",
    lineage=["source_file"],
)
def case_reports(rows: DataFrame) -> DataFrame:
    """One row per row of the day's file, with the present names of the columns."""
    return rows.withColumnRenamed("arrival_day", "report_day")


@table(
    "staging/case_counts",
    partition_by="report_day",
    key=["country", "province", "admin2"],
    columns=(
        "report_day DATE, country STRING, province STRING, admin2 STRING, updated_at TIMESTAMP, "
    )
    + ", ".join(f"{count} BIGINT" for count in COUNTS),
    reads={"reports": same_day(case_reports)},
    rules=[rules.has_rows(), rules.no_nulls("country", *COUNTS), rules.unique_key()],
)
def case_counts(reports: DataFrame) -> DataFrame:
    """One row per place: the cumulative counts, with one name for each country.

    A place that is reported twice has the higher counts.
    """
    names = F.create_map(*[F.lit(name) for pair in NAMES.items() for name in pair])
    country = F.trim("country")
    places = reports.where("malformed IS NULL").select(
        "report_day",
        F.coalesce(names[country], country).alias("country"),
        *[F.coalesce(F.trim(name), F.lit("")).alias(name) for name in ("province", "admin2")],
        "updated_at",
        *[F.coalesce(count, F.lit(0)).alias(count) for count in COUNTS],
    )
    highest = [F.max(name).alias(name) for name in ("updated_at", *COUNTS)]
    return places.groupBy("report_day", "country", "province", "admin2").agg(*highest)


@table(
    "features/new_cases",
    partition_by="report_day",
    key=["country"],
    columns=(
        "report_day DATE, country STRING, confirmed BIGINT, new_cases BIGINT, fell BOOLEAN,"
        " mean_new_cases_7d DOUBLE"
    ),
    reads={"counts": window(case_counts, first=-WEEK, last=0)},
    rules=[rules.has_rows(), rules.unique_key(), rules.no_nulls("country", "confirmed")],
)
def new_cases(counts: DataFrame) -> DataFrame:
    """One row per country: cumulative and new confirmed cases, and the mean over seven days.

    `new_cases` is null in the first report of a country within a week, the mean without a report of
    seven days before. `fell`: there are fewer than in the report before.
    """
    daily = counts.groupBy("report_day", "country").agg(F.sum("confirmed").alias("confirmed"))
    by_day = Window.partitionBy("country").orderBy(F.unix_date("report_day"))
    before = F.last("confirmed").over(by_day.rangeBetween(-WEEK, -1))
    week_ago = F.first("confirmed").over(by_day.rangeBetween(-WEEK, -WEEK))
    return daily.select(
        "report_day",
        "country",
        "confirmed",
        (F.col("confirmed") - before).alias("new_cases"),
        (F.col("confirmed") < before).alias("fell"),
        ((F.col("confirmed") - week_ago) / WEEK).alias("mean_new_cases_7d"),
    )


TABLES = (case_reports, case_counts, new_cases)
