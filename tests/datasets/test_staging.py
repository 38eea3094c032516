"""What the functions of staging, and of late arrivals, make of a few rows. test_oracle.py compares
the figures of all days.
"""

from datetime import date, datetime, timedelta

import pytest

from backfill_assets.datasets.outages.lateness import COUNTS, late_arrivals
from backfill_assets.datasets.outages.raw import FIELDS
from backfill_assets.datasets.outages.staging import last_state, once, outage_updates, outages
from backfill_assets.tables.columns import types_of

START = datetime(2019, 8, 15, 12)
COLUMNS = outage_updates.columns


def at(minute: int) -> datetime:
    return datetime(2019, 8, 15, 12, minute)


def update(minute: int = 0, change: str = "U", outage: str = "1", **fields) -> dict:
    known = {
        "arrival_day": date(2019, 8, 15),
        "outage_number": outage,
        "captured_at": at(minute),
        "change": change,
        "outage_day": date(2019, 8, 15),
        "started_at": START,
        "last_update_at": None,
        "estimated_restoration_at": None,
        "automatic_estimate_at": None,
        "crew_expected_at": None,
        "customers": 5,
        "latitude": 38.5,
        "longitude": -122.5,
        "devices": 1,
        "hazard_flags": 0,
        "cause": "Unknown",
        "crew_status": None,
        "region": "Napa",
        "unparsed": {},
    }
    return known | fields


def updates(spark, rows: list[dict]):
    names = [*types_of(COLUMNS)]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in rows], COLUMNS)


@pytest.mark.parametrize(
    ("copies", "state"),
    [
        pytest.param(
            [update(1, customers=5), update(2, customers=7)],
            (7, None, 7, 2),
            id="the later capture wins",
        ),
        pytest.param(
            [update(2, customers=7), update(1, customers=9)], (7, None, 9, 2), id="in any order"
        ),
        pytest.param(
            [update(2, "U", customers=7), update(2, "D", customers=5)],
            (5, at(2), 7, 2),
            id="a removal wins a tie",
        ),
        pytest.param(
            [update(2, "D"), update(2, "I", customers=3)],
            (5, at(2), 5, 2),
            id="over an arrival too",
        ),
        pytest.param(
            [update(1, "D"), update(2, "I", customers=3)],
            (3, None, 5, 2),
            id="an outage may come back",
        ),
        pytest.param(
            [update(1, last_update_at=at(30)), update(2, customers=7, last_update_at=at(20))],
            (7, None, 7, 2),
            id="the source's own update time decides nothing",
        ),
        pytest.param(
            [update(1, customers=8), update(2, customers=None)],
            (None, None, 8, 2),
            id="a count may be unknown",
        ),
    ],
)
def test_the_last_state_of_an_outage_is_kept(spark, copies, state):
    row = last_state(updates(spark, copies)).collect()[0]
    assert (row.customers, row.restored_at, row.peak_customers, row.updates) == state


def test_first_and_last_sight_are_those_of_all_updates(spark):
    row = last_state(updates(spark, [update(3), update(1, "I"), update(2)])).collect()[0]
    assert (row.first_seen_at, row.last_seen_at) == (at(1), at(3))


def test_outages_are_kept_apart_by_day_and_number(spark):
    rows = [
        update(outage="1"),
        update(outage="2"),
        update(outage="1", outage_day=date(2019, 8, 14)),
    ]
    found = last_state(updates(spark, rows)).select("outage_day", "outage_number").collect()
    assert sorted(map(tuple, found)) == [
        (date(2019, 8, 14), "1"),
        (date(2019, 8, 15), "1"),
        (date(2019, 8, 15), "2"),
    ]


@pytest.mark.parametrize(
    ("outage_day", "placed"),
    [
        pytest.param(date(2019, 8, 15), True, id="the day it arrives"),
        pytest.param(date(2019, 8, 1), True, id="the last day of the horizon"),
        pytest.param(date(2019, 7, 31), False, id="a day past the horizon"),
        pytest.param(date(2019, 8, 16), False, id="the future"),
        pytest.param(None, False, id="no day"),
    ],
)
def test_a_row_is_placed_from_its_event_day_to_the_horizon(spark, outage_day, placed):
    found = outages(updates=updates(spark, [update(outage_day=outage_day)])).collect()
    assert [row.outage_day for row in found] == ([outage_day] if placed else [])


@pytest.mark.parametrize("turned", [False, True], ids=["as given", "the other way round"])
def test_copies_that_differ_leave_one_row_whatever_their_order(spark, turned):
    rows = [update(region="Napa"), update(region="Sonoma"), update(region="Napa")]
    found = once(updates(spark, rows[::-1] if turned else rows)).collect()
    assert [row.region for row in found] == ["Sonoma"]


def raw(spark, **fields):
    known = {
        "outageNumber": "1",
        "_op": "I",
        "_captured_at": "2019-08-15T12:00:00Z",
        "outageStartTime": "1565870400",
    }
    columns = "arrival_day DATE, source_file STRING, " + ", ".join(f"{n} STRING" for n in FIELDS)
    row = (date(2019, 8, 15), "a", *[(known | fields).get(name) for name in FIELDS])
    return spark.createDataFrame([row], columns)


@pytest.mark.parametrize(
    ("field", "text", "column", "value", "unparsed"),
    [
        pytest.param("estCustAffected", "12", "customers", 12, {}, id="a number"),
        pytest.param(
            "estCustAffected",
            "many",
            "customers",
            None,
            {"customers": "many"},
            id="a word for a number",
        ),
        pytest.param(
            "estCustAffected",
            None,
            "customers",
            None,
            {},
            id="a value that is not there is not unreadable",
        ),
        pytest.param("latitude", "38.5", "latitude", 38.5, {}, id="a coordinate"),
        pytest.param(
            "latitude", "north", "latitude", None, {"latitude": "north"}, id="no coordinate"
        ),
        pytest.param(
            "currentEtor", "1565870460", "estimated_restoration_at", at(1), {}, id="epoch seconds"
        ),
        pytest.param(
            "currentEtor",
            "soon",
            "estimated_restoration_at",
            None,
            {"estimated_restoration_at": "soon"},
            id="no time",
        ),
        pytest.param(
            "currentEtor",
            "1565870460000",
            "estimated_restoration_at",
            None,
            {"estimated_restoration_at": "1565870460000"},
            id="ms",
        ),
        pytest.param(
            "outageStartTime",
            "1565870400",
            "outage_day",
            date(2019, 8, 15),
            {},
            id="the UTC day it began",
        ),
    ],
)
def test_text_becomes_a_value_or_null_and_a_note(spark, field, text, column, value, unparsed):
    row = outage_updates(raw(spark, **{field: text})).collect()[0]
    assert (row[column], row.unparsed) == (value, unparsed)


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
    (row,) = late_arrivals(
        updates(spark, [*rows, update(59, started_at=None, outage="x")])
    ).collect()
    assert at(0) == START
    assert (row.updates, row.appeared) == (11, 2)
    assert (row.median_lag_hours, row.p90_lag_hours, row.max_lag_hours) == (4 / 60, 8 / 60, 9 / 60)
