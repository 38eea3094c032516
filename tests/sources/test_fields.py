"""What a file's columns are to those that its source declares, and which days lack which."""

from datetime import date
from typing import Any

import pytest

from backfill_assets import Csv
from backfill_assets.sources.files.fields import (
    Header,
    eras,
    field,
    header_of,
    missing_columns,
    repeated_columns,
)
from backfill_assets.sources.files.landing import Landing
from tests.worlds.deliveries import day, days

CASES = (
    field("country STRING", "Country_Region", "Country/Region", required=True),
    field("cases BIGINT", "Confirmed", until=day(3)),
    field("lat DOUBLE", "Lat", "Latitude", since=day(1)),
)


@pytest.mark.parametrize(
    ("names", "places", "missing", "unknown"),
    [
        (["Country_Region", "Confirmed", "Lat"], {"country": 0, "cases": 1, "lat": 2}, (), {}),
        (["Confirmed", "Country/Region"], {"cases": 0, "country": 1}, ("lat",), {}),
        (
            ["Latitude", "ISO3", "Lat", "Country_Region"],
            {"lat": 2, "country": 3},
            ("cases",),
            {"Latitude": 0, "ISO3": 1},
        ),
    ],
    ids=[
        "as declared",
        "older names in another order",
        "two names of one column, and one that nobody declared",
    ],
)
def test_a_column_is_found_by_the_first_of_its_names(names, places, missing, unknown):
    assert header_of(names, CASES) == Header(places, missing, unknown)


def test_a_missing_required_column_is_named_with_all_its_names(golden):
    golden(missing_columns(header_of(["Confirmed"], CASES), CASES, day(0)))
    assert missing_columns(header_of(["Country/Region"], CASES), CASES, day(0)) == ""


def test_a_missing_column_is_suggested_by_its_likely_new_name(golden):
    declared = [field("latitude DOUBLE", required=True), field("n BIGINT")]
    header = header_of(["N", "latitudine", "n"], declared)
    assert header.new_name_of(declared[0]) == "latitudine"
    golden(missing_columns(header, declared, day(0)))
    assert header_of(["LATITUDE", "n"], declared).new_name_of(declared[0]) == "LATITUDE"
    assert header_of(["x", "n"], declared).new_name_of(declared[0]) == ""
    assert header_of(["latitude;n"], declared).new_name_of(declared[0]) == ""


def test_a_required_column_is_required_only_from_since_until():
    since = [field("n BIGINT"), field("region STRING", required=True, since=day(1), until=day(2))]
    of_days = {at: missing_columns(header_of(["n"], since), since, at) for at in days(0, 1, 2, 3)}
    assert [bool(why) for why in of_days.values()] == [False, True, True, False]


def test_a_file_without_declared_columns_lists_its_own(golden):
    declared = [
        field("id STRING"),
        field("town STRING"),
        field("amount BIGINT", "Amount"),
        field("note STRING"),
    ]
    golden(missing_columns(header_of(["id;town;amount"], declared), declared, day(0)))
    assert missing_columns(header_of(["note", "x"], declared), declared, day(0)) == ""
    assert missing_columns(header_of(["x"], ()), (), day(0)) == ""


def test_a_repeated_column_is_refused(golden):
    golden(repeated_columns(header_of(["Country_Region", "a", "a"], CASES)))


def test_an_era_begins_where_a_column_appears_or_disappears():
    found = eras(CASES, days(0, 1, 2, 3, 4))
    assert found == {("lat",): [day(0)], (): days(1, 2, 3), ("cases",): [day(4)]}


@pytest.mark.parametrize(
    "declared",
    [
        lambda: field("cases"),
        lambda: field("cases BIGINT", since=date(2020, 2, 1), until=date(2020, 1, 1)),
        lambda: field("a STRING", since="2024-06-02"),  # type: ignore[arg-type]
        lambda: field("a STRING", ["x", "y"]),  # type: ignore[arg-type]
    ],
    ids=["no type", "days in the wrong order", "a day as text", "names in a list"],
)
def test_an_invalid_column_is_refused_where_it_is_declared(declared, refused):
    refused(declared)


@pytest.mark.parametrize(
    "given",
    [
        {"fields": [field("a STRING"), field("a BIGINT", "b")]},
        {"fields": [field("source_file STRING")]},
        {"fields": [field("unparsed STRING", "b")]},
        {"fields": [field("a DATE", "x", until=day(0)), field("b DATE", "x", since=day(1))]},
        {"fields": [field("a STRING", "x"), field("b STRING", "x")]},
        {"fields": ["order STRING"]},
        {"files": []},
        {"files": 7},
        {"fewest": 1.5},
        {"format": "csv"},
        {"format": Csv},
        {"settled": "60"},
        {"settled": -5},
        {"horizon": -1},
        {"horizon": "a week"},
        {"name": 7},
        {"name": "../orders"},
        {"name": ""},
        {"name": "/orders"},
        {"files": "%Y-%m-%d.csv", "marker": "_SUCCESS"},
        {"marker": "done/ok"},
    ],
    ids=",".join,
)
def test_an_invalid_landing_is_refused_where_it_is_declared(given: dict[str, Any], refused):
    refused(lambda: Landing(**{"name": "a"} | given))
