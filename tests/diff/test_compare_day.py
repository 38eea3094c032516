"""Two versions of a day compared row by row, against a comparison in plain Python."""

import math
from collections import Counter
from datetime import date
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.diff.days import TableTotals, compare_day
from backfill_assets.diff.diff import Example, NumberChanges, ValueChange
from backfill_assets.diff.tolerance import Tolerance
from tests.worlds.depth import tries

DAY = "2019-09-01"
KINDS = {
    "k1": pa.string(),
    "k2": pa.int32(),
    "n": pa.int64(),
    "x": pa.float64(),
    "s": pa.string(),
    "b": pa.bool_(),
    "l": pa.list_(pa.float64()),
    "r": pa.struct([("a", pa.int64()), ("l", pa.list_(pa.string()))]),
    "m": pa.map_(pa.string(), pa.int64()),
}
FLOATS = [None, 0.0, -0.0, 1.5, math.nan, math.inf]
VALUES: dict[str, list[Any]] = {
    "k1": [None, "a", "b", ""],
    "k2": [None, 0, 1, 2],
    "n": [None, 0, 1, -(2**62), 2**62],
    "x": FLOATS,
    "s": [None, "", "u", "v"],
    "b": [None, True, False],
    "l": [None, *(list(of) for n in range(3) for of in product(FLOATS, repeat=n))],
    "r": [None, *({"a": a, "l": of} for a in (None, 1) for of in (None, [], ["q"], ["q", "q"]))],
    "m": [None, [], [("p", 1)], [("p", 1), ("q", 2)], [("q", 2), ("p", 1)], [("p", 2), ("q", 1)]],
}
KEYS = list(product(VALUES["k1"], VALUES["k2"]))
Rows = list[dict[str, Any]]


def days(random: Random) -> tuple[pa.Table, pa.Table]:
    """Both sides with the key, which may repeat, and with columns that one of them may lack."""
    others = [name for name in KINDS if name[0] != "k"]
    columns = random.sample(others, random.randrange(4))
    repeats = random.random() < 0.3
    after = random.choice([columns, columns, random.sample(others, 2)])
    return side(random, columns, repeats), side(random, after, repeats)


def side(random: Random, columns: list[str], repeats: bool) -> pa.Table:
    size = random.choice([0, 3, 10, 16])
    keys = random.choices(KEYS, k=size) if repeats else random.sample(KEYS, size)
    rows = [
        {"k1": k1, "k2": k2} | {name: random.choice(VALUES[name]) for name in columns}
        for k1, k2 in keys
    ]
    return pa.Table.from_pylist(
        rows, pa.schema([(name, KINDS[name]) for name in ("k1", "k2", *columns)])
    )


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value that equals another one exactly if the two are the same to a reader."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return tuple(sorted((name, plain(each, kind.item_type)) for name, each in value))
    if pa.types.is_list(kind):
        return ("list", *(plain(each, kind.value_type) for each in value))
    if pa.types.is_struct(kind):
        return tuple(plain(value[field.name], field.type) for field in kind)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def rows_of(table: pa.Table, names: list[str]) -> Rows:
    return [
        {name: plain(row.get(name), KINDS[name]) for name in names} for row in table.to_pylist()
    ]


def by_key(rows: Rows, key: list[str] | None) -> dict[Any, Rows]:
    groups: dict[Any, Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in key or ()), []).append(row)
    return groups


def in_python(
    before: pa.Table, after: pa.Table, key: list[str] | None
) -> tuple[Counter[str], Counter[str]]:
    """The figures of the day, and of each column how many rows changed."""
    names = list(dict.fromkeys([*before.column_names, *after.column_names]))
    old, new = (by_key(rows_of(table, names), key) for table in (before, after))
    figures = Counter(rows_before=before.num_rows, rows_after=after.num_rows)
    columns = Counter[str]()
    for of_key in {**old, **new}:
        ours = old.get(of_key, [])
        theirs = new.get(of_key, [])
        if key is not None and len(ours) == len(theirs) == 1:
            differing = [name for name in names if ours[0][name] != theirs[0][name]]
            columns.update(differing)
            figures.update({"changed" if differing else "unchanged": 1})
            continue
        same = (
            Counter(tuple(row.values()) for row in ours)
            & Counter(tuple(row.values()) for row in theirs)
        ).total()
        figures.update(added=len(theirs) - same, removed=len(ours) - same, unchanged=same)
        if key is not None:
            figures.update(
                repeated_keys_before=int(len(ours) > 1), repeated_keys_after=int(len(theirs) > 1)
            )
    return +figures, columns


