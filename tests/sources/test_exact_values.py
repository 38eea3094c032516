"""Decimals, floats and times of files: read exactly, or kept as text. Oracle: Python's decimals."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from math import isnan

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill_assets import Csv, Landing, Parquet, field
from backfill_assets.sources.area import LandingArea
from tests.worlds.deliveries import day, put
from tests.worlds.depth import tries


def read(tmp_path, spark, kind: str, texts: list[str], **declared) -> list[tuple]:
    """The value and the unparsed text of each text in a file of CSV."""
    put(tmp_path, f"cases/{day(0)}.csv", "v\n" + "".join(f'"{text}"\n' for text in texts))
    source = Landing("cases", format=Csv(), fields=[field(f"v {kind}", **declared)])
    return values(source, tmp_path, spark)


def values(source: Landing, tmp_path, spark) -> list[tuple]:
    rows = source.read(LandingArea(tmp_path), spark, [day(0)]).collect()
    return [(row.v, row.unparsed.get("v")) for row in rows]


SMALL = re.compile(r"-?\d(\.\d+)?e-\d+", re.IGNORECASE)
DECIMALS = st.one_of(
    st.decimals(-(10**8), 10**8, places=6).map(str),
    st.builds("{}{}".format, st.integers(-(10**9), 10**9), st.sampled_from(["", ".", ".50", ".0"])),
    st.builds(
        "{}{}".format,
        st.sampled_from(["1", "-2.5", "123.45", "99999999", "0.125", "00.5"]),
        st.sampled_from(["e0", "E-2", "e+3", "E6", "e-9"]),
    ),
)


@given(st.lists(DECIMALS, min_size=1, max_size=200))
@settings(
    max_examples=tries(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_decimal_is_read_exactly_or_not_at_all(tmp_path, spark, texts):
    def expected(text: str) -> tuple:
        with localcontext(prec=60):
            number = Decimal(text)
            rounded = round(number, 3)
        # With an exponent, digits may be lost, unless it is how programs write small numbers.
        is_written = "e" not in text.lower() or SMALL.fullmatch(text)
        fits = number == rounded and abs(number) < 10**7 and is_written
        return (rounded, None) if fits else (None, text)

    assert read(tmp_path, spark, "DECIMAL(10, 3)", texts) == list(map(expected, texts))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        pytest.param(
            "DOUBLE",
            {
                "1.": 1.0,
                ".5": 0.5,
                "-2e3": -2000.0,
                f"{2**53 - 1}": 2.0**53 - 1,
                "1" + "0" * 20: 1e20,
            },
            ["1d", "12F", "0x1p3", "1e400", "1,5", " 2 ", "NaN", "-Infinity", f"{2**53 + 1}"],
            id="double",
        ),
        pytest.param("FLOAT", {"0.5": 0.5}, ["1f", "1e39", "16777217"], id="float"),
        pytest.param(
            "BOOLEAN", {"true": True, "FALSE": False}, ["t", "yes", "1", "0", " true"], id="boolean"
        ),
        pytest.param(
            "DATE",
            {
                "2024-06-01": date(2024, 6, 1),
                "2024-06-01T23:30:00-05:00": date(2024, 6, 1),
                "2024-06-01 00:00:00": date(2024, 6, 1),
            },
            [
                "2024-06-01 or so",
                "2024-06-01T25:00",
                "2023-02-29",
                "2024-6-1",
                "20240601",
                "24-06-01",
            ],
            id="date",
        ),
        pytest.param(
            "TIMESTAMP_NTZ",
            {
                "2024-06-01T12:30:00+02:00": datetime(2024, 6, 1, 10, 30),
                "2024-06-01T12:30:00": datetime(2024, 6, 1, 12, 30),
            },
            ["2024-06-01 x", "2024-06-01T12:30:00.1234567", "2024-06-01 "],
            id="time without zone",
        ),
    ],
)
def test_a_text_of_another_form_is_no_value(tmp_path, spark, kind, good, bad):
    expected = [*((value, None) for value in good.values()), *((None, text) for text in bad)]
    assert read(tmp_path, spark, kind, [*good, *bad]) == expected


def test_not_a_number_is_a_double_if_declared(tmp_path, spark):
    texts = ["NaN", "-inf", "Infinity", "1e400"]
    (nan, _), *others = read(tmp_path, spark, "DOUBLE", texts, not_finite=True)
    assert isnan(nan)
    assert others == [(float("-inf"), None), (float("inf"), None), (None, "1e400")]


LONG = """\
{"v": 12345678901234.5678}
{"v": -0.1234567890123456789}
{"v": "0.1234567890123456789"}
{"v": 12345678901234567890}
{"v": 12345678.25}
{"v": 0.0001}
{"v": 1.2345678901234567e5}
{"v": 12.345678901234567, "w": 1}
{"v": 12.34567890123456712, "w": 1}
"""


def test_no_digit_of_a_number_in_json_is_lost(tmp_path, spark):
    put(tmp_path, f"cases/{day(0)}.jsonl", LONG)

    def of(kind: str) -> list[tuple]:
        return values(Landing("cases", fields=[field(f"v {kind}")]), tmp_path, spark)

    assert of("DECIMAL(38, 19)") == [
        (Decimal("12345678901234.5678"), None),
        (Decimal("-0.1234567890123456789"), None),
        (Decimal("0.1234567890123456789"), None),
        (None, "12345678901234567890"),  # It has 20 digits before the point.
        (Decimal("12345678.25"), None),
        (Decimal("0.0001"), None),
        (None, "~123456.78901234567"),
        (Decimal("12.345678901234567"), None),
        (Decimal("12.34567890123456712"), None),
    ]
    assert of("DECIMAL(20, 0)")[3] == (Decimal("12345678901234567890"), None)
    texts = [text for text, _ in of("STRING")]
    assert texts[:4] == [
        "12345678901234.5678",
        "-0.1234567890123456789",
        "0.1234567890123456789",
        "12345678901234567890",
    ]


def test_values_of_parquet_are_not_rounded(tmp_path, spark):
    path = put(tmp_path, f"cases/{day(0)}.parquet", b"")
    at = datetime(2024, 6, 1, 12, 30, 5, 7, tzinfo=UTC)
    columns = {
        "decimal": pa.array([Decimal("9.96"), Decimal("1.50")], pa.decimal128(3, 2)),
        "double": pa.array([1.25, 1.5]),
        "whole": pa.array([2, 1]),
        "day": pa.array([date(2024, 6, 1), None]),
        "pairs": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        "moment": pa.array([at, at.replace(microsecond=0)], pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), path)

    def of(column: str, kind: str) -> list[tuple]:
        source = Landing("cases", format=Parquet(), fields=[field(f"v {kind}", column)])
        return values(source, tmp_path, spark)

    assert of("decimal", "DECIMAL(9,1)") == [(None, "9.96"), (Decimal("1.5"), None)]
    assert of("double", "DECIMAL(9,1)") == [(None, "1.25"), (Decimal("1.5"), None)]
    assert of("double", "FLOAT") == [(1.25, None), (1.5, None)]
    assert of("whole", "BOOLEAN") == [(None, "2"), (True, None)]
    assert of("day", "INT") == [(None, "2024-06-01"), (None, None)]
    assert of("whole", "DATE") == [(None, "2"), (None, "1")]
    seconds = (int(at.timestamp()), None)
    assert of("pairs", "MAP<STRING, BIGINT>") == [({"a": 1}, None), (None, None)]
    assert of("moment", "BIGINT") == [(None, "2024-06-01 12:30:05.000007"), seconds]
