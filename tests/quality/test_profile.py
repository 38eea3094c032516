"""The profile of a day: fingerprints against a comparison of rows in Python, and every figure
against a count in Python.

A hundred days or more are measured in one query, for a query costs the same however few rows it
has.
"""

import json
import random
from collections import Counter
from collections.abc import Hashable
from functools import reduce

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr
from pyspark.sql.types import StructType

from backfill_assets.quality.masking import MASKED
from backfill_assets.quality.profile import (
    COLUMNS_SHOWN,
    SAMPLE_SIZE,
    DayProfile,
    offending_rows,
    profiles,
    repeated_keys,
    row_hash,
    schema_mismatches,
    shortened,
)
from backfill_assets.quality.rule import EMPTY_DAY
from tests.worlds.depth import tries_everything
from tests.worlds.tables import ROWS, Row, frame, hashed_day, value

# Some queries an example, of many days each. A failing example is shown as it was found: making it
# smaller takes hundreds.
few = settings(max_examples=5 if tries_everything() else 1, phases=[Phase.reuse, Phase.generate])
SOME = st.sampled_from(ROWS)
# Days before and after, of rows of few kinds: as often with the same rows as not.
PAIRS = st.lists(SOME, min_size=3, max_size=3).flatmap(
    lambda kinds: st.lists(
        st.tuples(*[st.lists(st.sampled_from(kinds), max_size=3)] * 2), min_size=60, max_size=60
    )
)


def measured(rows, about=None, measures=None, samples=None) -> dict[int, DayProfile]:
    """Profiles by the number of the day."""
    found = profiles(rows, day="day", about=about, measures=measures or {}, samples=samples or {})
    return {(at - hashed_day(0)).days: profile for at, profile in found.items()}


def fingerprints(rows) -> dict[int, str]:
    return {n: profile.fingerprint for n, profile in measured(rows).items()}


def content(rows: list[Row]) -> frozenset:
    return frozenset(Counter(map(value, rows)).items())


def test_rows_have_one_hash_if_and_only_if_they_are_equal(spark):
    rows = frame(spark, [[row] for row in ROWS])
    same_day = StructType([field for field in rows.schema.fields if field.name != "day"])
    hashes = {
        (row.day - hashed_day(0)).days: row.hash
        for row in rows.select("day", row_hash(same_day).alias("hash")).collect()
    }
    by_value: dict[Hashable, set[int]] = {}
    for n, row in enumerate(ROWS):
        by_value.setdefault(value(row), set()).add(hashes[n])
    assert {row: found for row, found in by_value.items() if len(found) > 1} == {}
    assert len(set(hashes.values())) == len(by_value) > 300


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("1 AS a, 2 AS b", "2 AS b, 1 AS a", True, id="columns in another order"),
        pytest.param(
            "1 AS a, 2 AS b", "1 AS b, 2 AS a", False, id="columns with each other's values"
        ),
        pytest.param("1 AS a, 2 AS b", "1 AS a, 2 AS c", False, id="a column of another name"),
        pytest.param("1 AS a", "1L AS a", False, id="another type"),
    ],
)
def test_a_row_is_its_names_and_types(spark, one, other, same):
    first, second = (
        fingerprints(spark.sql(f"SELECT DATE'2000-01-01' AS day, {columns}"))
        for columns in (one, other)
    )
    assert (first == second) == same


TIME = "TIMESTAMP{}'2019-09-01 12:00:00.123{}'"
TIMES = [
    nested.format(TIME.format(zone, "{}"))
    for nested in ("{}", "array({})", "named_struct('t', {})", "map('t', {})")
    for zone in ("", "_NTZ")
]