@settings(max_examples=tries(200))
@given(st.integers(0, 2**32), st.sampled_from([["k1", "k2"], ["k1"], [], None]))
def test_any_two_days_are_compared_as_plain_python_compares_them(seed, key):
    before, after = days(Random(seed))
    diff = compare_day(DAY, before, after, key, TableTotals())
    figures, columns = in_python(before, after, key)
    ours = Counter({name: value for name, value in vars(diff).items() if isinstance(value, int)})
    assert +ours == figures
    assert {column.name: column.changed for column in diff.columns} == columns
    assert diff.rows_before == diff.removed + diff.changed + diff.unchanged
    assert diff.rows_after == diff.added + diff.changed + diff.unchanged


def test_the_distribution_of_a_number_is_of_its_differences():
    before = pa.table({"k": range(6), "n": [1, 2, 3, 4, None, 6]})
    after = pa.table({"k": range(6), "n": [1, 12, 2, 104, 5, None]})
    totals = TableTotals()
    (column,) = compare_day(DAY, before, after, ["k"], totals).columns
    assert column.changed == 5
    assert column.numbers == NumberChanges(
        up=2,
        down=1,
        other=2,
        least=-1,
        median=10,
        mean=109 / 3,
        most=100,
        sum_before=9,
        sum_after=118,
    )
    assert totals.columns["n"].column().examples[:2] == (
        Example(DAY, {"k": 1}, 2, 12),
        Example(DAY, {"k": 2}, 3, 2),
    )


def test_large_integers_are_subtracted_exactly():
    before = pa.table({"k": [1, 2], "n": [2**60, -(2**63)]})
    after = pa.table({"k": [1, 2], "n": [2**60 + 1, 2**63 - 1]})
    (column,) = compare_day(DAY, before, after, ["k"], TableTotals()).columns
    assert column.numbers
    assert (column.numbers.up, column.numbers.least, column.numbers.most) == (2, 1, 2.0**64)


def test_the_most_frequent_changes_of_what_is_no_number_come_first():
    old = ["x", "x", "x", None, "y", "z", "a", "b"]
    new = ["y", "y", "q", "y", "x", "x", "c", "d"]
    before, after = (pa.table({"k": range(8), "s": values}) for values in (old, new))
    (column,) = compare_day(DAY, before, after, ["k"], TableTotals()).columns
    assert column.numbers is None
    assert column.frequent[0] == ValueChange("x", "y", 2)
    assert len(column.frequent) == 5
    assert {each.rows for each in column.frequent[1:]} == {1}


