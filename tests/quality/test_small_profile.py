"""The profile of a small slice, made of Arrow in this process: the same as Spark's own."""

from dataclasses import replace
from datetime import date

import pyarrow as pa
import pytest

from backfill_assets.quality.profile import profiles, repeated_keys
from backfill_assets.quality.small_profile import _HASH, small_profiles, with_figures
from tests.worlds.tables import ROWS, frame


def test_it_is_what_spark_computes_for_rows_of_any_kind(spark):
    rows = frame(spark, [ROWS[n : n + 40] + ROWS[n : n + 3] for n in range(0, len(ROWS), 40)])
    other = next(name for name in rows.columns if name != "day")
    about = "day"
    measures = {"nulls": f"CAST(`{other}` IS NULL AS INT)"}
    samples = {
        "days": "array(CAST(day AS STRING))",
        "dates": "array(day, NULL)",
        "numbers": "array(n, 1.5BD)",
    }
    expected = profiles(rows, day="day", about=about, measures=measures, samples=samples)
    for day, count in repeated_keys(rows, day="day", key=[other]).items():
        expected[day] = replace(expected[day], repeated_keys=count)
    table = with_figures(rows, measures=measures, samples=samples).toArrow()
    actual = small_profiles(
        table, day="day", about=about, key=[other], measures=list(measures), samples=list(samples)
    )
    assert len(actual) > 5
    assert actual == expected


@pytest.mark.parametrize(
    ("expression", "total"),
    [
        pytest.param("price", 6, id="fractions: 6.25, and not 1 + 2 + 2"),
        pytest.param("CAST(price AS DECIMAL(9, 2))", 6, id="decimals"),
        pytest.param("CAST(price AS FLOAT) * 2", 12, id="a half: 12.5, to the even number"),
        pytest.param("price > 2", 2, id="yes or no"),
        pytest.param(
            "IF(number = 1, 9007199254740993, 0)",
            9007199254740993,
            id="more digits than a double has",
        ),
        pytest.param("IF(number = 1, NULL, number)", 2, id="nulls"),
        pytest.param("CAST(NULL AS INT)", 0, id="nothing but nulls"),
        pytest.param("CAST(number AS STRING)", 3, id="texts"),
    ],
)
def test_a_measure_is_the_sum_over_a_days_rows_and_rounded_once(spark, expression, total):
    rows = spark.sql(
        "SELECT DATE'2019-09-01' AS day, number, price FROM VALUES (0L, 1.75D), (1L, 2.25D), (2L,"
        " 2.25D) AS _(number, price)"
    )
    measures = {"m": expression}
    (by_spark,) = profiles(rows, day="day", about=None, measures=measures, samples={}).values()
    table = with_figures(rows, measures=measures, samples={}).toArrow()
    (by_arrow,) = small_profiles(
        table, day="day", about=None, key=[], measures=["m"], samples=[]
    ).values()
    assert (by_spark.measures, by_arrow.measures) == ({"m": total}, {"m": total})


@pytest.mark.parametrize(
    ("key", "values"),
    [
        pytest.param("DOUBLE", "0.0D, -0.0D, 1.0D", id="zeros"),
        pytest.param(
            "DOUBLE", "double('NaN'), double('NaN'), CAST(NULL AS DOUBLE)", id="no numbers"
        ),
        pytest.param("ARRAY<STRING>", "array('a'), array('a'), array('a', NULL)", id="lists"),
        pytest.param(
            "STRUCT<a: BIGINT>",
            "named_struct('a', 1L), named_struct('a', 1L), named_struct('a', NULL)",
            id="structs",
        ),
    ],
)
def test_keys_repeat_where_they_do_for_spark(spark, key, values):
    rows = spark.sql(
        f"SELECT DATE'2019-09-01' AS day, CAST(value AS {key}) AS value FROM (SELECT"
        f" explode(array({values})) AS value)"
    )
    table = with_figures(rows, measures={}, samples={}).toArrow()
    (profile,) = small_profiles(
        table, day="day", about=None, key=["value"], measures=[], samples=[]
    ).values()
    assert {profile.day: profile.repeated_keys} == repeated_keys(rows, day="day", key=["value"])


@pytest.mark.parametrize("name", ["count", "count_all", "rows", "value"])
def test_a_key_may_have_any_name_that_a_column_may_have(name):
    on = [date(2019, 9, 1)] * 3
    table = pa.table({"day": on, name: ["a", "a", "b"], _HASH: [1, 1, 2]})
    (profile,) = small_profiles(
        table, day="day", about=None, key=[name], measures=[], samples=[]
    ).values()
    assert profile.repeated_keys == 1
