"""Requests to a service that limits, delays and breaks: what is sent and stored, and what waits."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from backfill_assets.errors import NotFetchedYet, SourceError
from backfill_assets.lake import locks
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.http.budget import Budget
from backfill_assets.sources.http.client import RequestRefused, fetch_days, seconds_after
from tests.worlds.weather import (
    DAYS,
    PLACES,
    UNITS,
    area_of,
    delivered,
    expected,
    rows,
    running,
    service,
    value,
)

PLENTY = ((10**6, 60.0),)


@pytest.fixture
def area(tmp_path, weather) -> LandingArea:
    return area_of(tmp_path / "lake", weather.url)


def test_many_days_and_places_are_one_request_and_none_is_repeated(weather, area, policy):
    source = service(PLENTY)
    assert fetch_days(source, area, DAYS[:3], policy) == {}
    assert fetch_days(source, area, DAYS, policy) == {}
    assert weather.days() == [
        ("2019-08-15", "2019-08-17"),
        ("2019-08-18", "2019-08-31"),
        ("2019-09-01", "2019-09-03"),
    ]
    asked = weather.asked[0]
    assert (asked["latitude"], asked["longitude"]) == (
        "38.25,40.75",
        "-121.25,-124.25",
    ), "two places in one cell, once"
    assert all(rows(source, area, day) == expected(day) for day in DAYS)
    before = source.delivered(area, DAYS)
    assert fetch_days(source, area, DAYS, policy) == {}
    assert (len(weather.log), source.delivered(area, DAYS)) == (3, before)


def test_stored_answers_do_not_depend_on_how_requests_are_grouped(tmp_path, weather, policy):
    one, other = (area_of(tmp_path / name, weather.url) for name in ("one", "other"))
    fetch_days(service(PLENTY), one, DAYS[:5], policy)
    for day in reversed(DAYS[:5]):
        fetch_days(service(PLENTY), other, [day], policy)
    assert service(PLENTY).delivered(one, DAYS[:5]) == service(PLENTY).delivered(other, DAYS[:5])
    by_place = service(PLENTY, at_a_time=1)
    fetch_days(by_place, other, DAYS[:5], policy)
    assert all(rows(by_place, other, day) == expected(day) for day in DAYS[:5])


def test_another_place_or_variable_is_another_query(weather, area, policy):
    source = service(PLENTY)
    fetch_days(source, area, DAYS[:2], policy)
    for other in (
        replace(source, variables={"precipitation_sum": "mm"}),
        replace(source, places={"Chico": (39.73, -121.84)}),
    ):
        assert delivered(other, area) == []
        assert fetch_days(other, area, DAYS[:2], policy) == {}
    assert len(weather.log) == 3
    assert delivered(source, area) == DAYS[:2]


def test_temporary_errors_are_retried_with_growing_waits(weather, area, policy, clock):
    weather.faults += ["500", "cut off", "not JSON"]
    assert fetch_days(service(PLENTY), area, DAYS[:2], policy) == {}
    assert (len(weather.log), clock.slept) == (4, [1, 2, 4])
    assert rows(service(PLENTY), area, DAYS[1]) == expected(DAYS[1])


@pytest.mark.parametrize(
    ("fault", "slept"),
    [
        pytest.param("429 7", 7, id="429 that says how long"),
        pytest.param("503 9", 9, id="503 that says how long"),
        pytest.param("429", 60, id="429 that says nothing: the shortest span of a limit"),
    ],
)
def test_a_pause_that_the_service_asks_for_is_obeyed(weather, area, policy, clock, fault, slept):
    weather.faults.append(fault)
    assert fetch_days(service(PLENTY), area, DAYS[:1], policy) == {}
    assert (len(weather.log), sum(clock.slept)) == (2, slept)


def test_a_long_pause_is_left_to_a_later_run(weather, area, policy, clock, golden):
    weather.faults.append("429 3600")
    for _ in range(2):
        why = fetch_days(service(PLENTY), area, DAYS, policy)
        assert {*why} == {*DAYS}
        golden(why[DAYS[0]].what)
    assert (len(weather.log), sum(clock.slept)) == (1, 1), "the others were not even tried"
    clock.now += 3600
    assert fetch_days(service(PLENTY), area, DAYS, policy) == {}


def test_days_beyond_the_budget_wait_for_the_next_day(weather, area, policy, clock, golden):
    # Two cells: four units a minute are two requests.
    source = service(((4, 60.0), (8, 86_400.0)), at_once=2)
    why = fetch_days(source, area, DAYS[:10], policy)
    assert (delivered(source, area), {*why}) == (DAYS[:8], {*DAYS[8:10]})
    assert type(why[DAYS[9]]) is NotFetchedYet
    golden(why[DAYS[9]].what)
    assert clock.slept == [60], "the budget of a minute is waited for"
    clock.now += 86_400
    assert fetch_days(source, area, DAYS[:10], policy) == {}
    assert delivered(source, area) == DAYS[:10]


def test_days_that_the_service_lacks_wait(weather, area, policy, golden):
    weather.newest = DAYS[2]
    weather.faults = ["a missing day"]
    why = fetch_days(service(PLENTY), area, DAYS[:3], policy)
    assert [(day, type(error)) for day, error in why.items()] == [(DAYS[2], NotFetchedYet)]
    golden(why[DAYS[2]].what)
    why = fetch_days(service(PLENTY), area, DAYS[:5], policy)
    assert [(day, type(error)) for day, error in why.items()] == [
        (day, NotFetchedYet) for day in DAYS[3:5]
    ]
    assert delivered(service(PLENTY), area) == DAYS[:3]
    assert weather.days()[1] == (
        str(DAYS[2]),
        str(DAYS[4]),
    ), "what is there was not asked for again"


@pytest.mark.parametrize(
    ("faults", "most"),
    [
        (["slow", "slow"], {"longest": 0.2}),
        ([], {"largest": 100}),
    ],
    ids=["without an end", "too large"],
)
def test_an_endless_or_too_large_answer_is_given_up(weather, area, policy, faults, most, golden):
    weather.faults += faults
    policy = replace(policy, attempts=2, **most)
    error = fetch_days(service(PLENTY), area, DAYS[:1], policy)[DAYS[0]]
    assert (type(error), len(weather.log)) == (NotFetchedYet, 2)
    golden(error.what, SERVICE=weather.url)


def test_an_unreachable_service_is_tried_for_the_first_days_only(tmp_path, policy, golden):
    with running() as gone:
        pass
    why = fetch_days(
        service(PLENTY, at_once=1), area_of(tmp_path, f"{gone.url}?apikey=S3CRET"), DAYS, policy
    )
    assert {*why} == {*DAYS}
    assert {type(error) for error in why.values()} == {NotFetchedYet}
    golden(why[DAYS[19]].what, SERVICE=gone.url)
    assert not any("CRET" in str(error) for error in why.values())


def test_a_key_in_the_address_is_sent_and_never_stored(weather, area, policy):
    with_key = replace(area, urls={"weather": f"{weather.url}?apikey=S3CRET"})
    assert fetch_days(service(PLENTY), with_key, DAYS[:1], policy) == {}
    assert weather.asked[0]["apikey"] == "S3CRET"
    assert delivered(service(PLENTY), area) == DAYS[:1]
    assert not [
        path
        for path in Path(area.lake).rglob("*")
        if path.is_file() and b"S3CRET" in path.read_bytes()
    ]


def spoil(budget: Path, how: str) -> None:
    if how == "damaged":
        budget.write_bytes(b"no database" * 999)
    else:
        with closing(sqlite3.connect(budget)) as file:  # as where the disk is full
            file.execute(
                "CREATE TRIGGER full BEFORE INSERT ON sent BEGIN SELECT raise(ABORT, 'database or"
                " disk is full'); END"
            )


@pytest.mark.parametrize("how", ["damaged", "full"])
def test_days_wait_while_the_budget_cannot_be_used(weather, area, policy, how, golden):
    source = service(PLENTY)
    budget = Path(area.lake, "_answers", "weather", "_budget.sqlite")
    fetch_days(source, area, DAYS[:2], policy)
    before = budget.read_bytes()
    spoil(budget, how)
    why = fetch_days(source, area, DAYS[:3], policy)
    assert ({*why}, type(why[DAYS[2]])) == ({DAYS[2]}, NotFetchedYet)
    golden(why[DAYS[2]].what)
    assert (len(weather.log), delivered(source, area)) == (1, DAYS[:2])
    budget.write_bytes(before)
    assert fetch_days(source, area, DAYS[:3], policy) == {}


def test_an_answer_counts_even_if_the_budget_cannot_record_it(weather, area, policy, monkeypatch):
    source = service(PLENTY)
    budget = Path(area.lake, "_answers", "weather", "_budget.sqlite")
    taken = Budget.take

    def take_and_spoil(self, units):
        slot = taken(self, units)
        spoil(budget, "damaged")
        return slot

    monkeypatch.setattr(Budget, "take", take_and_spoil)
    assert (fetch_days(source, area, DAYS[:2], policy), delivered(source, area)) == ({}, DAYS[:2])


def test_a_request_larger_than_the_budget_is_refused(weather, area, policy, golden):
    why = fetch_days(service(((1, 60.0),)), area, DAYS[:1], policy)
    assert (type(why[DAYS[0]]), weather.log) == (SourceError, [])
    golden(why[DAYS[0]].what)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        pytest.param("120", 120.0, id="seconds"),
        pytest.param("Fri, 16 Aug 2019 00:02:00 GMT", 120.0, id="a time"),
        pytest.param("Thu, 15 Aug 2019 00:00:00 GMT", 0.0, id="a time that has passed"),
        pytest.param("soon", None, id="neither"),
        pytest.param("9" * 400, 7 * 86_400.0, id="a number without end: a week"),
        pytest.param(
            "Fri, 16 Aug 2019 00:02:00 +99999999999999999999", None, id="a zone that there is not"
        ),
        pytest.param("", None, id="nothing"),
    ],
)
def test_retry_after_is_seconds_or_a_time(header, seconds):
    assert seconds_after(header, 1_565_913_600.0) == seconds


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("not JSON", id="no JSON"),
        pytest.param("a place less", id="a place less"),
        pytest.param("another place", id="another place"),
        pytest.param("other units", id="other units"),
        pytest.param("text for a number", id="text for a number"),
        pytest.param("a value less", id="a value less"),
        pytest.param("no days", id="an object of another form"),
        pytest.param("no column", id="null for a column"),
        pytest.param("400 digits", id="a number that no double holds"),
        pytest.param("no place", id="NaN for a place"),
        pytest.param("a day twice", id="a day twice"),
        pytest.param("too deep", id="lists in lists"),
    ],
)
def test_a_wrong_answer_is_not_stored_and_stops_no_other_day(weather, area, policy, fault, golden):
    source = service(PLENTY, at_once=2)
    twice = replace(policy, attempts=2)
    weather.faults += [fault] * 2
    why = fetch_days(source, area, DAYS[:4], twice)
    assert {*why} == {*DAYS[:2]}
    for error in why.values():
        assert type(error) is SourceError
        golden(error.what, SERVICE=weather.url)
    assert delivered(source, area) == DAYS[2:4]
    assert fetch_days(source, area, DAYS[:4], policy) == {}


def test_a_request_for_one_day_that_is_refused_is_not_sent_again(weather, area, policy, golden):
    weather.faults.append("400")
    (error,) = fetch_days(service(PLENTY), area, DAYS[:1], policy).values()
    assert (type(error), len(weather.log)) == (RequestRefused, 1)
    golden(error.what, SERVICE=weather.url)


@pytest.mark.parametrize(
    ("has", "asked"),
    [
        pytest.param(DAYS[:12], 7, id="not the last two"),
        pytest.param(DAYS[2:14], 7, id="not the first two"),
        pytest.param(DAYS[:0], 4, id="none: it is not the days"),
    ],
)
def test_refused_days_stop_no_other_days_of_their_request(weather, area, policy, has, asked):
    weather.has = has
    why = fetch_days(service(PLENTY), area, DAYS[:14], policy)
    assert {*why} == {*DAYS[:14]} - {*has}
    assert {type(error) for error in why.values()} == {RequestRefused}
    assert (delivered(service(PLENTY), area), len(weather.log)) == (has, asked)


def test_a_changed_stored_answer_is_refused_and_fetched_again_once_deleted(
    weather, area, policy, refused
):
    fetch_days(service(PLENTY), area, DAYS[:2], policy)
    (kept,) = Path(area.lake).rglob(f"{DAYS[0]}-*.json")
    for changed in (kept.read_text().replace("40.75", "40.5"), kept.read_text()[:-9], "[]"):
        kept.write_text(changed)
        refused(lambda: rows(service(PLENTY), area, DAYS[0]), kind=SourceError)
    assert rows(service(PLENTY), area, DAYS[1]) == expected(DAYS[1])
    kept.unlink()
    assert fetch_days(service(PLENTY), area, DAYS[:2], policy) == {}
    assert rows(service(PLENTY), area, DAYS[0]) == expected(DAYS[0])


def test_places_on_a_fine_grid_get_their_own_answers(weather, area, policy):
    """Seven digits of a degree: 38.1875, -121.1875."""
    source = service(PLENTY, grid=0.0625)
    assert fetch_days(source, area, DAYS[:1], policy) == {}
    by_name = {
        name: (round(latitude * 16) / 16, round(longitude * 16) / 16)
        for name, (latitude, longitude) in PLACES.items()
    }
    assert rows(source, area, DAYS[0]) == {
        (name, *cell, *(value(variable, *cell, DAYS[0]) for variable in UNITS))
        for name, cell in by_name.items()
    }


def test_days_wait_while_another_process_holds_the_lock(weather, area, policy, monkeypatch):
    # A writer waits half an hour for the lock of another.
    monkeypatch.setattr(locks, "LOCK_PATIENCE_S", 0.1)
    with locks.writing(area.lake, "_answers/weather"):
        why = fetch_days(service(PLENTY), area, DAYS[:2], policy)
    assert ({*why}, {type(error) for error in why.values()}, weather.log) == (
        {*DAYS[:2]},
        {NotFetchedYet},
        [],
    )
