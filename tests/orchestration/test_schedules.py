from datetime import date, timedelta

import pytest

from backfill_assets.calendar import Calendar, between
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.orchestration.schedules import days_of_the_night, days_that_may_change

TODAY = date(2019, 10, 14)
GROWING = Calendar(date(2019, 8, 15), today=lambda: TODAY)
NEWEST = date(2019, 10, 13)


def all_but(*missing: date) -> list[date]:
    return [day for day in between(GROWING.first, NEWEST - timedelta(days=1)) if day not in missing]


@pytest.mark.parametrize(
    ("built", "first"),
    [
        pytest.param(all_but(), date(2019, 10, 11), id="yesterday and the two days before it"),
        pytest.param(all_but(date(2019, 10, 5)), date(2019, 10, 3), id="a missed night is caught up with"),
        pytest.param(all_but(date(2019, 10, 12)), date(2019, 10, 10), id="a missed night within the watermark"),
        pytest.param(all_but(date(2019, 9, 13)), date(2019, 9, 11), id="a night missed a month ago"),
        pytest.param(all_but(date(2019, 9, 1)), date(2019, 10, 11), id="a night missed longer ago is to be planned"),
        pytest.param([], date(2019, 10, 11), id="a lake with nothing in it is not filled unasked"),
        pytest.param([date(2019, 10, 1)], date(2019, 10, 1), id="days before the first ever built were never begun"),
    ],
)
def test_a_night_covers_yesterday_the_provisional_days_and_missed_ones(built, first):
    assert days_of_the_night(GROWING, 2, built) == list(between(first, NEWEST))


def test_a_calendar_that_begins_today_has_no_night():
    assert days_of_the_night(Calendar(TODAY, today=lambda: TODAY), 2, []) == []


def test_a_young_calendar_is_not_left():
    assert days_of_the_night(Calendar(NEWEST, today=lambda: TODAY), 2, []) == [NEWEST]


@pytest.mark.parametrize(("late_rows", "days"), [(True, 14), (False, 2)], ids=["the horizon", "the watermark"])
def test_a_night_reaches_back_as_far_as_a_delivery_may_change_days(late_rows, days):
    assert days_that_may_change(TABLES, late_rows=late_rows) == days
