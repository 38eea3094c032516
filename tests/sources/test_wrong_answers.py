"""Answers that are wrong, refusals, and what was kept and changed since: named, not used, and other
days are there.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from backfill_assets.errors import Awaited, SourceError
from backfill_assets.lake import storage
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.http.client import Refused, ask
from tests.worlds.weather import (
    DAYS,
    PLACES,
    UNITS,
    area_of,
    delivered,
    expected,
    rows,
    service,
    value,
)

PLENTY = ((10**6, 60.0),)


@pytest.fixture
def area(tmp_path, weather) -> LandingArea:
    return area_of(tmp_path / "lake", weather.url)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(
            "not JSON",
            "the answer is wrong: Unterminated|the answer is wrong: Expecting",
            id="no JSON",
        ),
        pytest.param("a place less", "it is about 1 places, asked were 2", id="a place less"),
        pytest.param(
            "another place",
            r"it is about another place than \(38.25, -121.25\)",
            id="another place",
        ),
        pytest.param("other units", "its units are {'temperature_2m_max': '°F'", id="other units"),
        pytest.param(
            "text for a number",
            "temperature_2m_max is not one number or null a day",
            id="text for a number",
        ),
        pytest.param(
            "a value less", "temperature_2m_max is not one number or null a day", id="a value less"
        ),
        pytest.param("no days", "it has not the form of one", id="an object of another form"),
        pytest.param(
            "no column", "the answer is wrong: TypeError: object of type", id="null for a column"
        ),
        pytest.param(
            "400 digits", "the answer is wrong: OverflowError", id="a number that no double holds"
        ),
        pytest.param(
            "no place", r"it is about another place than \(38.25, -121.25\)", id="NaN for a place"
        ),
        pytest.param("a day twice", "it has a day twice", id="a day twice"),
        pytest.param("too deep", "the answer is wrong: RecursionError", id="lists in lists"),
    ],
)
def test_a_wrong_answer_is_not_kept_and_named_and_other_days_are_there(
    weather, area, patience, fault, message
):
    source = service(PLENTY, at_once=2)
    twice = replace(patience, attempts=2)
    weather.faults += [fault] * 2
    why = ask(source, area, DAYS[:4], twice)
    assert {*why} == {*DAYS[:2]}
    for error in why.values():
        assert type(error) is SourceError
        error_of = pytest.raises(SourceError, match=message)
        with error_of:
            raise error
    assert delivered(source, area) == DAYS[2:4]
    assert ask(source, area, DAYS[:4], patience) == {}


def test_a_request_for_one_day_that_is_refused_is_not_sent_again(weather, area, patience):
    weather.faults.append("400")
    why = ask(service(PLENTY), area, DAYS[:1], patience)
    assert [f"{type(error).__name__}: {error}" for error in why.values()] == [
        "Refused: weather for 2019-08-15..2019-08-15 cannot be had: the service answered 400: "
        '{"error": true, "reason": "Out of range"}'
    ]
    assert len(weather.log) == 1


@pytest.mark.parametrize(
    ("has", "asked"),
    [
        pytest.param(DAYS[:12], 7, id="not the last two"),
        pytest.param(DAYS[2:14], 7, id="not the first two"),
        pytest.param(DAYS[:0], 4, id="none: it is not the days"),
    ],
)
def test_days_that_a_service_refuses_hold_up_no_others_of_their_request(
    weather, area, patience, has, asked
):
    weather.has = has
    why = ask(service(PLENTY), area, DAYS[:14], patience)
    assert {*why} == {*DAYS[:14]} - {*has}
    assert {type(error) for error in why.values()} == {Refused}
    assert (delivered(service(PLENTY), area), len(weather.log)) == (has, asked)


def test_a_changed_stored_answer_is_refused_and_fetched_again_once_deleted(weather, area, patience):
    ask(service(PLENTY), area, DAYS[:2], patience)
    (kept,) = Path(area.lake).rglob(f"{DAYS[0]}-*.json")
    for changed in (kept.read_text().replace("40.75", "40.5"), kept.read_text()[:-9], "[]"):
        kept.write_text(changed)
        with pytest.raises(
            SourceError, match=f"{kept.name} was changed since it was kept. Delete it"
        ):
            rows(service(PLENTY), area, DAYS[0])
    assert rows(service(PLENTY), area, DAYS[1]) == expected(DAYS[1])
    kept.unlink()
    assert ask(service(PLENTY), area, DAYS[:2], patience) == {}
    assert rows(service(PLENTY), area, DAYS[0]) == expected(DAYS[0])


def test_places_on_a_fine_grid_get_their_own_answers(weather, area, patience):
    """Seven digits of a degree: 38.1875, -121.1875."""
    source = service(PLENTY, grid=0.0625)
    assert ask(source, area, DAYS[:1], patience) == {}
    by_name = {
        name: (round(latitude * 16) / 16, round(longitude * 16) / 16)
        for name, (latitude, longitude) in PLACES.items()
    }
    assert rows(source, area, DAYS[0]) == {
        (name, *cell, *(value(variable, *cell, DAYS[0]) for variable in UNITS))
        for name, cell in by_name.items()
    }


def test_days_wait_for_another_process_that_does_not_stop_asking(
    weather, area, patience, monkeypatch
):
    monkeypatch.setattr(storage, "TIMEOUT_S", 0.1)
    with storage.writing(area.lake, "_answers/weather"):
        why = ask(service(PLENTY), area, DAYS[:2], patience)
    assert ({*why}, {type(error) for error in why.values()}, weather.log) == (
        {*DAYS[:2]},
        {Awaited},
        [],
    )
