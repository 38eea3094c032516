"""Sums and means by key value, and nulls inside nested columns, as DuckDB computes them."""

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.diff.days import TableTotals, compare_day
from backfill_assets.diff.diff import NestedNulls
from tests.worlds.depth import tries

pytestmark = pytest.mark.lake

DAYS = ("2019-09-01", "2019-09-02")
REGIONS = ("north", "south", "west")
KINDS = pa.schema(
    [("id", pa.int64()), ("region", pa.string()), ("cents", pa.int64()), ("share", pa.float64())]
)
# By value of the column {0}: the sum and the mean of {1} on both sides, and what a change relates
# to. {2}: whether {1} counts rows.
CHANGES = """
    WITH totals AS (
        SELECT CAST({0} AS VARCHAR) AS value, side, coalesce(sum({1}), 0) AS total,
            coalesce(sum(abs({1})), 0) AS size, count({1}) AS numbers
        FROM rows GROUP BY ALL
    ), sides AS (
        SELECT coalesce(b.value, a.value) AS value, coalesce(b.total, 0) AS old,
            coalesce(a.total, 0) AS new, coalesce(b.size, 0) AS size,
            coalesce(b.numbers, 0) AS numbers, coalesce(a.numbers, 0) AS numbers_after
        FROM (FROM totals WHERE side = 'before') b
        FULL JOIN (FROM totals WHERE side = 'after') a USING (value)
    )
    SELECT value, 'sum' AS figure, old AS a, new AS b, size AS scale FROM sides
    UNION ALL
    SELECT value, 'mean', old / numbers, new / numbers_after, size / numbers FROM sides
    WHERE numbers > 0 AND numbers_after > 0 AND NOT {2}
"""


def some_rows(random: Random) -> list[dict[str, Any]]:
    return [
        {
            "id": n,
            "region": random.choice(REGIONS),
            "cents": random.choice([None, 0, random.randint(-500, 500)]),
            "share": random.choice([None, 0.0, random.uniform(-1, 1)]),
        }
        for n in range(random.randint(1, 40))
    ]


def changed(random: Random, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [dict(row) for row in rows if random.random() > 0.1]
    for row in kept:
        if random.random() < 0.3:
            row["cents"] = random.randint(-500, 500)
            row["region"] = random.choice(REGIONS)
    return kept


def largest(changes: Sequence[tuple[str, str, float, float, float]]) -> float:
    sizes = [0.0]
    for _, _, before, after, scale in changes:
        if not math.isclose(before, after, rel_tol=1e-9):
            sizes.append(min(abs(after - before) / scale, 1e6) if scale else 1e6)
    return max(sizes)


@settings(max_examples=tries(60), deadline=None)
@given(st.integers(0, 2**32))
def test_the_largest_change_by_key_value_and_by_day_is_what_duckdb_finds(seed):
    random = Random(seed)
    totals = TableTotals()
    rows = []
    for day in DAYS:
        before = some_rows(random)
        after = changed(random, before)
        old = pa.Table.from_pylist(before, KINDS)
        new = pa.Table.from_pylist(after, KINDS)
        compare_day(day, old, new, ["id", "region"], totals)
        rows += [row | {"day": day, "side": "before", "one": 1} for row in before]
        rows += [row | {"day": day, "side": "after", "one": 1} for row in after]
    found = {(change.key, change.column): change for change in totals.groups.changes()}
    with duckdb.connect() as database:
        kinds = [*KINDS, pa.field("day", pa.string()), pa.field("side", pa.string())]
        schema = pa.schema([*kinds, pa.field("one", pa.int64())])
        database.register("rows", pa.Table.from_pylist(rows, schema))
        for key in ("region", "day"):
            for column, of_rows in (("cents", False), ("share", False), ("one", True)):
                query = CHANGES.format(key, column, of_rows)
                changes = database.execute(query).fetchall()
                change = found[key, "" if of_rows else column]
                assert change.size == pytest.approx(largest(changes), rel=1e-9, abs=1e-9)
                figures = {(value, figure): (a, b) for value, figure, a, b, _ in changes}
                expected = figures[change.value, change.figure]
                assert (change.before, change.after) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_key_that_names_single_rows_has_no_groups():
    rows = pa.table({"id": range(300), "n": [1.0] * 300})
    totals = TableTotals()
    compare_day(DAYS[0], rows, rows, ["id"], totals)
    assert {change.key for change in totals.groups.changes()} == {"day"}


def test_a_day_that_is_new_has_no_change_by_day():
    rows = pa.table({"id": range(3), "n": [1.0] * 3})
    totals = TableTotals()
    compare_day(DAYS[0], rows.slice(0, 0), rows, ["id"], totals)
    assert [change for change in totals.groups.changes() if change.key == "day"] == []


NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("place", pa.struct([("county", pa.string()), ("zips", pa.list_(pa.int64()))])),
        ("crews", pa.list_(pa.struct([("name", pa.string())]))),
        ("codes", pa.map_(pa.string(), pa.int64())),
    ]
)
# The nulls and the values at each path of the table {0}.
NULLS = {
    "place.county": "SELECT place.county AS v FROM {0} WHERE place IS NOT NULL",
    "place.zips": "SELECT place.zips AS v FROM {0} WHERE place IS NOT NULL",
    "place.zips.element": "SELECT unnest(place.zips) AS v FROM {0}",
    "crews.element": "SELECT unnest(crews) AS v FROM {0}",
    "crews.element.name": (
        "SELECT crew.name AS v FROM (SELECT unnest(crews) AS crew FROM {0}) WHERE crew IS NOT NULL"
    ),
    "codes.value": "SELECT unnest(map_values(codes)) AS v FROM {0}",
}


def nested_rows(random: Random) -> pa.Table:
    def maybe(value: Any) -> Any:
        return None if random.random() < 0.3 else value

    def some(make: Any) -> list[Any]:
        return [make() for _ in range(random.randint(0, 3))]

    rows = [
        {
            "id": n,
            "place": maybe({"county": maybe("x"), "zips": maybe(some(lambda: maybe(9)))}),
            "crews": maybe(some(lambda: maybe({"name": maybe("y")}))),
            "codes": maybe([(str(n), maybe(n)) for n in range(random.randint(0, 3))]),
        }
        for n in range(random.randint(5, 30))
    ]
    return pa.Table.from_pylist(rows, NESTED)


@settings(max_examples=tries(60), deadline=None)
@given(st.integers(0, 2**32))
def test_nulls_inside_nested_columns_are_what_duckdb_counts(seed):
    random = Random(seed)
    before = nested_rows(random)
    after = nested_rows(random)
    found = compare_day(DAYS[0], before, after, ["id"], TableTotals()).nested_nulls
    expected = set[NestedNulls]()
    with duckdb.connect() as database:
        for name, table in (("old", before), ("new", after)):
            database.register(name, table)
        for path, query in NULLS.items():
            counts = [
                database.execute(
                    f"SELECT count(*) FILTER (v IS NULL), count(*) FROM ({query.format(name)})"
                ).fetchall()[0]
                for name in ("old", "new")
            ]
            expected.add(NestedNulls(path, *counts[0], *counts[1]))
    assert set(found) == expected
