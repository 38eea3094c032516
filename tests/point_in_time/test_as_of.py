"""The as-of join: random histories against DuckDB, which looks at every row for every request, and
each rule by itself.
"""

import random
from collections import Counter
from contextlib import redirect_stdout
from datetime import date, datetime, timedelta
from io import StringIO
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest

from backfill_assets import as_of
from tests.worlds.depth import deep

START = datetime(2024, 6, 1)
CASES = 1_000

REQUESTS = "case INT, entity STRING, asked_at TIMESTAMP, reviewed_at TIMESTAMP"
HISTORY = "case INT, entity STRING, happened_at TIMESTAMP, known_at TIMESTAMP, value INT"
ORACLE = """
    SELECT l.*, r.happened_at, r.known_at, r.value FROM requests l LEFT JOIN LATERAL (
        SELECT * FROM (
            SELECT * FROM history h
            WHERE h.case = l.case AND h.entity = l.entity
                AND h.happened_at < l.asked_at AND h.known_at < {known_by}
            ORDER BY h.happened_at DESC, h.known_at DESC, h.value DESC NULLS LAST LIMIT 1
        ) h WHERE h.happened_at >= l.asked_at - INTERVAL {max_age} HOUR
    ) r ON true
"""


def random_cases(seed: int) -> tuple[list[tuple], list[tuple]]:
    """Requests and histories. Few hours, entities and values, so that most of them meet; each case
    has entities of its own.
    """
    draw = random.Random(seed)

    def of_case(case: int, values: int) -> tuple:
        hours = [
            draw.choice([None, *[START + timedelta(hours=n) for n in range(6)]]) for _ in range(2)
        ]
        return (
            case,
            draw.choice([None, *"aabb"]),
            *hours,
            *[draw.choice([None, 0, 1, 2]) for _ in range(values)],
        )

    requests = [of_case(case, 0) for case in range(CASES) for _ in range(draw.randint(1, 3))]
    return requests, [of_case(case, 1) for case in range(CASES) for _ in range(draw.randint(0, 8))]


def oracle(requests: list[tuple], history: list[tuple], known_by: str, max_age: int) -> Counter:
    def arrow(rows: list[tuple], columns: str) -> pa.Table:
        kinds = {"INT": pa.int32(), "STRING": pa.string(), "TIMESTAMP": pa.timestamp("us")}
        schema = pa.schema(
            [
                (name, kinds[kind])
                for name, kind in (column.split() for column in columns.split(", "))
            ]
        )
        return pa.Table.from_pylist(
            [dict(zip(schema.names, row, strict=True)) for row in rows], schema
        )

    with duckdb.connect() as database:
        database.register("requests", arrow(requests, REQUESTS))
        database.register("history", arrow(history, HISTORY))
        return Counter(
            database.execute(ORACLE.format(known_by=known_by, max_age=max_age)).fetchall()
        )


@pytest.mark.parametrize(
    ("known_by", "in_sql", "max_age"),
    [
        pytest.param(None, "l.asked_at", None, id="as known when asked"),
        pytest.param(
            START + timedelta(hours=3),
            "TIMESTAMP '2024-06-01 03:00'",
            2,
            id="as known at one time, not too old",
            marks=pytest.mark.scale,
        ),
        pytest.param(
            "reviewed_at", "l.reviewed_at", 3, id="as known at a time of the request, not too old"
        ),
    ],
)
def test_random_histories_are_answered_as_by_looking_at_every_row(
    spark, seed, known_by, in_sql, max_age
):
    requests, history = random_cases(seed)
    joined = as_of(
        spark.createDataFrame(requests, REQUESTS),
        spark.createDataFrame(history, HISTORY),
        on=["case", "entity"],
        at="asked_at",
        known_by=known_by,
        max_age=max_age and timedelta(hours=max_age),
    )
    expected = oracle(requests, history, in_sql, max_age or 100)
    assert Counter(map(tuple, joined.collect())) == expected
    assert 0.1 < sum(row[4] is not None for row in expected) / CASES < 1


def at(hour: float) -> datetime:
    return START + timedelta(hours=hour)


def asked(spark, *requests: tuple):
    return spark.createDataFrame(
        [("a", *request) for request in requests], "entity STRING, asked_at TIMESTAMP, request INT"
    )


def history(spark, *rows: tuple):
    columns = "entity STRING, happened_at TIMESTAMP, known_at TIMESTAMP, value INT"
    return spark.createDataFrame(
        [("a", at(happened), at(known), value) for happened, known, value in rows], columns
    )