MAP_OF_INTEGERS = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        pytest.param(
            pa.array([1, 2], pa.int32()),
            pa.array([1, 3], pa.int64()),
            1,
            id="integers of two sizes",
        ),
        pytest.param(pa.array([1, 2]), pa.array([1.0, 2.5]), 1, id="an integer and a double"),
        pytest.param(
            pa.array([2**53 + 1, 2**53]),
            pa.array([2.0**53, 2.0**53]),
            1,
            id="an integer and the double that it was rounded to",
        ),
        pytest.param(
            pa.array([[2**53 + 1], [2**53, None]]),
            pa.array([[2.0**53], [2.0**53, None]]),
            1,
            id="a list of integers and of the doubles that they were rounded to",
        ),
        pytest.param(
            pa.array([{"m": 2**53 + 1, "n": None}, {"m": 2**53, "n": 1}]),
            pa.array([{"m": 2.0**53}, {"m": 2.0**53}]),
            2,
            id="integers in a struct and the doubles that they were rounded to",
        ),
        pytest.param(
            pa.array([[("b", 2**53 + 1), ("a", 1)], [("b", 2**53), ("a", 1)]], MAP_OF_INTEGERS),
            pa.array([[("a", 1.0), ("b", 2.0**53)]] * 2, pa.map_(pa.string(), pa.float64())),
            1,
            id="a map of integers and of the doubles that they were rounded to",
        ),
        pytest.param(
            pa.array([Decimal(2**53 + 1), Decimal("0.1")], pa.decimal128(20, 1)),
            pa.array([2.0**53, 0.1]),
            1,
            id="a decimal and the double that it was rounded to",
        ),
        pytest.param(pa.array([1, 2]), pa.array(["1", "3"]), 1, id="a number and its text"),
        pytest.param(
            pa.array([Decimal("1.00"), Decimal("2.00")]),
            pa.array([1, 3]),
            1,
            id="a decimal and an integer",
        ),
        pytest.param(
            pa.array([0, 1], pa.date32()),
            pa.array([0, 1], pa.timestamp("us", "UTC")),
            1,
            id="a day and a time",
        ),
        pytest.param(pa.array([1, 2]), pa.array([[1], [2]]), 2, id="nothing in common: every row"),
        pytest.param(
            pa.array([{"a": 1}, {"a": 2}]),
            pa.array([{"a": 1, "b": None}, {"a": 2, "b": "x"}]),
            1,
            id="a new field",
        ),
        pytest.param(
            pa.array([None, None]), pa.array([None, "x"]), 1, id="a column that was always null"
        ),
        pytest.param(
            pa.array([{"a": 1}, {"a": 2}]),
            pa.array([{"a": "1"}, {"a": "3"}]),
            1,
            id="a field that became text",
        ),
        pytest.param(
            pa.array([[1], [2]]),
            pa.array([[Decimal("1.0")], [Decimal("2.5")]]),
            1,
            id="a list that became decimals",
        ),
        pytest.param(
            pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
            pa.array([[("a", "1")], [("b", "3")]], pa.map_(pa.string(), pa.string())),
            1,
            id="a map that became text",
        ),
        pytest.param(
            pa.array([{"a": date(1970, 1, 1)}, {"a": date(1970, 1, 2)}]),
            pa.array([{"a": 0}, {"a": 1}], pa.struct([("a", pa.int64())])).cast(
                pa.struct([("a", pa.timestamp("us", "UTC"))])
            ),
            1,
            id="a day in a struct that became a time",
        ),
        pytest.param(pa.array(["a", "b"]), pa.array([b"a", b"b"]), 2, id="text and bytes"),
    ],
)
def test_a_column_of_another_type_is_compared_by_value_in_a_common_type(before, after, changed):
    old, new = (pa.table({"k": ["a", "b"], "v": values}) for values in (before, after))
    diff = compare_day(DAY, old, new, ["k"], TableTotals())
    assert (diff.changed, diff.unchanged, diff.added, diff.removed) == (changed, 2 - changed, 0, 0)


NEAR = [sign * (2**n + more) for sign in (1, -1) for n in (0, 52, 53, 62) for more in (-1, 0, 1)]


@given(st.lists(st.tuples(st.sampled_from(NEAR), st.sampled_from(NEAR)), min_size=1))
def test_integers_equal_only_doubles_of_exactly_that_value(pairs):
    """DuckDB compares them as numbers of 128 bits, which hold both."""
    integers = pa.table({"k": range(len(pairs)), "v": pa.array([n for n, _ in pairs], pa.int64())})
    doubles = pa.table({"k": range(len(pairs)), "v": [float(n) for _, n in pairs]})
    joined: Any = duckdb.sql("""
        SELECT count(*) FROM integers JOIN doubles USING (k)
        WHERE integers.v::HUGEINT <> doubles.v::HUGEINT""")
    ((differing,),) = joined.fetchall()
    for before, after in ((integers, doubles), (doubles, integers)):
        assert compare_day(DAY, before, after, ["k"], TableTotals()).changed == differing


DOUBLES = [None, math.nan, math.inf, -math.inf, 0.0, 1e-9, 1.0, 1.01, 1.02, -1.0, 100.0, 101.0]
NUMBERS = st.tuples(st.sampled_from(DOUBLES), st.sampled_from(DOUBLES))


