"""Values of random tables in random dialects are read exactly, or kept as text and counted.

The files are written by DuckDB and pandas. Oracles: Python's decimals and time zones, and pandas.
"""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import zip_longest
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets import Csv, JsonLines, Landing, Parquet, field
from backfill_assets.sources.area import LandingArea
from tests.worlds.deliveries import day, put
from tests.worlds.depth import deep

ZONES = {
    "Europe/Vienna": [datetime(2024, 3, 31), datetime(2024, 10, 27)],
    "America/New_York": [datetime(2024, 3, 10), datetime(2024, 11, 3)],
    "Australia/Lord_Howe": [datetime(2024, 10, 6), datetime(2024, 4, 7)],
}
ROWS = 150


def read(root, spark, source: Landing, n: int = 0) -> list:
    return source.read(LandingArea(root), spark, [day(n)]).collect()


def of_texts(root, spark, kind: str, texts: list[str], form=None, **options) -> list[tuple]:
    """The value and the unparsed text of each text in a file of CSV."""
    put(root, f"cases/{day(0)}.csv", "v\n" + "".join(f'"{text}"\n' for text in texts))
    source = Landing("cases", format=form or Csv(), fields=[field(f"v {kind}", **options)])
    return [(row.v, row.unparsed.get("v")) for row in read(root, spark, source)]


# By case: the type and options of a field, texts with their values, and texts that are not read.
TEXTS: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[str]]] = {
    "a comma, and points between groups": (
        "DECIMAL(12, 2)",
        {"decimal": ",", "thousands": "."},
        {"1,5": Decimal("1.5"), "-1.234,50": Decimal("-1234.5"), "1234": Decimal(1234)},
        ["1.5", "1.23,5", "1234.567,5", "1,234.5", "1.234.", "1,2,3", "0.250", "00.125"],
    ),
    "groups of three digits": (
        "BIGINT",
        {"thousands": ","},
        {"1,234": 1234, "1234": 1234, "1,234,567.0": 1234567},
        ["1,5", "12,34", "1,2345", ",123", "1 234", "1.5", "0,250", "-0,001,000"],
    ),
    "apostrophes": (
        "DOUBLE",
        {"thousands": "'", "decimal": ","},
        {"1'000,25": 1000.25, "1e3": 1000.0},
        ["1000.25", "1'00", "NaN"],
    ),
    "nulls and blanks": (
        "INT",
        {"nulls": ["NA", "-"], "trim": True},
        {" 7 ": 7, "NA": None, " - ": None, "\t8\u00a0": 8, "  ": None},
        ["na", "--", "7 8"],
    ),
    "texts": (
        "STRING",
        {"trim": True, "nulls": ["?"]},
        {" a b ": "a b", "? ": None},
        [],
    ),
    "texts by default": ("STRING", {}, {" a ": " a ", "NA": "NA"}, []),
    "booleans": (
        "BOOLEAN",
        {"booleans": ("J", "N")},
        {"J": True, "n": False},
        ["true", "1"],
    ),
    "booleans in other letters": (
        "BOOLEAN",
        {"booleans": ("\u0436", "yes")},
        {"\u0416": True, "YES": False},
        ["ye\u017f"],
    ),
    "digits that are not written": (
        "BIGINT",
        {},
        {"+5": 5, "007": 7, "106.0": 106},
        ["1.23457E+12", "1.06E2", "1e2", " 5", "5 ", "1_0", "0x10", "\u0663", "5."],
    ),
    "names of zones that several countries have": (
        "TIMESTAMP",
        {},
        {
            "2024-06-01 12:00:00 UTC": datetime(2024, 6, 1, 12),
            "2024-06-01T12:00:00Z": datetime(2024, 6, 1, 12),
            "2024-06-01 12:00:00+0530": datetime(2024, 6, 1, 6, 30),
            "2024-06-01 12:00:00 GMT+01:00": datetime(2024, 6, 1, 11),
            "2024-06-01 12:00:00 Asia/Dhaka": datetime(2024, 6, 1, 6),
        },
        [f"2024-06-01 12:00:00 {zone}" for zone in ("BST", "CST", "IST", "AST", "EST", "")],
    ),
    "years that Python has": (
        "TIMESTAMP",
        {"zone": "Europe/Berlin"},
        {"0001-01-02 00:00": datetime(1, 1, 1, 23, 6, 32)},
        ["0000-06-01 00:00", "0001-01-01 00:00"],
    ),
    "years that Python has in UTC": (
        "TIMESTAMP",
        {"zone": "America/New_York"},
        {"9999-12-31 12:00": datetime(9999, 12, 31, 17)},
        ["9999-12-31 23:30"],
    ),
    "days that Python has": (
        "DATE",
        {},
        {"0001-01-01": date(1, 1, 1), "9999-12-31": date(9999, 12, 31)},
        ["0000-01-01", "0000-00-00", "10000-01-01"],
    ),
    "nanoseconds": (
        "TIMESTAMP",
        {"formats": "yyyy-MM-dd HH:mm:ss.SSSSSSSSS"},
        {"2024-06-01 12:00:00.123456000": datetime(2024, 6, 1, 12, 0, 0, 123456)},
        ["2024-06-01 12:00:00.123456789"],
    ),
}