def test_each_rule_of_the_boundaries_holds(spark):
    """One row a case: the rows of its entity, by when they happened and were known, and the value
    that is seen at 5:00.
    """
    cases: dict[str, tuple[list[tuple[float, float, int | None]], int | None]] = {
        "happened at the very time": ([(5, 4, 1)], None),
        "known at the very time": ([(4, 5, 1)], None),
        "known a microsecond before": ([(4, 5 - 1 / 3.6e9, 1)], 1),
        "happened before, known later": ([(1, 1, 1), (4, 6, 2)], 1),
        "known before it happens": ([(1, 1, 1), (6, 2, 2)], 1),
        "an older one known later": ([(3, 3, 1), (2, 4, 2)], 1),
        "a correction known in time": ([(3, 3, 1), (3, 4, 2)], 2),
        "three at one time, the latest known": ([(3, 4, 1), (3, 3, 9), (3, 3.5, 8)], 1),
        "three equal in both times": ([(3, 3, 1), (3, 3, 7), (3, 3, None)], 7),
        "exactly as old as may be": ([(1, 1, 1)], 1),
        "older": ([(1 - 1 / 3600, 1, 1)], None),
        "no row at all": ([], None),
    }
    rows = [
        (case, at(happened), at(known), value)
        for case, (of, _) in cases.items()
        for happened, known, value in of
    ]
    right = spark.createDataFrame(
        rows, "entity STRING, happened_at TIMESTAMP, known_at TIMESTAMP, value INT"
    )
    left = spark.createDataFrame(
        [(case, at(5)) for case in cases], "entity STRING, asked_at TIMESTAMP"
    )
    seen = as_of(left, right, on="entity", at="asked_at", max_age=timedelta(hours=4)).collect()
    assert {row.entity: row.value for row in seen} == {
        case: value for case, (_, value) in cases.items()
    }
    assert len(seen) == len(cases)


def test_equal_requests_are_kept_and_days_are_times(spark):
    left = spark.createDataFrame(
        [("a", date(2024, 6, 2))] * 3 + [(None, date(2024, 6, 2))], "entity STRING, day DATE"
    )
    right = spark.createDataFrame(
        [
            ("a", date(2024, 6, 1), date(2024, 6, 1), 1),
            ("a", date(2024, 6, 2), date(2024, 6, 1), 2),
            (None, *[START] * 2, 3),
        ],
        "entity STRING, day DATE, final_at DATE, value INT",
    )
    joined = as_of(
        left, right, "entity", "day", happened_at="day", known_at="final_at", prefix="last_"
    )
    assert joined.columns == ["entity", "day", "last_day", "last_final_at", "last_value"]
    seen = ("a", date(2024, 6, 2), date(2024, 6, 1), date(2024, 6, 1), 1)
    assert Counter(map(tuple, joined.collect())) == {
        seen: 3,
        (None, date(2024, 6, 2), None, None, None): 1,
    }


ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Los_Angeles"]


@pytest.mark.parametrize("zone", deep(ZONES, ["Europe/Berlin"]))
def test_a_day_begins_at_midnight_of_the_zone(spark, zone):
    """In all three ways, as do local times; times with a zone are the same in each."""
    on = date(2021, 3, 28)  # 23 hours in Berlin
    begin = datetime(2021, 3, 28, tzinfo=ZoneInfo(zone))
    minutes = [begin.timestamp() + 60 * n for n in (-1, 0)]
    right = spark.createDataFrame(
        [("a", int(at), n) for n, at in enumerate(minutes)], "entity STRING, at BIGINT, value INT"
    ).selectExpr("entity", "timestamp_seconds(at) happened_at", "happened_at known_at", "value")
    left = spark.createDataFrame([("a", on)], "entity STRING, day DATE")
    requests = [
        left.selectExpr("entity", "day asked_at", "timestamp'2030-01-01' later"),
        left.selectExpr("entity", "CAST(day AS TIMESTAMP_NTZ) asked_at", "day later"),
    ]
    for request in requests:
        for known_by in (None, "later", on, begin):
            joined = as_of(request, right, "entity", "asked_at", known_by, zone=zone)
            assert [row.value for row in joined.collect()] == [0], known_by


@pytest.mark.parametrize(
    ("known_by", "join"),
    [
        pytest.param(None, [], id="when asked: one sort, and no join"),
        pytest.param(date(2024, 6, 2), [], id="at one time: one sort, and no join"),
        pytest.param("reviewed_at", ["Join"], id="at another time of the request: an equi-join"),
    ],
)
def test_no_plan_has_a_cross_join(spark, known_by, join):
    """Also not where Spark thinks the history small: then it would choose a join of every row with
    every request.
    """
    left = spark.createDataFrame(
        [("a", at(1), at(2))], "entity STRING, asked_at TIMESTAMP, reviewed_at TIMESTAMP"
    )
    plan = StringIO()
    with redirect_stdout(plan):
        as_of(left, history(spark, (0, 0, 1)), "entity", "asked_at", known_by).explain()
    assert "Cartesian" not in plan.getvalue()
    assert "NestedLoop" not in plan.getvalue()
    assert [name for name in ("Join",) if name in plan.getvalue()] == join


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"on": []}, id="no entity"),
        pytest.param({"on": "shop"}, id="an unknown entity"),
        pytest.param({"at": "request"}, id="a time that is a number"),
        pytest.param({"known_at": "value"}, id="a clock that is a number"),
        pytest.param({"known_by": "never"}, id="an unknown time"),
        pytest.param({"max_age": timedelta(0)}, id="an age of nothing"),
    ],
)
def test_what_cannot_be_joined_is_refused(spark, arguments, golden):
    left = asked(spark, (at(5), 1))
    right = history(spark, (1, 1, 1))
    with golden.raises(ValueError):
        as_of(left, right, **({"on": "entity", "at": "asked_at"} | arguments))


def test_columns_that_both_sides_have_and_maps_are_refused(spark, golden):
    right = history(spark, (1, 1, 1))
    with golden.raises(ValueError):
        as_of(
            asked(spark, (at(5), 1)),
            right.withColumnRenamed("value", "Request"),
            "entity",
            "asked_at",
        )
    with golden.raises(ValueError, "a map"):
        as_of(
            asked(spark, (at(5), 1)),
            right.selectExpr("*", "map('a', value) AS m"),
            "entity",
            "asked_at",
        )