def test_every_digit_of_a_time_counts_alone_and_in_any_type(spark):
    """A day for each type: only its value is another one."""
    of_day = "UNION ALL".join(
        f" SELECT DATE'{hashed_day(n)}' AS day, "
        + ", ".join(
            f"{time.replace('{}', '%s' if at == n else '456')} AS c{at}"
            for at, time in enumerate(TIMES)
        )
        + " "
        for n in range(len(TIMES))
    )
    first, second = (
        fingerprints(spark.sql(of_day % tuple([digits] * len(TIMES)))) for digits in ("456", "999")
    )
    assert sorted(first) == sorted(second) == [*range(len(TIMES))]
    assert not first.items() & second.items()


@few
@given(pairs=PAIRS)
def test_a_day_keeps_its_fingerprint_if_and_only_if_it_holds_the_same_rows_as_often(spark, pairs):
    before, after = ([pair[n] for pair in pairs] for n in (0, 1))
    first = fingerprints(frame(spark, before))
    second = fingerprints(frame(spark, after))
    same = {n for n in range(len(pairs)) if first.get(n) == second.get(n)}
    assert same == {n for n, (one, other) in enumerate(pairs) if content(one) == content(other)}


@few
@given(
    days=st.lists(st.lists(SOME, max_size=4), min_size=30, max_size=30), seed=st.integers(0, 10**6)
)
def test_neither_the_order_of_rows_nor_their_files_nor_how_days_are_cut_shows(
    spark, tmp_path_factory, days, seed
):
    expected = fingerprints(frame(spark, days))
    shuffled = [random.Random(seed).sample(rows, len(rows)) for rows in days]
    folder = str(tmp_path_factory.mktemp("files"))
    frame(spark, shuffled).repartition(5).write.mode("overwrite").parquet(folder)
    files = spark.read.parquet(folder)
    assert fingerprints(files) == expected
    cut = f"DATE'{hashed_day(seed % 30)}'"
    assert (
        fingerprints(files.where(f"day < {cut}")) | fingerprints(files.where(f"day >= {cut}"))
        == expected
    )


@few
@given(
    days=st.lists(
        st.lists(st.tuples(st.sampled_from([None, "p", "q"]), SOME), max_size=4),
        min_size=30,
        max_size=30,
    )
)
def test_rows_about_another_day_have_the_fingerprint_of_these_rows_alone(spark, days):
    rows = [[(about, *row[1:]) for about, row in of_day] for of_day in days]
    found = measured(frame(spark, rows), about="about")
    alone = {
        (n, about or ""): mark
        for about in (None, "p", "q")
        for n, mark in fingerprints(
            frame(spark, [[row for row in of_day if row[0] == about] for of_day in rows])
        ).items()
    }
    assert {
        (n, about): mark
        for n, profile in found.items()
        for about, mark in profile.day_fingerprints.items()
    } == alone


@few
@given(days=st.lists(st.lists(SOME, max_size=5), min_size=30, max_size=30))
def test_rows_nulls_and_measures_are_counted_by_the_day(spark, days):
    found = measured(
        frame(spark, days), measures={"ones": "if(n = 1, 1, 0)", "nothing": "CAST(NULL AS INT)"}
    )
    names = ("about", "s", "t", "n", "m", "a", "o", "deep", "wide")
    for n, rows in enumerate(days):
        profile = found.get(
            n,
            DayProfile(
                hashed_day(n), nulls=dict.fromkeys(names, 0), measures={"ones": 0, "nothing": 0}
            ),
        )
        assert profile.rows == len(rows)
        assert profile.nulls == {
            name: sum(row[at] is None for row in rows) for at, name in enumerate(names)
        }
        assert profile.measures == {"ones": sum(row[3] == 1 for row in rows), "nothing": 0}


def test_a_day_without_rows_has_no_profile_and_the_fingerprint_of_nothing(spark):
    assert sorted(fingerprints(frame(spark, [[ROWS[0]], [], [ROWS[0]]]))) == [0, 2]
    assert DayProfile(hashed_day(1)).fingerprint == EMPTY_DAY


