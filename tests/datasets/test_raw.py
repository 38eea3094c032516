"""What becomes of a line as received."""

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from backfill_assets.datasets.outages.raw import (
    LANDED,
    NEEDED,
    outage_events,
    reason,
    rejected_lines,
    with_fields,
)
from backfill_assets.sources.area import LandingArea
from tests.worlds.deliveries import change, day, put
from tests.worlds.depth import deep


def lines(spark, *found: str):
    rows = [(date(2019, 8, 15), "a.jsonl", line, True) for line in found]
    return spark.createDataFrame(
        rows, "arrival_day DATE, source_file STRING, line STRING, is_utf8 BOOLEAN"
    )


def delivered(spark, landing, *found: bytes):
    """The same lines, read from a file."""
    put(landing, "outage_events/2019-08-15.jsonl", b"\n".join(found) + b"\n")
    return LANDED.read(LandingArea(landing), spark, [day(0)])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param("{", "not JSON", id="half an object"),
        pytest.param("hello", "not JSON", id="a word"),
        pytest.param(json.dumps(change())[:-20], "not JSON", id="a line cut off"),
        pytest.param(json.dumps(change()) * 2, "not JSON", id="two objects on a line"),
        pytest.param(
            json.dumps(change()) + "]" + json.dumps(change()),
            "not JSON",
            id="what ends a list, and a second object",
        ),
        pytest.param(
            json.dumps(change()) + "] garbage", "not JSON", id="what ends a list, and a word"
        ),
        pytest.param(
            json.dumps(change()) + "} garbage", "not JSON", id="what ends an object, and a word"
        ),
        pytest.param(json.dumps(change()) + "]}", "not JSON", id="what ends both"),
        pytest.param(
            json.dumps(change()) + "}]", "not JSON", id="what ends both, the other way round"
        ),
        pytest.param(json.dumps(change()).replace('"', "'"), "not JSON", id="single quotes"),
        pytest.param(
            json.dumps(change(n_devices=float("nan"))), "not JSON", id="a number that is none"
        ),
        pytest.param("[]", "not an object", id="a list"),
        pytest.param(json.dumps([change()]), "not an object", id="an object in a list"),
        pytest.param("7", "not an object", id="a number"),
        pytest.param("null", "not an object", id="null"),
        pytest.param(json.dumps(change(outageNumber=None)), "no outageNumber", id="no number"),
        pytest.param(json.dumps(change(_op=None)), "no _op", id="no change"),
        pytest.param(
            json.dumps(change(_captured_at=None)), "no _captured_at", id="no time of capture"
        ),
        pytest.param(json.dumps(change(_op="X")), "unknown _op X", id="a change of a new kind"),
        *(
            pytest.param(
                json.dumps(change(_captured_at=text)),
                "_captured_at is not a time",
                id=f"a time as {text!r}",
            )
            for text in (
                "soon",
                "12:30:00",
                "2019-08-15",
                "2019-08-15 12:01:00",
                "2019-08-15T12:01:00+02:00",
                "2019-02-29T12:01:00Z",
            )
        ),
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
        pytest.param(
            {"tags": {"a": [1, None]}}, {"tags": '{"a":[1,null]}'}, id="an object as its JSON"
        ),
        pytest.param(
            {"depth": 3, "cause": None},
            {"depth": "3"},
            id="an unknown field beside a known one that is missing",
        ),
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


# Pieces that JSON is made of, and what is often found where it should be.
PIECES = (
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    '"',
    "'",
    "\\",
    "\\u",
    "\\ud800",
    "null",
    "true",
    "NaN",
    "Infinity",
    "-Infinity",
    "01",
    "1.",
    ".5",
    "+1",
    "1e999",
    "-0",
    "/*x*/",
    "//",
    "#",
    "a:1",
    " ",
    "\t",
    "\x00",
    "\x0b",
    "\x1f",
    "\x7f",
    "\u00a0",
    "\u3000",
    "\ufeff",
    "\u2028",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -7,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "é",
    "\ud800",
    [],
    [1, {"a": None}],
    {},
    {"a": {"b": []}},
)


@st.composite
def spoiled_lines(draw) -> bytes:
    """A change, in JSON, with other fields beside its own, into which up to three pieces or bytes
    have been put.
    """
    fields = change() | draw(
        st.dictionaries(
            st.sampled_from(["", "a", "b}", "cause"]), st.sampled_from(VALUES), max_size=3
        )
    )
    line = json.dumps(fields, ensure_ascii=draw(st.booleans())).encode(errors="replace")
    for _ in range(draw(st.integers(0, 3))):
        piece = draw(
            st.sampled_from(PIECES).map(str.encode)
            | st.sampled_from([b"\xff", b"\xc3", b"\xed\xa0\x80"])
        )
        at = draw(st.sampled_from([0, len(line)]) | st.integers(0, len(line)))
        line = line[:at] + piece + line[at + draw(st.integers(0, 1)) :]
    return line


def fields_in(line: bytes) -> set[str] | None:
    """The names of the fields of a line, as Python reads it strictly; None for what is not one JSON
    object in UTF-8.
    """

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        fields = json.loads(line.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return set(fields) if isinstance(fields, dict) else None


@pytest.mark.parametrize("examples", deep([400, 1000], [400]))
def test_what_python_does_not_read_as_one_object_is_rejected(spark, tmp_path, examples):
    """All lines in one job of Spark; making them takes half of the time."""
    spoiled = set[bytes]()

    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(spoiled_lines())
    def generate(line):
        spoiled.add(line)

    generate()
    read = with_fields(delivered(spark, tmp_path, b"{}", *spoiled)).withColumn("reason", reason())
    accepted = {row.line.encode() for row in read.where("reason IS NULL").select("line").collect()}
    objects = {
        line
        for line in spoiled
        if (names := fields_in(line)) is not None and names.issuperset(NEEDED)
    }
    assert accepted - objects == set()
    # The rest have another value where a time or a kind of change should be.
    assert len(accepted) > 0.9 * len(objects)
    assert min(len(objects), len(spoiled - objects)) > 0.15 * examples


def test_a_line_that_is_not_utf_8_is_rejected_and_kept_with_the_bytes_replaced(spark, tmp_path):
    good = json.dumps(change(cause="café"), ensure_ascii=False).encode()
    bad = good.decode().encode("latin-1")
    found = delivered(spark, tmp_path, good, bad)
    rejected = [(row.reason, row.line) for row in rejected_lines(found).collect()]
    assert rejected == [("not UTF-8", bad.decode(errors="replace"))]
    assert [row.cause for row in outage_events(found).collect()] == ["café"]
