from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets import definitions
from backfill_assets.calendar import (
    Calendar,
    consecutive,
    days_around,
    days_around_any,
    fixed_days,
    ranges,
)
from backfill_assets.errors import UsageError
from backfill_assets.lake.slices import condition
from backfill_assets.project import Project
from backfill_assets.settings import read_settings
from backfill_assets.tables.declaration import window
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day, days
from tests.worlds.tables import outages

CALENDAR = Calendar(date(2019, 8, 15), date(2019, 10, 13))


def test_a_window_is_of_whole_days(golden):
    with pytest.raises(ValueError, match=r"-1\.5") as raised:
        window(outages, first=-1.5, last=0)  # type: ignore[arg-type]
    golden(str(raised.value))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("2019-08-16", days(1), id="one day"),
        pytest.param("2019-08-15..2019-08-17", days(0, 1, 2), id="a range has both its ends"),
        pytest.param(
            "2019-08-15, 2019-08-18..2019-08-19",
            days(0, 3, 4),
            id="days and ranges together leave the gap out",
        ),
        pytest.param(
            "2019-08-16,2019-08-15..2019-08-16", days(0, 1), id="a day named twice is one day"
        ),
        pytest.param("last 2", days(58, 59), id="the last days end with the calendar"),
        pytest.param(
            "last 500", days(*range(60)), id="more last days than there are is all of them"
        ),
        pytest.param(
            "last 999999999", days(*range(60)), id="more than there are dates is all of them too"
        ),
        pytest.param("all", days(*range(60)), id="all days"),
        pytest.param("2019-09", days(*range(17, 47)), id="a month"),
        pytest.param("2019-08", days(*range(17)), id="the days of a month in the calendar"),
        pytest.param("2019-10-12..", days(58, 59), id="to the end of the calendar"),
        pytest.param("..2019-08-16", days(0, 1), id="from its beginning"),
        pytest.param("..2019-08", days(*range(17)), id="to the end of a month"),
        pytest.param("2019-10..", days(*range(47, 60)), id="from the beginning of a month"),
        pytest.param("2019-08..2019-09-01", days(*range(18)), id="from a month to a day"),
        pytest.param(
            " 2019-10 , ..2019-08-15,2019-08-17", days(0, 2, *range(47, 60)), id="several of them"
        ),
    ],
)
def test_text_names_days(text, named):
    assert CALENDAR.select(text) == named


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "2019-08-14..2019-08-16",
            id="a day before the first",
        ),
        *["2019-11", "2024-02..", "2019-11-03..", "..2019-07-02", "..2019-10-15"],
        *["2019-08-01..", "9999-12"],
        pytest.param(
            "2019-13",
            id="a month that does not exist",
        ),
        pytest.param(
            "2019-09..2019-08",
            id="reversed months",
        ),
        pytest.param(
            "2019-10-14",
            id="a day after the last",
        ),
        pytest.param(
            "2019-08-17..2019-08-16",
            id="a reversed range",
        ),
        pytest.param(
            "2019-8-16",
            id="a day without its zeros",
        ),
        pytest.param(
            "yesterday",
            id="a word",
        ),
        pytest.param(
            "last 0",
            id="no days at all",
        ),
    ],
)
def test_what_names_no_days_is_refused_with_what_is_allowed(text, golden):
    with pytest.raises(UsageError) as refused:
        CALENDAR.select(text)
    golden(str(refused.value))


@pytest.mark.parametrize("text", ["last 7", "all", "2019-09-01..", "..2019-09-01", "2019-09 ,.."])
def test_what_needs_a_calendar_names_no_fixed_days(text, golden):
    with pytest.raises(UsageError) as raised:
        fixed_days(text)
    golden(str(raised.value))
    february = [date(2020, 2, n) for n in range(1, 30)]
    assert fixed_days("2020-02") == fixed_days("2020-02-01..2020-02") == february


def test_days_to_the_end_of_a_growing_calendar_are_those_until_yesterday():
    growing = Calendar(date(2019, 8, 15), today=lambda: date(2019, 8, 18))
    assert growing.select("2019-08-16..") == growing.select("2019-08,2019-08-16")[1:] == days(1, 2)


def test_without_a_fixed_last_day_the_calendar_ends_yesterday():
    growing = Calendar(date(2019, 8, 15), today=lambda: date(2019, 8, 18))
    assert growing.days() == days(0, 1, 2)
    assert day(3) not in growing