def test_samples_are_the_first_distinct_values_of_a_day_in_order(spark):
    many = [("p", f"{n % 30:02}", *ROWS[0][2:]) for n in range(60)]
    found = measured(
        frame(spark, [many, [("p", None, *ROWS[0][2:])]]),
        samples={"texts": "array_compact(array(s))"},
    )
    assert found[0].samples == {"texts": [f"{n:02}" for n in range(SAMPLE_SIZE)]}
    assert found[1].samples == {}


KEYED = "day DATE, k STRING, i INT, v STRING"
KEYS = st.tuples(st.sampled_from([None, "", "a"]), st.sampled_from([None, 0, 1]))


@few
@given(days=st.lists(st.lists(KEYS, max_size=6), min_size=60, max_size=60))
def test_keys_that_stand_more_than_once_in_a_day_are_counted_and_a_null_is_a_value(spark, days):
    rows = spark.createDataFrame(
        [
            (hashed_day(n), *key, str(at))
            for n, keys in enumerate(days)
            for at, key in enumerate(keys)
        ],
        KEYED,
    )
    repeated = {
        hashed_day(n): sum(count > 1 for count in Counter(keys).values())
        for n, keys in enumerate(days)
    }
    assert repeated_keys(rows, day="day", key=["k", "i"]) == {
        at: count for at, count in repeated.items() if count
    }


def test_a_key_may_have_any_name_that_a_column_may_have(spark):
    rows = spark.createDataFrame(
        [(hashed_day(0), "a", 1), (hashed_day(0), "a", 2), (hashed_day(0), "b", 3)],
        "count DATE, rows STRING, day INT",
    )
    assert repeated_keys(rows, day="count", key=["rows"]) == {hashed_day(0): 1}
    shown = offending_rows(
        rows, day="count", on=hashed_day(0), key=["count", "rows"], condition=None
    )
    assert sorted(json.loads(row)["day"] for row in shown) == [1, 2]


@pytest.fixture(scope="module")
def keyed(spark):
    first = [("a", 1), ("a", 2), ("b", 3), ("c", 4), ("c", 5), ("c", 6), ("d", 7), ("d", 8)]
    return spark.createDataFrame(
        [
            (hashed_day(at), k, i, "ü")
            for at, rows in enumerate((first, first[:1]))
            for k, i in rows
        ],
        KEYED,
    )


def at_fault(keyed, condition: str | None) -> list[dict]:
    return [
        json.loads(row)
        for row in offending_rows(
            keyed, day="day", on=hashed_day(0), key=["k"], condition=condition
        )
    ]


def test_values_of_masked_columns_are_not_in_the_rows_that_are_shown(keyed):
    shown = offending_rows(
        keyed, day="day", on=hashed_day(0), key=["k"], condition="i = 7", masked=["I", "v"]
    )
    (row,) = map(json.loads, shown)
    assert (row["k"], row["i"], row["v"]) == ("d", MASKED, MASKED)


def test_rows_of_the_day_that_satisfy_a_condition_are_shown(keyed):
    rows = sorted(at_fault(keyed, "i > 6"), key=lambda row: row["i"])
    assert rows == [{"day": str(hashed_day(0)), "k": "d", "i": i, "v": "ü"} for i in (7, 8)]


def test_rows_whose_key_repeats_are_shown_by_key(keyed):
    assert [row["k"] for row in at_fault(keyed, None)] == ["a", "a", "c", "c", "c"]


def test_rows_whose_key_repeats_are_shown_where_it_is_null(spark):
    rows = spark.createDataFrame(
        [
            (hashed_day(0), None, 1, "x"),
            (hashed_day(0), None, 2, "y"),
            (hashed_day(0), "a", 1, "z"),
        ],
        KEYED,
    )
    assert sorted(row["i"] for row in at_fault(rows, None)) == [1, 2]


