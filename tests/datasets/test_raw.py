"""What becomes of a line as received."""

import json
from datetime import date

import pytest

from backfill_assets.datasets.outages.raw import outage_events, rejected_lines
from tests.deliveries import change


def lines(spark, *found: str):
    rows = [(date(2019, 8, 15), "a.jsonl", line) for line in found]
    return spark.createDataFrame(rows, "arrival_day DATE, source_file STRING, line STRING")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param("{", "not JSON", id="half an object"),
        pytest.param("hello", "not JSON", id="a word"),
        pytest.param(json.dumps(change())[:-20], "not JSON", id="a line cut off"),
        pytest.param(json.dumps(change()) * 2, "not JSON", id="two objects on a line"),
        pytest.param("[]", "not an object", id="a list"),
        pytest.param(json.dumps([change()]), "not an object", id="an object in a list"),
        pytest.param("7", "not an object", id="a number"),
        pytest.param("null", "not an object", id="null"),
        pytest.param(json.dumps(change(outageNumber=None)), "no outageNumber", id="no number"),
        pytest.param(json.dumps(change(_op=None)), "no _op", id="no change"),
        pytest.param(json.dumps(change(_captured_at=None)), "no _captured_at", id="no time of capture"),
        pytest.param(json.dumps(change(_op="X")), "unknown _op X", id="a change of a new kind"),
        pytest.param(json.dumps(change(_captured_at="soon")), "_captured_at is not a time", id="a time that is none"),
    ],
)
def test_a_line_that_is_no_change_is_kept_beside_with_the_reason(spark, line, reason):
    assert [row.reason for row in rejected_lines(lines(spark, line)).collect()] == [reason]
    assert outage_events(lines(spark, line)).collect() == []


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        pytest.param({}, {}, id="known fields only"),
        pytest.param({"depth": 3}, {"depth": "3"}, id="a number as text"),
        pytest.param({"tags": {"a": [1, None]}}, {"tags": '{"a":[1,null]}'}, id="an object as its JSON"),
        pytest.param({"depth": 3, "cause": None}, {"depth": "3"}, id="an unknown field beside a known one that is missing"),
    ],
)
def test_fields_nobody_knows_are_kept_in_a_map(spark, fields, unknown):
    row = outage_events(lines(spark, json.dumps(change(**fields)))).collect()[0]
    assert (row.unknown_fields, row.outageNumber, row.n_devices) == (unknown, "1", "1")


def test_a_null_field_is_null_and_not_unknown(spark):
    line = json.dumps(change()).replace('"cause": "Unknown"', '"cause": null')
    row = outage_events(lines(spark, line)).collect()[0]
    assert (row.cause, row.unknown_fields) == (None, {})


def test_every_line_is_either_a_change_or_rejected(spark):
    found = lines(spark, *[json.dumps(change(str(n))) for n in range(5)], "{", "[]")
    assert (outage_events(found).count(), rejected_lines(found).count()) == (5, 2)
