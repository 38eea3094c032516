"""How late rows were: what the function makes of a few rows. Every figure of sixty days is compared in test_oracle.py."""

from datetime import date, timedelta

import pytest

from backfill_assets.datasets.outages.lateness import COUNTS, late_arrivals
from tests.datasets.test_staging import START, at, update, updates

ARRIVAL = date(2019, 8, 15)


@pytest.mark.parametrize(
    ("days_late", "counted"),
    [
        pytest.param(0, "in_time", id="the same day"),
        pytest.param(2, "in_time", id="the last day before the watermark"),
        pytest.param(3, "late", id="the first day after it"),
        pytest.param(14, "late", id="the last day of the horizon"),
        pytest.param(15, "outside_horizon", id="beyond it"),
        pytest.param(-1, "outside_horizon", id="a day to come"),
        pytest.param(None, "outside_horizon", id="no day at all"),
    ],
)
def test_a_row_is_counted_once_by_how_late_it_is(spark, days_late, counted):
    about = None if days_late is None else ARRIVAL - timedelta(days=days_late)
    (row,) = late_arrivals(updates(spark, [update(outage_day=about)])).collect()
    assert {name: row[name] for name in COUNTS} == dict.fromkeys(COUNTS, 0) | {counted: 1}


def test_lags_are_hours_that_a_row_of_the_day_has(spark):
    rows = [update(minute, "I" if minute < 2 else "U", outage=str(minute)) for minute in range(10)]
    (row,) = late_arrivals(updates(spark, [*rows, update(59, started_at=None, outage="x")])).collect()
    assert at(0) == START
    assert (row.updates, row.appeared) == (11, 2)
    assert (row.median_lag_hours, row.p90_lag_hours, row.max_lag_hours) == (4 / 60, 8 / 60, 9 / 60)