@pytest.fixture(scope="module")
def read_texts(tmp_path_factory, spark) -> dict[str, list[tuple]]:
    """The value and the unparsed text of each text, by case: a column for each, in one file."""
    root = tmp_path_factory.mktemp("texts")
    names = {case: f"v{n}" for n, case in enumerate(TEXTS)}
    texts = {case: [*good, *bad] for case, (_, _, good, bad) in TEXTS.items()}
    lines = [[f'"{text}"' for text in row] for row in zip_longest(*texts.values(), fillvalue="")]
    put(root, f"cases/{day(0)}.csv", "\n".join(map(",".join, [[*names.values()], *lines])))
    fields = [
        field(f"{names[case]} {kind}", **options) for case, (kind, options, *_) in TEXTS.items()
    ]
    rows = read(root, spark, Landing("cases", format=Csv(), fields=fields))
    return {
        case: [(row[name], row.unparsed.get(name)) for row in rows[: len(texts[case])]]
        for case, name in names.items()
    }


@pytest.mark.parametrize("case", TEXTS)
def test_a_text_is_read_only_as_declared(read_texts, case):
    _, _, good, bad = TEXTS[case]
    expected = [*((value, None) for value in good.values()), *((None, text) for text in bad)]
    assert read_texts[case] == expected


def test_options_of_a_field_count_more_than_those_of_its_format(tmp_path, spark):
    form = Csv(";", nulls=["NA"], decimal=",", trim=True)
    fields = [field("a DOUBLE"), field("b DOUBLE", decimal=".", nulls=["-"], trim=False)]
    put(tmp_path, f"cases/{day(0)}.csv", "a;b\n1,5;1.5\n 2 ; 2\nNA;NA\n-;-\n")
    rows = read(tmp_path, spark, Landing("cases", format=form, fields=fields))
    assert [(row.a, row.b, row.unparsed) for row in rows] == [
        (1.5, 1.5, {}),
        (2.0, None, {"b": " 2"}),
        (None, None, {"b": "NA"}),
        (None, None, {"a": "-"}),
    ]


def test_signs_are_those_of_texts_in_json_and_numbers_have_a_point(tmp_path, spark):
    lines = '{"v": "1.234,5"}\n{"v": 1234.5}\n{"v": 123.456}\n{"v": "NA"}\n{"v": "1.5"}\n'
    put(tmp_path, f"cases/{day(0)}.jsonl", lines)
    form = JsonLines(decimal=",", thousands=".", nulls=["NA"])
    source = Landing("cases", format=form, fields=[field("v DECIMAL(12, 3)")])
    assert [(row.v, row.unparsed.get("v")) for row in read(tmp_path, spark, source)] == [
        (Decimal("1234.5"), None),
        (Decimal("1234.5"), None),
        (Decimal("123.456"), None),
        (None, None),
        (None, "1.5"),
    ]


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("unit price", '"unit price": '),
        ("v", '"v":\t'),
        ("v", '\t"v"  :  '),
        ("Größe", '"Gr\\u00f6\\u00dfe": '),
    ],
)
def test_a_number_in_json_is_known_by_its_missing_quotes(tmp_path, spark, name, before):
    values = ['"1.234"', "1.234", "0.0001", "1234e-3", '"1,5"']
    lines = "".join(f"{{{before}{value}}}\n" for value in values)
    put(tmp_path, f"cases/{day(0)}.jsonl", lines)
    form = JsonLines(decimal=",", thousands=".")
    source = Landing("cases", format=form, fields=[field("v DOUBLE", name)])
    assert [row.v for row in read(tmp_path, spark, source)] == [1234.0, 1.234, 0.0001, 1.234, 1.5]