@given(st.lists(NUMBERS, min_size=1), st.sampled_from([0.0, 0.01, 0.02, 1.0]), st.booleans())
def test_within_its_tolerance_a_double_is_the_same_as_for_duckdb(pairs, size, relative):
    before = pa.table({"k": range(len(pairs)), "v": pa.array([a for a, _ in pairs], pa.float64())})
    after = pa.table({"k": range(len(pairs)), "v": pa.array([b for _, b in pairs], pa.float64())})
    scale = "greatest(abs(before.v), abs(after.v))" if relative else "1.0"
    # For DuckDB too, NaN equals NaN.
    joined: Any = duckdb.sql(f"""
        SELECT count(*) FILTER (before.v IS NOT DISTINCT FROM after.v),
               count(*) FILTER (isfinite(before.v) AND isfinite(after.v)
                                AND before.v <> after.v
                                AND abs(after.v - before.v) <= {size} * {scale})
        FROM before JOIN after USING (k)""")
    ((same, within),) = joined.fetchall()
    totals = TableTotals()
    tolerances = {"v": Tolerance(size, relative)}
    diff = compare_day(DAY, before, after, ["k"], totals, tolerances=tolerances)
    assert (diff.unchanged, totals.within["v"]) == (same + within, within)


def test_a_column_that_is_no_number_on_one_side_has_no_tolerance():
    before = pa.table({"k": [1], "v": [1.0]})
    after = pa.table({"k": [1], "v": ["1.5"]})
    tolerances = {"v": Tolerance(9.0)}
    diff = compare_day(DAY, before, after, ["k"], TableTotals(), tolerances=tolerances)
    assert diff.changed == 1


def test_examples_are_the_same_whatever_the_order_of_the_rows():
    before = pa.table(
        {"k": [f"{n:03}" for n in range(300)], "n": range(300), "s": [f"{n}" for n in range(300)]}
    )
    after = pa.table(
        {
            "k": [f"{n:03}" for n in range(290)],
            "n": range(1, 291),
            "s": [f"-{n}" for n in range(290)],
        }
    )
    one = TableTotals()
    other = TableTotals()
    shuffled = [n * 7 % 300 for n in range(300)]
    compare_day(DAY, before, after, ["k"], one)
    compare_day(
        DAY,
        before.take(shuffled),
        after.take([n for n in shuffled[::-1] if n < 290]),
        ["k"],
        other,
    )
    for totals in (one, other):
        assert [row.values["k"] for row in totals.removed_rows] == ["290", "291", "292"]
    assert [c.column() for c in one.columns.values()] == [
        c.column() for c in other.columns.values()
    ]
    assert [each.key for each in one.columns["s"].examples] == [
        {"k": "000"},
        {"k": "001"},
        {"k": "002"},
    ]


def test_keys_that_repeat_on_both_sides_multiply_nothing():
    before = pa.table({"k": ["a"] * 1000, "n": range(1000)})
    after = pa.table({"k": ["a"] * 1000, "n": range(1, 1001)})
    diff = compare_day(DAY, before, after, ["k"], TableTotals())
    assert (diff.unchanged, diff.added, diff.removed, diff.changed) == (999, 1, 1, 0)
    assert (diff.repeated_keys_before, diff.repeated_keys_after) == (1, 1)


def test_a_key_column_that_one_side_lacks_is_null_there():
    diff = compare_day(
        DAY,
        pa.table({"n": [1, 2]}),
        pa.table({"k": ["a", None], "n": [1, 2]}),
        ["k"],
        TableTotals(),
    )
    # The rows of the key null: one equal, one left.
    assert (diff.added, diff.removed, diff.unchanged) == (1, 1, 1)


def test_of_long_texts_the_part_that_differs_is_shown():
    before = "x" * 500 + "old" + "y" * 500
    after = "x" * 500 + "new" + "y" * 500
    (column,) = compare_day(
        DAY, pa.table({"s": [before]}), pa.table({"s": [after]}), [], TableTotals()
    ).columns
    (change,) = column.frequent
    assert "xold" in change.before
    assert "xnew" in change.after
    assert len(change.before) < 210
