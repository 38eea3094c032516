"""What the features are, on rows counted by hand."""

import random
from datetime import date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from backfill_assets.datasets.outages.features import by_region, region_history, with_week
from backfill_assets.datasets.outages.staging import outages as outages_table
from tests.worlds.deliveries import day, days
from tests.worlds.outages import random_counts

NAMES = [column.split()[0] for column in outages_table.columns.split(", ")]


def outage(number: int = 0, minutes: int | None = None, region: str = "Napa", **fields) -> dict:
    started = datetime(2019, 8, 15, 12) + timedelta(days=number)
    known = {
        "outage_day": day(number),
        "started_at": started,
        "region": region,
        "customers": 5,
        "peak_customers": 8,
        "cause": None,
        "outage_number": "1",
        "restored_at": None if minutes is None else started + timedelta(minutes=minutes),
    }
    return dict.fromkeys(NAMES) | known | fields


def outages(spark, *rows: dict):
    return spark.createDataFrame(
        [tuple(row[name] for name in NAMES) for row in rows], outages_table.columns
    )


def test_a_regions_day_counts_outages_customers_and_restorations(spark):
    found = by_region(
        outages(
            spark, outage(minutes=30), outage(minutes=90, customers=None), outage(region="Sonoma")
        )
    )
    rows = {r.region: r for r in found.collect()}
    napa = rows["Napa"]
    sonoma = rows["Sonoma"]
    assert (napa.outages, napa.customers, napa.peak_customers, napa.restored) == (2, 5, 16, 2)
    assert (napa.mean_restoration_minutes, napa.max_restoration_minutes) == (60.0, 90.0)
    assert (
        sonoma.outages,
        sonoma.restored,
        sonoma.mean_restoration_minutes,
        sonoma.max_restoration_minutes,
    ) == (
        1,
        0,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("cause", "share"),
    [
        pytest.param(
            "Our preliminary determination is an equipment issue.",
            "equipment_share",
            id="equipment",
        ),
        pytest.param("was caused by the weather", "weather_share", id="weather"),
        pytest.param("was caused by scheduled maintenance work.", "planned_share", id="planned"),
        pytest.param(
            "To protect public safety, we turned off power",
            "safety_shutoff_share",
            id="safety shutoff",
        ),
        pytest.param("Unknown", "unknown_share", id="unknown"),
        pytest.param("PG&E is investigating", "unknown_share", id="being investigated"),
    ],
)
def test_a_cause_is_a_share_of_the_outages(spark, cause, share):
    rows = [outage(cause=cause), outage(cause="a tree"), outage(), outage()]
    row = by_region(outages(spark, *rows)).collect()[0]
    shares = {name: row[name] for name in row.asDict() if name.endswith("_share")}
    assert {name for name, value in shares.items() if value} == {share}
    assert row[share] == 0.25


def daily(spark, *rows: tuple):
    return spark.createDataFrame(
        [(day(n), region, count, 10 * count) for n, region, count in rows], DAILY
    )


DAILY = "outage_day DATE, region STRING, outages BIGINT, customers BIGINT"


def test_a_week_is_seven_calendar_days_however_many_rows_it_has(spark):
    rows = with_week(
        daily(
            spark, (0, "Napa", 1), (1, "Napa", 2), (6, "Napa", 4), (7, "Napa", 8), (30, "Napa", 16)
        )
    )
    assert {r.outage_day: (r.outages_7d, r.customers_7d) for r in rows.collect()} == {
        day(0): (1, 10), day(1): (3, 30), day(6): (7, 70), day(7): (14, 140), day(30): (16, 160),
    }  # fmt: skip


def test_a_week_is_a_regions_own(spark):
    rows = with_week(daily(spark, (0, "Napa", 1), (1, "Sonoma", 2)))
    assert {r.region: r.outages_7d for r in rows.collect()} == {"Napa": 1, "Sonoma": 2}


BEFORE = (
    "outage_day DATE, region STRING, outages_total BIGINT, customers_total BIGINT,"
    " days_with_outages BIGINT, first_outage_day DATE"
)


def history(spark, numbers, before, *rows) -> list[tuple]:
    asked = spark.createDataFrame([(day(n),) for n in numbers], "outage_day DATE")
    found = region_history(asked, spark.createDataFrame(before, BEFORE), daily(spark, *rows))
    return sorted(map(tuple, found.select(*[c.split()[0] for c in BEFORE.split(", ")]).collect()))


