"""Whole numbers as text, and as numbers with a fraction, against Python's decimals."""

import json
import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill_assets import Csv, JsonLines, Landing, Parquet, field
from backfill_assets.sources.area import LandingArea
from tests.worlds.deliveries import day, put
from tests.worlds.depth import tries

BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
WHOLE = re.compile(r"[+-]?\d+(\.0+)?", re.ASCII)
FIELDS = [field(f"{kind.lower()} {kind}") for kind in BITS]
NUMBERS = st.one_of(
    st.integers(-(2**66), 2**66),
    st.integers(-40_000, 40_000),
    st.sampled_from(
        [sign * 2**bits + n for bits in (7, 15, 31, 53, 63) for sign in (1, -1) for n in (-1, 0, 1)]
    ),
)
TEXTS = st.one_of(
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", " ", "+"]),
        NUMBERS,
        st.sampled_from(
            [
                "",
                ".",
                ".0",
                ".00",
                ".5",
                ".05",
                "e0",
                ".5e1",
                "E+3",
                "e14",
                "e-1",
                ".0e2",
                "L",
                ".0.0",
            ]
        ),
        st.sampled_from(["", " "]),
    ),
    st.sampled_from(
        ["1,100", ".0", "-.0", "-0.0", "007.0", "1_000.0", "٣.0", "NaN", "0x10", "--1.0", "1 000"]
    ),
)


def expected(text: str, kind: str) -> int | None:
    """With an exponent, digits may be lost: such a text is not read."""
    number = int(Decimal(text)) if WHOLE.fullmatch(text) else None
    if number is None:
        return None
    return number if -(2 ** (BITS[kind] - 1)) <= number < 2 ** (BITS[kind] - 1) else None


@given(st.lists(TEXTS, min_size=1, max_size=200))
@settings(
    max_examples=tries(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_whole_number_is_read_exactly_and_no_other_text_is(tmp_path, spark, texts):
    """Each text as a value of CSV and of JSON, in a column of each type."""
    names = [each.name for each in FIELDS]
    csv = [",".join(names), *(",".join([f'"{text}"'] * len(names)) for text in texts)]
    jsonl = [json.dumps(dict.fromkeys(names, text), ensure_ascii=False) for text in texts]
    rows = []
    for form, ending, lines in ((Csv(), "csv", csv), (JsonLines(), "jsonl", jsonl)):
        put(tmp_path, f"{ending}/{day(0)}.{ending}", "".join(f"{line}\n" for line in lines))
        source = Landing(ending, format=form, fields=FIELDS)
        for row in source.read(LandingArea(tmp_path), spark, [day(0)]).collect():
            rows += [(each.type, row[each.name], row.unparsed.get(each.name)) for each in FIELDS]
    wanted = []
    for _ in range(2):
        for kind in BITS:
            for text in texts:
                number = expected(text, kind)
                wanted.append((kind, number, text if number is None else None))
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)


def test_fractions_of_numbers_in_parquet_are_not_cut_off(tmp_path, spark):
    path = put(tmp_path, f"cases/{day(0)}.parquet", b"")
    doubles = [106.0, 106.5, -0.0, 2.0**53 - 1, 2.0**60, float("nan"), float("inf"), None]
    decimals = [
        Decimal("106.00"),
        Decimal("106.50"),
        Decimal(0),
        Decimal(2**53 + 1),
        Decimal(2**63),
        *[None] * 3,
    ]
    pq.write_table(pa.table({"d": doubles, "e": pa.array(decimals, pa.decimal128(30, 2))}), path)
    source = Landing("cases", format=Parquet(), fields=[field("d BIGINT"), field("e BIGINT")])
    rows = source.read(LandingArea(tmp_path), spark, [day(0)]).collect()
    assert [row.d for row in rows] == [106, None, 0, 2**53 - 1, None, None, None, None]
    assert [row.e for row in rows] == [106, None, 0, 2**53 + 1, None, None, None, None]
    assert [row.unparsed for row in rows] == [
        {},
        {"d": "106.5", "e": "106.50"},
        {},
        {},
        {"d": "1.15292150460684698E18", "e": "9223372036854775808.00"},
        {"d": "NaN"},
        {"d": "Infinity"},
        {},
    ]


LARGE = """\
{"n": 12345678.0}
{"n": 123456789012345.0}
{"n": 9223372036854775807}
{"n": 1e2}
{"n": 9007199254740993.0}
{"n": 12345678.5}
{"n": 106.5}
{"n": 1.23457e12}
{"n": 1.5E7}
"""


def test_large_numbers_of_json_that_are_no_text_are_exact(tmp_path, spark):
    put(tmp_path, f"cases/{day(0)}.jsonl", LARGE)
    source = Landing("cases", fields=[field("n BIGINT")])
    rows = source.read(LandingArea(tmp_path), spark, [day(0)]).collect()
    assert [(row.n, row.unparsed) for row in rows] == [
        (12345678, {}),
        (123456789012345, {}),
        (2**63 - 1, {}),
        (100, {}),
        (9007199254740993, {}),
        (None, {"n": "12345678.5"}),
        (None, {"n": "106.5"}),
        (None, {"n": "~1.23457E12"}),
        (None, {"n": "1.5E7"}),
    ]