@pytest.mark.parametrize(
    ("zone", "last"),
    [
        pytest.param("UTC", date(2021, 3, 27), id="UTC"),
        pytest.param("Europe/Berlin", date(2021, 3, 28), id="after midnight of a day of 23 hours"),
        pytest.param("Asia/Kolkata", date(2021, 3, 28), id="half an hour"),
        pytest.param("America/Los_Angeles", date(2021, 3, 27), id="before its midnight"),
        pytest.param("Pacific/Kiritimati", date(2021, 3, 28), id="14 hours ahead"),
    ],
)
def test_yesterday_is_that_of_the_zone(zone, last, monkeypatch):
    now = datetime(2021, 3, 28, 22, 30, tzinfo=UTC)
    monkeypatch.setattr("backfill_assets.calendar.time", now.timestamp)
    growing = Calendar(date(2021, 3, 1), zone=zone)
    assert growing.last == last
    assert growing.days()[-1] == last
    assert Calendar(date(2021, 3, 1), date(2021, 3, 5), zone=zone).last == date(2021, 3, 5)


def test_the_zone_of_a_setting_comes_before_that_of_the_project():
    project = Project((), date(2019, 8, 15), zone="Asia/Kolkata")
    for setting, zone in (("", "Asia/Kolkata"), ("Europe/Berlin", "Europe/Berlin")):
        workspace = Workspace.of(project, read_settings(zone=setting))
        assert (workspace.calendar.zone, workspace.area.zone, workspace.lake.zone) == (zone,) * 3
    unnamed = Workspace.of(replace(project, zone=""), read_settings())
    assert {unnamed.calendar.zone, unnamed.area.zone, unnamed.lake.zone} == {"UTC"}


@pytest.mark.parametrize("zone", ["Europe/Berln", "Berlin", "Mars", "Europe", "localtime", "../x"])
def test_a_zone_that_does_not_exist_is_refused_with_similar_names(zone, golden):
    with golden.raises(ValueError):
        definitions(tables=[outages], zone=zone)


def test_days_outside_the_calendar_are_clipped():
    assert CALENDAR.clip(days(-1, 0, 59, 60)) == days(0, 59)


def test_days_are_consecutive_until_one_is_missing():
    assert consecutive(days(5, 1, 2, 4, 2)) == [days(1, 2), days(4, 5)]


@pytest.mark.parametrize(
    ("those", "sql"),
    [
        pytest.param([], "false", id="no days are no rows"),
        pytest.param(
            days(1), "(d >= DATE'2019-08-16' AND d < DATE'2019-08-17')", id="one day is half open"
        ),
        pytest.param(
            days(0, 1, 3),
            "(d >= DATE'2019-08-15' AND d < DATE'2019-08-17') OR (d >= DATE'2019-08-18' AND d <"
            " DATE'2019-08-19')",
            id="a gap is left out",
        ),
    ],
)
def test_a_slice_is_exactly_its_days(those, sql):
    assert condition("d", those) == sql


def test_days_are_written_as_ranges():
    assert ranges(days(4, 0, 1, 2)) == "2019-08-15..2019-08-17, 2019-08-19"


spans = st.tuples(st.integers(-4, 4), st.integers(-4, 4))


@given(st.sets(st.integers(0, 20)), spans)
def test_the_windows_of_many_days_are_those_of_each_together(numbers, span):
    days_of_each = {other for n in numbers for other in days_around(day(n), *span)}
    assert days_around_any({day(n) for n in numbers}, *span) == sorted(days_of_each)


@given(st.integers(-3, 12), spans)
def test_a_window_is_clipped_to_the_calendar(number, span):
    calendar = Calendar(day(0), day(9))
    clipped = [date.fromordinal(n) for n in calendar.window(*span)(day(number))]
    assert clipped == calendar.clip(days_around(day(number), *span))


def test_days_around_a_day_end_where_dates_do():
    assert days_around(date(1, 1, 2), -999_999, 0) == [date(1, 1, 1), date(1, 1, 2)]
    assert days_around(date.max, 0, 999_999) == [date.max]
    assert days_around_any([date(1, 1, 2), date(1, 1, 3)], -999_999, 0) == [
        date(1, 1, 1),
        date(1, 1, 2),
        date(1, 1, 3),
    ]
    assert days_around_any([date.max], -1, 999_999) == [date(9999, 12, 30), date.max]