def test_totals_grow_from_the_day_before_the_first(spark):
    found = history(
        spark, [5, 6], [(day(4), "Napa", 3, 30, 2, day(1))], (5, "Napa", 1), (6, "Napa", 2)
    )
    assert found == [(day(5), "Napa", 4, 40, 3, day(1)), (day(6), "Napa", 6, 60, 4, day(1))]


def test_a_region_has_a_row_from_its_first_outage_on_also_on_days_without_one(spark):
    found = history(spark, [0, 1, 2], [], (1, "Napa", 1))
    assert found == [(day(1), "Napa", 1, 10, 1, day(1)), (day(2), "Napa", 1, 10, 1, day(1))]


def test_a_day_without_any_outage_carries_the_totals_on(spark):
    assert history(spark, [5], [(day(4), "Napa", 3, 30, 2, date(2019, 8, 16))]) == [
        (day(5), "Napa", 3, 30, 2, day(1))
    ]


SIXTY = days(*range(60))
# A chunk is its days from `first` to `last`. The regions of each bear its name: all chunks are
# computed side by side.
INPUTS = """
    CREATE TABLE daily AS SELECT * FROM (VALUES {values}) v(outage_day, region, outages, customers);
    CREATE TABLE days AS SELECT DISTINCT outage_day FROM daily;
    CREATE TABLE totals AS
    SELECT d.outage_day, region, CAST(sum(outages) AS BIGINT) AS outages_total,
           CAST(sum(customers) AS BIGINT) AS customers_total, count(*) AS days_with_outages,
           min(f.outage_day) AS first_outage_day
    FROM days d JOIN daily f ON f.outage_day <= d.outage_day GROUP BY ALL;
    CREATE TABLE chunks AS
    SELECT a.outage_day AS first, b.outage_day AS last, format('{{}}..{{}}', first, last) AS name
    FROM days a JOIN days b ON a.outage_day <= b.outage_day;
    COPY days TO '{folder}/days.parquet';
    COPY (SELECT t.* REPLACE (name || ' ' || region AS region)
        FROM totals t JOIN chunks ON outage_day = first - 1)
    TO '{folder}/before.parquet';
    COPY (SELECT f.* REPLACE (name || ' ' || region AS region)
        FROM daily f JOIN chunks ON outage_day BETWEEN first AND last)
    TO '{folder}/daily.parquet';
"""
# Days outside of a chunk are cut off, as a step does.
DIFFERENT = """
    WITH computed AS (
        SELECT * REPLACE (split_part(region, ' ', 2) AS region), split_part(region, ' ', 1) AS name
        FROM '{folder}/found/*.parquet'
    ), found AS (SELECT f.*
        FROM computed f JOIN chunks USING (name) WHERE outage_day BETWEEN first AND last),
    expected AS (SELECT t.*, name FROM totals t JOIN chunks ON outage_day BETWEEN first AND last)
    SELECT (SELECT count(*) FROM (FROM found EXCEPT ALL FROM expected)),
           (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM found)),
           (SELECT count(DISTINCT name) FROM found), (SELECT count(*) FROM found)
"""


@pytest.mark.scale
def test_every_chunk_of_sixty_days_holds_the_totals_of_one_pass(spark, tmp_path: Path, seed: int):
    """Whatever days are cut into consists of these 1,830 chunks, each computed from the totals of
    the day before it.
    """
    counts = random_counts(random.Random(seed), SIXTY)
    rows = [
        f"(DATE '{at}', '{name}', {n}, {of})"
        for at in SIXTY
        for name, (n, of) in counts[at].items()
    ]
    with duckdb.connect() as database:
        database.execute(INPUTS.format(values=", ".join(rows), folder=tmp_path))
        inputs = {
            name: spark.read.parquet(f"{tmp_path}/{name}.parquet")
            for name in ("days", "before", "daily")
        }
        region_history(**inputs).write.parquet(f"{tmp_path}/found")
        ((more, missing, chunks, found),) = database.execute(
            DIFFERENT.format(folder=tmp_path)
        ).fetchall()
    assert (more, missing, chunks) == (0, 0, 60 * 61 // 2)
    assert found > 100_000
