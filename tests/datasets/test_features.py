"""What the features are, on rows counted by hand."""

from datetime import date, datetime, timedelta

import pytest

from backfill_assets.datasets.outages.features import by_region, region_history, with_week
from backfill_assets.datasets.outages.staging import outages as outages_table
from tests.worlds.deliveries import day

NAMES = [column.split()[0] for column in outages_table.columns.split(", ")]


def outage(number: int = 0, minutes: int | None = None, region: str = "Napa", **fields) -> dict:
    started = datetime(2019, 8, 15, 12) + timedelta(days=number)
    known = {
        "outage_day": day(number), "started_at": started, "region": region, "customers": 5, "peak_customers": 8, "cause": None,
        "outage_number": "1", "restored_at": None if minutes is None else started + timedelta(minutes=minutes),
    }  # fmt: skip
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