# Options of other types, too.
csv: Any = Csv
json_lines: Any = JsonLines
declared: Any = field


@pytest.mark.parametrize(
    "declare",
    [
        lambda: csv(decimal=",", thousands=","),
        lambda: declared("a INT", thousands="."),
        lambda: json_lines(decimal=";"),
        lambda: csv(nulls="NA"),
        lambda: declared("a INT", nulls=[0]),
        lambda: csv(trim="yes"),
        lambda: declared("a STRING", decimal=","),
        lambda: declared("a INT", not_finite=True),
        lambda: declared("a INT", booleans=("1", "0")),
        lambda: declared("a BOOLEAN", booleans=("x", "X")),
        lambda: declared("a TIMESTAMP", ambiguous="first"),
        lambda: declared("a TIMESTAMP", zone="UTC", ambiguous="last"),
        lambda: declared("a DATE", formats="yyyy-MM-ddXXX"),
        lambda: Landing("a", format=csv(decimal=","), fields=[declared("a INT", thousands=",")]),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(declare, refused):
    refused(declare)


def test_parquet_values_that_lose_digits_are_not_parsed(tmp_path, spark):
    path = put(tmp_path, f"cases/{day(0)}.parquet", b"")
    columns = {
        "whole": pa.array([float(2**53), 1_717_243_805_000_007.0]),
        "exact": pa.array([0.1 + 0.2, 0.5]),
        "single": pa.array([0.1, 16.25], pa.float32()),
        "large": pa.array([2**53 + 1, 2**53], pa.int64()),
        "decimal": pa.array([Decimal("0.12345678901234567891"), Decimal("0.5")]),
        "special": pa.array([float("nan"), 1.5]),
        "moment": pa.array(
            [datetime(2024, 6, 1, 22), datetime(2024, 6, 1)], pa.timestamp("us", "UTC")
        ),
    }
    pq.write_table(pa.table(columns), path)
    kinds = {
        "whole": "BIGINT",
        "exact": "DECIMAL(38, 18)",
        "single": "DECIMAL(20, 12)",
        "large": "DOUBLE",
        "decimal": "DOUBLE",
        "special": "DOUBLE",
        "moment": "DATE",
    }
    fields = [field(f"{name} {kind}") for name, kind in kinds.items()]
    first, second = read(tmp_path, spark, Landing("cases", format=Parquet(), fields=fields))
    assert {name for name in kinds if first[name] is None} == {*kinds} - {"single"}
    assert first.single == Decimal("0.1")
    assert second.asDict() | {"unparsed": {}} == second.asDict()
    assert [second[name] for name in kinds] == [
        1_717_243_805_000_007,
        Decimal("0.5"),
        Decimal("16.25"),
        float(2**53),
        0.5,
        1.5,
        date(2024, 6, 1),
    ]


def moments(local: datetime, zone: str) -> list[datetime]:
    """The moments in UTC of a local time, in order."""
    found = {local.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1)}
    exact = {at for at in found if at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local}
    return [at.replace(tzinfo=None) for at in sorted(exact)]


def test_a_repeated_time_is_read_as_declared(tmp_path, spark):
    for zone, nights in ZONES.items():
        times = [night + timedelta(minutes=30 * n) for night in nights for n in range(10)]
        texts = [f"{at:%d.%m.%Y %H:%M}" for at in times]
        for choice, position in {"first": 0, "second": -1}.items():
            options = {"zone": zone, "ambiguous": choice, "formats": "dd.MM.yyyy HH:mm"}
            read_times = of_texts(tmp_path, spark, "TIMESTAMP", texts, **options)
            expected = [moments(at, zone) for at in times]
            assert [at for at, _ in read_times] == [
                found[position] if found else None for found in expected
            ]


def by_pandas(times: list[datetime], zone: str) -> list[datetime | None]:
    """The moments that pandas infers from the order of the lines; None if it cannot."""
    local = pd.DatetimeIndex(times)
    try:
        moments_of_file = local.tz_localize(zone, ambiguous="infer", nonexistent="NaT")
    except Exception as error:
        if type(error).__name__ != "AmbiguousTimeError":
            raise
        moments_of_file = local.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
    at = moments_of_file.tz_convert("UTC").tz_localize(None)
    return [None if pd.isna(one) else one.to_pydatetime() for one in at]


def test_a_file_in_descending_order_does_not_tell_repeated_hours_apart(tmp_path, spark):
    times = [f"2024-10-27 {hour:02}:00" for hour in (4, 3, 2, 2, 1)]
    options = {"zone": "Europe/Berlin", "ambiguous": "by order"}
    assert of_texts(tmp_path, spark, "TIMESTAMP", times, **options) == [
        (datetime(2024, 10, 27, 3), None),
        (datetime(2024, 10, 27, 2), None),
        (None, times[2]),
        (None, times[3]),
        (datetime(2024, 10, 26, 23), None),
    ]


def test_the_order_of_lines_tells_repeated_hours_apart_in_many_splits(tmp_path, spark):
    """Several files, each read by several tasks, of an hour that can be told and of others."""
    zone = "Europe/Vienna"
    autumn = datetime(2024, 10, 26, 20)

    def walked(minutes: int, count: int) -> list[datetime]:
        start = autumn.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
        moments_of_file = [start + timedelta(minutes=minutes * n) for n in range(count)]
        return [at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for at in moments_of_file]

    hourly = walked(60, 30)
    files = {
        "hourly": hourly,
        "minutes": walked(1, 900),
        "one of two": [at for at in hourly if at.hour != 2] + [datetime(2024, 10, 27, 2)],
        "two stations": [at for at in hourly for _ in range(2)],
        "one after the other": hourly + hourly,
    }
    for name, times in files.items():
        lines = "".join(f"{at.isoformat()},{'x' * 40}\n" for at in times)
        put(tmp_path, f"cases/{day(0)}/{name}.csv", "at,filler\n" + lines)
    fields = [field("at TIMESTAMP", zone=zone, ambiguous="by order"), field("filler STRING")]
    spark.conf.set("spark.sql.files.maxPartitionBytes", 4096)
    try:
        rows = read(tmp_path, spark, Landing("cases", format=Csv(), fields=fields))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    for name, times in files.items():
        of_file = [row for row in rows if row.source_file.endswith(f"/{name}.csv")]
        assert len(of_file) == len(times)
        expected = by_pandas(times, zone)
        assert sorted(row.at for row in of_file if row.at) == sorted(filter(None, expected))
        unparsed = [
            at.isoformat() for at, moment in zip(times, expected, strict=True) if not moment
        ]
        assert sorted(row.unparsed["at"] for row in of_file if not row.at) == sorted(unparsed)


def grouped(number: str, decimal: str, thousands: str | None) -> str:
    """The text of a number with other signs."""
    whole, _, fraction = number.partition(".")
    if thousands:
        whole = f"{int(whole):,}".replace(",", thousands)
    return whole + (decimal + fraction if fraction else "")


WRONG = {
    "n": ["1.5x", "12e3", "0x1F", "1_000", "9223372036854775808"],
    "d": ["1e5", "--1", "1.2.3,4", "12345678901,123"],
    "x": ["1d", "Infinity", "NaN", "1e999"],
    "flag": ["yes", "1", "t"],
    "on": ["2024-02-30", "20240601", "2024-6-1"],
    "at": ["2024-06-01 25:00", "12:00", "soon"],
}
KINDS = {
    "n": "BIGINT",
    "d": "DECIMAL(12, 2)",
    "x": "DOUBLE",
    "flag": "BOOLEAN",
    "on": "DATE",
    "at": "TIMESTAMP",
    "s": "STRING",
}


def random_table(chosen: random.Random, zone: str, decimal: str, thousands: str | None, trim: bool):
    """Rows of texts, and of the values and unparsed texts that they mean."""
    null = chosen.choice(["", "NA", "-"])
    texts = []
    expected = []
    for _ in range(ROWS):
        n = chosen.choice([chosen.randrange(-(10**4), 10**4), chosen.randrange(-(2**63), 2**63)])
        d = Decimal(chosen.randrange(10**11)).scaleb(-2)
        x = chosen.choice([chosen.random() * 1000, float(chosen.randrange(2**53))])
        night = chosen.choice(ZONES[zone])
        local = night + timedelta(minutes=chosen.randrange(-60, 6 * 60))
        on = date(2024, 1, 1) + timedelta(days=chosen.randrange(366))
        flag = chosen.random() < 0.5
        s = chosen.choice(["a", "x;y,z", 'say "x"', "é", "1,5"])
        row = {
            "n": (grouped(str(n), decimal, thousands), n),
            "d": (grouped(str(d), decimal, thousands), d),
            "x": (grouped(repr(x), decimal, None), x),
            "flag": (str(flag).lower(), flag),
            "on": (on.isoformat(), on),
            "at": (local.isoformat(" "), [*moments(local, zone), None][0]),
            "s": (s, s),
        }
        if len(moments(local, zone)) != 1:
            row["at"] = (row["at"][0], None)
        for name, wrong in WRONG.items():
            if chosen.random() < 0.05:
                row[name] = (chosen.choice(wrong), None)
            if chosen.random() < 0.05:
                row[name] = (null, None)
        unparsed = {
            name: text for name, (text, value) in row.items() if value is None and text != null
        }
        blanks = chosen.choice(["", " ", "\t"]) if trim else ""
        texts.append({name: text and f"{blanks}{text}{blanks}" for name, (text, _) in row.items()})
        expected.append(({name: value for name, (_, value) in row.items()}, unparsed))
    return texts, expected, [null] if null else []


@pytest.mark.parametrize("tables", deep([3, 6], [3]))
def test_random_tables_in_random_dialects_are_read_exactly_or_counted(
    tmp_path, spark, seed, tables
):
    chosen = random.Random(seed)
    for n in range(tables):
        zone = chosen.choice([*ZONES])
        decimal = chosen.choice([".", ","])
        thousands = chosen.choice([None, "'", " ", "," if decimal == "." else "."])
        trim = chosen.random() < 0.5
        texts, expected, nulls = random_table(chosen, zone, decimal, thousands, trim)
        frame = pd.DataFrame(texts)
        is_csv = n % 3 != 2
        path = put(tmp_path, f"t{n}/{day(0)}.{'csv' if is_csv else 'jsonl'}", "")
        if not is_csv:
            frame.to_json(path, orient="records", lines=True)
        elif n % 2:
            frame.to_csv(path, sep=";", index=False)
        else:
            duckdb.from_df(frame).write_csv(str(path), sep=";", header=True)
        options = {"nulls": nulls, "decimal": decimal, "thousands": thousands, "trim": trim}
        form = Csv(";", **options) if is_csv else JsonLines(**options)
        fields = [
            field(f"{name} {kind}", zone=zone if name == "at" else "")
            for name, kind in KINDS.items()
        ]
        rows = read(tmp_path, spark, Landing(f"t{n}", format=form, fields=fields))
        found = [({name: row[name] for name in KINDS}, row.unparsed) for row in rows]
        assert found == expected, (options, zone)


def test_typed_tables_of_duckdb_and_pandas_are_read_exactly(tmp_path, spark, seed):
    """Typed values, written as JSON lines and Parquet, and read by the types that they have."""
    chosen = random.Random(seed)
    rows = [
        {
            "n": chosen.randrange(-(2**63), 2**63),
            "d": Decimal(chosen.randrange(10**11)).scaleb(-2),
            "x": chosen.random() * 10 ** chosen.randrange(12),
            "flag": chosen.random() < 0.5,
            "on": date(2024, 1, 1) + timedelta(days=chosen.randrange(366)),
            "at": datetime(2024, 1, 1) + timedelta(seconds=chosen.randrange(10**7)),
            "s": chosen.choice(["a", "é", "1.5"]),
        }
        for _ in range(ROWS)
    ]
    frame = pd.DataFrame(rows)
    kinds = ", ".join(
        f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in KINDS.items() if kind != "STRING"
    )
    typed = duckdb.from_df(frame).project(f"{kinds}, s")
    typed.write_parquet(str(put(tmp_path, f"a/{day(0)}.parquet", b"")))
    frame.to_parquet(put(tmp_path, f"b/{day(0)}.parquet", b""))
    path = put(tmp_path, f"c/{day(0)}.jsonl", "")
    duckdb.sql(f"COPY typed TO '{path}' (FORMAT json)")
    fields = [field(f"{name} {kind}") for name, kind in KINDS.items()]
    forms: dict[str, Any] = {"a": Parquet(), "b": Parquet(), "c": JsonLines()}
    for name, form in forms.items():
        read_rows = read(tmp_path, spark, Landing(name, format=form, fields=fields))
        assert [{column: row[column] for column in KINDS} for row in read_rows] == rows
        assert not any(row.unparsed for row in read_rows)