@pytest.mark.parametrize(
    ("condition", "shown"),
    [pytest.param("i > 0", 5, id="of eight"), pytest.param("i > 99", 0, id="of none")],
)
def test_no_more_than_five_rows_are_shown(keyed, condition, shown):
    assert len(at_fault(keyed, condition)) == shown


def test_a_wide_row_is_shown_by_its_key_and_its_first_columns(keyed):
    wide = keyed.select("*", *[expr(f"'x' AS c{n}") for n in range(500)]).withColumnRenamed(
        "c499", "last"
    )
    (row,) = [
        json.loads(each)
        for each in offending_rows(
            wide, day="day", on=hashed_day(1), key=["last"], condition="k = 'a'"
        )
    ]
    assert list(row) == [
        "day",
        "last",
        "k",
        "i",
        "v",
        *[f"c{n}" for n in range(COLUMNS_SHOWN - 5)],
        "...",
    ]
    assert row["..."] == f"{504 - COLUMNS_SHOWN} more columns"


def test_columns_that_differ_from_the_declared_ones_are_named(spark, golden):
    found = spark.createDataFrame([], "a STRING, b INT, c STRING").schema
    declared = spark.createDataFrame([], "a STRING, b BIGINT, d STRING").schema
    golden(schema_mismatches(found, declared))


def test_a_column_that_is_there_twice_is_named(spark):
    found = spark.sql("SELECT 'a' AS a, 1 AS b, 2 AS b")
    declared = spark.createDataFrame([], "a STRING, b INT").schema
    assert schema_mismatches(found.schema, declared) == ["b is there 2 times"]


def test_the_hash_of_a_row_of_many_columns_is_stable_and_counts_nulls(spark):
    """More columns than one number has bits; nested one in the other, fifty conditions were refused
    by Spark Connect.
    """
    wide = [
        ", ".join(f"{'NULL' if n == null else n} AS c{n}" for n in range(300))
        for null in (-1, 60, 61, 62, 299)
    ]
    rows = reduce(DataFrame.union, [spark.sql(f"SELECT {columns}") for columns in wide])
    assert len(
        {row.hash for row in rows.select(row_hash(rows.schema).alias("hash")).collect()}
    ) == len(wide)
    few = spark.sql("SELECT 1 AS a, CAST(NULL AS STRING) AS b, 'x' AS c")
    (row,) = (
        few.selectExpr("xxhash64('a int, b string, c string', 2L, a, b, c) AS expected", "*")
        .select("expected", row_hash(few.schema).alias("hash"))
        .collect()
    )
    assert row.hash == row.expected


def test_maps_and_lists_are_hashed_as_json_with_sorted_entries(spark):
    """Also empty ones, which are not written as JSON for it."""
    rows = spark.createDataFrame(
        [({"b": 1, "a": None}, ["x", None]), ({}, []), (None, None)],
        "m MAP<STRING, INT>, a ARRAY<STRING>",
    )
    written = [
        "to_json(a, map('ignoreNullFields', 'false'))",
        "to_json(array_sort(map_entries(m)))",
    ]
    names = "'a array<string>, m map<string,int>'"
    expected = f"xxhash64({names}, if(m IS NULL, 3L, 0L), {', '.join(written)})"
    found = rows.select(row_hash(rows.schema).alias("hash"), expr(expected).alias("expected"))
    hashes = found.collect()
    assert [row.hash for row in hashes] == [row.expected for row in hashes]
    assert len({row.hash for row in hashes}) == len(hashes)


def test_a_long_value_is_shown_by_its_beginning():
    """Rows and samples go into commits, the ledger and the event log."""
    assert [shortened(value) for value in ("short", 7, None, ["a"])] == ["short", 7, None, ["a"]]
    long = shortened("x" * 5_000_000)
    assert (long[:300], long[300:]) == ("x" * 300, "... (5,000,000 characters)")
    assert len(shortened({"a": "x" * 400})) < 350
