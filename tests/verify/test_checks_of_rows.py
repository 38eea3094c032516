"""The lines for which rows are read: keys and drift."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest

from backfill_assets.quality.thresholds import DriftThresholds
from backfill_assets.verify.checklist import CheckLine, CheckOutcome
from backfill_assets.verify.rows import drift_of_columns, unique_keys
from tests.worlds.deliveries import day, days
from tests.worlds.tables import TABLE, reader, rows_of_days

NO_ROWS = rows_of_days([])


def keys(key: list[str], at: Iterable[int], rows: pa.Table) -> CheckLine:
    return unique_keys(TABLE, key, "day", days(*at), reader(o=rows))


def drifts(
    columns: list[str],
    at: Iterable[int],
    live: pa.Table,
    now: pa.Table,
    thresholds: dict[str, DriftThresholds] | None = None,
) -> list[CheckLine]:
    sides = reader(o=live), reader(o=now)
    return drift_of_columns(TABLE, columns, days(*at), *sides, thresholds, day="day")


def test_a_key_that_stands_twice_in_a_day_is_named_and_on_two_days_it_is_two():
    rows = rows_of_days(
        [0, 1, 1, 1, 2, 2], id=["a", "a", "a", "b", None, None], n=[1, 1, 2, 3, 4, 5]
    )
    line = keys(["id"], [0, 1, 2], rows)
    assert (line.outcome, list(line.days)) == (CheckOutcome.FAILED, days(1, 2))
    assert line.figures == f"6 rows; 2 repeated keys; {day(1)} a: 2 rows; {day(2)} None: 2 rows"
    assert keys(["id"], [0], rows).outcome == CheckOutcome.PASSED
    assert keys(["day", "id", "n"], [0, 1, 2], rows).outcome == CheckOutcome.PASSED


def test_masked_values_of_repeated_keys_are_not_shown():
    rows = rows_of_days([0, 0], id=["a", "a"], n=[1, 1])
    line = unique_keys(TABLE, ["id", "n"], "day", days(0), reader(o=rows), masked=["id"])
    assert line.figures == f"2 rows; 1 repeated keys; {day(0)} (masked) 1: 2 rows"


def test_keys_of_many_days_are_counted_in_parts_with_the_same_result():
    numbers = [n for n in range(80) for _ in range(2)]
    rows = rows_of_days(numbers, id=[n % 2 for n in range(160)])
    assert keys(["id"], range(80), rows).outcome == CheckOutcome.PASSED
    line = keys(["day"], range(80), rows)
    assert list(line.days) == days(*range(80))


def test_without_a_key_or_without_days_nothing_is_counted():
    assert keys([], [0], NO_ROWS).outcome == CheckOutcome.SKIPPED
    assert keys(["id"], [], NO_ROWS).outcome == CheckOutcome.PASSED


LIVE = rows_of_days(
    [0] * 10 + [1] * 10, n=list(range(20)), c=["x", "y"] * 10, same=[1] * 20, gone=["z"] * 20
)
NOW = rows_of_days(
    [0] * 10 + [1] * 10, n=[n + 4 for n in range(20)], c=["x"] * 20, same=[1] * 20, new=["z"] * 20
)


@pytest.mark.parametrize(
    ("thresholds", "outcomes"),
    [
        pytest.param({}, {"n": "decision", "c": "decision"}, id="by default a person decides"),
        pytest.param(
            {"n": DriftThresholds(warn=1)}, {"c": "decision"}, id="a column of its own threshold"
        ),
        pytest.param({"*": DriftThresholds(warn=9)}, {}, id="all columns of another threshold"),
        pytest.param(
            {"*": DriftThresholds(warn=9), "c": DriftThresholds(0.1, fail=0.25)},
            {"c": "failed"},
            id="one that may fail",
        ),
    ],
)
def test_a_column_that_moved_beyond_its_threshold_has_a_line_of_its_own(
    thresholds, outcomes, golden
):
    columns = ["n", "c", "same", "gone", "new"]
    first, *beyond = drifts(columns, [0, 1], LIVE, NOW, thresholds)
    assert {line.name: line.outcome.value for line in beyond} == {
        f"drift {TABLE}.{c}": o for c, o in outcomes.items()
    }
    assert first.outcome == CheckOutcome.PASSED
    golden(first.figures)


def test_the_figures_of_a_line_are_those_of_the_days_asked_for():
    # Of day 0, n is 0 to 9 in live and 4 to 13 now: 4 of 10 values are above all of live's.
    _, line = drifts(["n"], [0], LIVE, NOW, {"n": DriftThresholds(0.1, fail=9)})
    bounds = "needs a decision beyond 0.1, and fails beyond 9"
    assert f"Kolmogorov-Smirnov 0.400; {bounds}" in line.figures
    assert line.outcome == CheckOutcome.DECISION


def test_a_day_that_is_wrong_is_not_watered_down_by_thirty_that_are_right():
    numbers = [n for n in range(31) for _ in range(100)]
    live = rows_of_days(numbers, n=[k % 100 for k in range(3100)], c=["x", "y"] * 1550)
    now = rows_of_days(
        numbers, n=[k % 100 + 10_000 * (n == 7) for k, n in enumerate(numbers)], c=["x", "y"] * 1550
    )
    first, line = drifts(["n", "c"], range(31), live, now)
    assert first.figures.endswith("; 1 beyond their threshold")
    assert (line.name, line.outcome, list(line.days)) == (
        f"drift {TABLE}.n",
        CheckOutcome.DECISION,
        [day(7)],
    )
    assert f"most on {day(7)}: PSI 4." in line.figures
    failing = {"n": DriftThresholds(0.1, fail=2)}
    _, line = drifts(["n"], range(31), live, now, failing)
    assert (line.outcome, list(line.days)) == (CheckOutcome.FAILED, [day(7)])


@pytest.mark.parametrize("column", ["mostly zeros", "keys"])
def test_a_wrong_day_is_seen_in_columns_of_few_values_and_in_keys(column):
    random = np.random.default_rng(1)
    numbers = np.repeat(np.arange(31), 500)
    wrong = 7
    if column == "keys":
        values = np.array([f"{n:05d}" for n in range(len(numbers))])
        now = np.where(numbers == wrong, "unknown", values)
    else:
        values = random.gamma(2, 3, len(numbers)) * (random.random(len(numbers)) < 0.3)
        now = np.where((numbers == wrong) & (values == 0), -999, values)
    live, rebuilt = (rows_of_days(numbers.tolist(), n=side.tolist()) for side in (values, now))
    _, *beyond = drifts(["n"], range(31), live, rebuilt)
    assert [(line.outcome, list(line.days)) for line in beyond] == [
        (CheckOutcome.DECISION, [day(wrong)])
    ]


@pytest.mark.parametrize(("rows_a_day", "seen"), [(8, False), (12, True)])
def test_days_of_so_few_rows_that_even_a_wrong_one_is_not_seen_are_counted(rows_a_day, seen):
    numbers = [n for n in range(31) for _ in range(rows_a_day)]
    values = [1.0 + (37 * row) % len(numbers) for row in range(len(numbers))]
    wrong = [-value if n == 10 else value + 0.001 for n, value in zip(numbers, values, strict=True)]
    live = rows_of_days(numbers, n=values)
    now = rows_of_days(numbers, n=wrong)
    first, *beyond = drifts(["n"], range(31), live, now)
    assert [line.days for line in beyond] == ([(day(10),)] if seen else [])
    unjudged = "; 31 day(s) have too few rows to judge: `backfill diff` shows the changes"
    assert (unjudged in first.figures) is not seen


def test_few_rows_that_differ_by_chance_need_no_decision():
    random = np.random.default_rng(3)
    numbers = [n for n in range(31) for _ in range(20)]
    live, now = [
        rows_of_days(
            numbers,
            n=random.normal(size=620).tolist(),
            c=random.choice(["x", "y", "z"], 620).tolist(),
        )
        for _ in range(2)
    ]
    lines = drifts(["n", "c"], range(31), live, now)
    assert [line.outcome for line in lines] == [CheckOutcome.PASSED]


def test_keys_may_be_structs_and_lists():
    rows = rows_of_days([0, 0, 0], id=[{"a": 1, "b": [1]}, {"a": 1, "b": [2]}, {"a": 1, "b": [1]}])
    line = keys(["id"], [0], rows)
    assert (line.outcome, list(line.days)) == (CheckOutcome.FAILED, [day(0)])


def test_equal_sides_and_days_that_live_does_not_have_need_no_decision(golden):
    (same,) = drifts(["n", "c"], [0, 1], LIVE, LIVE)
    assert same.outcome == CheckOutcome.PASSED
    golden(same.figures)
    (none,) = drifts(["n", "c"], [], LIVE, LIVE)
    assert none.outcome == CheckOutcome.SKIPPED
