"""Drift of a column: known values by hand, and plain formulations of the same figures."""

import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.quality.drift import (
    Drift,
    chance_of_index,
    chance_of_kolmogorov_smirnov,
    chance_of_share,
    chance_of_total_variation,
    drift,
    kolmogorov_smirnov,
    stability_index,
    total_variation,
)
from backfill_assets.quality.thresholds import DriftThresholds
from tests.worlds.depth import tries

NUMBERS = st.lists(st.none() | st.floats(width=32) | st.integers(-3, 3).map(float), max_size=60)
TEXTS = st.lists(st.none() | st.sampled_from("abcdef"), max_size=60)


def column(values, kind=None) -> pa.ChunkedArray:
    whole = pa.array(values, kind)
    half = len(values) // 2
    return pa.chunked_array([whole[:half], whole[half:]])


def of(before, now, kind=None) -> Drift:
    return drift("n", column(before, kind), column(now, kind))


def index_of(before: Counter, now: Counter) -> float:
    """The index from its definition, bin by bin; an empty bin has half a row."""
    sizes = [sum(side.values()) for side in (before, now)]
    terms = []
    for name in before.keys() | now.keys():
        p, q = ((side[name] or 0.5) / size for side, size in zip((before, now), sizes, strict=True))
        terms.append((q - p) * math.log(q / p))
    return math.fsum(terms)


def decile_bins(values: list, reference: list) -> Counter:
    """Which bin each value is in, one value after the other."""
    known = sorted(value for value in reference if value is not None and not math.isnan(value))
    few = len(set(known)) <= 10
    edges = (
        sorted({known[math.ceil(n * len(known) / 10) - 1] for n in range(1, 10)}) if known else []
    )

    def name(value):
        if value is None or math.isnan(value):
            return str(value)
        if few:
            return value if value in known else "other"
        return next((edge for edge in edges if value <= edge), "above")

    return Counter(map(name, values))


@given(NUMBERS, NUMBERS)
@settings(max_examples=tries(150))
def test_of_numbers_both_figures_are_those_of_their_definitions(before, now):
    found = of(before, now, pa.float64())
    values = [[value for value in side if value is not None] for side in (before, now)]
    if not before or not now:
        assert found.skipped
        return
    if not all(values):
        present = [Counter(value is None for value in side) for side in (before, now)]
        assert found.index == pytest.approx(index_of(*present), abs=1e-12)
        return
    assert found.index == pytest.approx(
        index_of(*[decile_bins(side, before) for side in (before, now)]), abs=1e-9
    )
    # NaN is above all numbers; D is looked for at every value of either side.
    one, other = (
        [(math.isnan(value), 0.0 if math.isnan(value) else value) for value in side]
        for side in values
    )
    at = [
        sum(v <= x for v in one) / len(one) - sum(v <= x for v in other) / len(other)
        for x in one + other
    ]
    assert found.distance == pytest.approx(max(map(abs, at)), abs=1e-12)


@given(TEXTS, TEXTS)
@settings(max_examples=tries(100))
def test_of_categories_both_figures_are_those_of_their_definitions(before, now):
    found = of(before, now, pa.string())
    if before and now:
        shares = [{name: side.count(name) / len(side) for name in side} for side in (before, now)]
        differences = [
            abs(shares[0].get(name, 0) - shares[1].get(name, 0)) for name in {*before, *now}
        ]
        only_nulls = not any(before) or not any(now)
        named = [
            Counter([v is None for v in side] if only_nulls else side) for side in (before, now)
        ]
        assert found.index == pytest.approx(index_of(*named), abs=1e-9)
        assert only_nulls or found.distance == pytest.approx(sum(differences) / 2, abs=1e-12)


@given(NUMBERS, NUMBERS, st.randoms(use_true_random=False))
@settings(max_examples=tries(60))
def test_figures_are_bounded_do_not_depend_on_order_and_are_zero_for_equal_samples(
    before, now, random
):
    found = of(before, now, pa.float64())
    assert 0 <= found.distance <= 1
    assert 0 <= found.index < math.inf
    shuffled = [random.sample(side, len(side)) for side in (before, now)]
    assert of(shuffled[0], shuffled[1], pa.float64()) == found
    same = of(before, [*shuffled[0], *before], pa.float64())
    assert (same.index, same.distance) == pytest.approx((0, 0), abs=1e-12)


@given(TEXTS, TEXTS)
@settings(max_examples=tries(60))
def test_figures_of_categories_and_the_distance_of_numbers_are_symmetric(before, now):
    one = of(before, now, pa.string())
    other = of(now, before, pa.string())
    assert (one.index, one.distance) == pytest.approx((other.index, other.distance), abs=1e-12)
    numbers = [np.array([ord(value) for value in side if value], float) for side in (before, now)]
    assert kolmogorov_smirnov(*numbers) == kolmogorov_smirnov(*reversed(numbers))


def test_the_index_of_two_bins_is_the_one_computed_by_hand():
    # (0.25 - 0.5) ln(0.25 / 0.5) + (0.75 - 0.5) ln(0.75 / 0.5) = 0.1733 + 0.1014
    assert stability_index(np.array([50, 50]), np.array([25, 75])) == pytest.approx(
        0.27465, abs=1e-5
    )
    # The empty bin has half of 100 rows: (0.005 - 0.5) ln(0.005 / 0.5) + (1 - 0.5) ln(1 / 0.5) =
    # 2.2796 + 0.3466
    assert stability_index(np.array([50, 50, 0]), np.array([100, 0, 0])) == pytest.approx(
        2.62613, abs=1e-5
    )


def test_distances_are_those_computed_by_hand():
    assert kolmogorov_smirnov(np.array([1, 2, 3, 4.0]), np.array([3, 4, 5, 6.0])) == 0.5
    assert kolmogorov_smirnov(np.array([1, 1, 1, 2.0]), np.array([1, 2, 2, 2.0])) == 0.5
    assert kolmogorov_smirnov(np.array([]), np.array([1.0])) == 1
    assert kolmogorov_smirnov(np.array([]), np.array([])) == 0
    assert total_variation(np.array([50, 50, 0]), np.array([25, 50, 25])) == 0.25


@pytest.mark.parametrize(
    ("before", "now", "index", "distance"),
    [
        pytest.param([5.0] * 10, [5.0] * 30, 0, 0, id="a constant that stayed"),
        pytest.param(
            [5] * 10, [4] * 10, 2 * 0.95 * math.log(20), 1, id="a constant that moved down"
        ),
        pytest.param(
            [1, 1, None, None],
            [1, 1, 1, 1],
            0.375 * math.log(4) + 0.5 * math.log(2),
            0,
            id="nulls that were filled",
        ),
        pytest.param(
            [1, 2], [None, None], 2 * 0.75 * math.log(4), 1, id="values that are all null now"
        ),
        pytest.param([None], [None, None], 0, 0, id="nothing but nulls on both sides"),
        pytest.param(
            [1.0, math.inf],
            [1.0, -math.inf],
            2 * 0.25 * math.log(2),
            0.5,
            id="infinities are ends of the order",
        ),
        pytest.param(
            [1.0, math.nan],
            [1.0, 1.0],
            0.5 * math.log(2) + 0.25 * math.log(2),
            0.5,
            id="not a number",
        ),
        pytest.param(
            [True, False], [True, True], 0.5 * math.log(2) + 0.25 * math.log(2), 0.5, id="booleans"
        ),
        pytest.param([date(2019, 9, 1)], [date(2019, 9, 1)], 0, 0, id="days"),
        pytest.param([Decimal("0.10")] * 2, [Decimal("0.10")], 0, 0, id="decimals"),
        pytest.param(
            [datetime(2019, 9, 1, tzinfo=UTC)],
            [datetime(2019, 9, 2, tzinfo=UTC)],
            math.log(2),
            1,
            id="times",
        ),
    ],
)
def test_odd_columns_have_the_figures_computed_by_hand(before, now, index, distance):
    found = of(before, now)
    assert (found.skipped, found.index, found.distance) == (
        "",
        pytest.approx(index),
        pytest.approx(distance),
    )


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param([], [1], id="nothing in live"),
        pytest.param([1], [], id="nothing rebuilt"),
        pytest.param(["a"], [1], id="another type"),
        pytest.param([["a"]], [["b"]], id="a list"),
        pytest.param([f"a{n}" for n in range(99)], [f"b{n}" for n in range(99)], id="a key"),
    ],
)
def test_what_cannot_be_compared_is_skipped_and_says_why(before, now, golden):
    found = drift("n", column(before), column(now))
    assert found == Drift("n", skipped=found.skipped)
    golden(found.skipped)


def test_a_key_that_became_one_value_is_compared():
    found = of([f"a{n}" for n in range(99)], ["a1"] * 99)
    assert (found.skipped, round(found.distance, 3)) == ("", 0.99)


def test_one_row_of_few_that_is_gone_is_no_other_population():
    regions = [f"region {n}" for n in range(30)]
    assert of(regions, regions[1:]).size < 0.1


def test_whole_numbers_and_dictionaries_are_compared_as_plain_values():
    texts = pa.chunked_array([pa.array(["a", "b", "a", None])])
    assert drift("n", texts.dictionary_encode(), texts).size == 0
    assert drift("n", column([1, 2, 2**60]), column([1.0, 2.0, 2.0**60])).size == 0


@pytest.mark.parametrize(
    ("size", "fail", "judged"),
    [
        (0.1, None, "passed"),
        (0.11, None, "decision"),
        (9.0, None, "decision"),
        (0.25, 0.25, "decision"),
        (0.26, 0.25, "failed"),
    ],
)
def test_what_is_beyond_a_threshold_is_judged_by_it(size, fail, judged):
    assert DriftThresholds(fail=fail).judge(size) == judged


@pytest.mark.parametrize("wrong", [{"warn": -0.1}, {"warn": 0.3, "fail": 0.2}])
def test_thresholds_that_contradict_themselves_are_refused(wrong, golden):
    with golden.raises(ValueError):
        DriftThresholds(**wrong)


SAMPLES = 20_000


@pytest.mark.parametrize(
    ("bins", "before", "now"), [(10, 200, 200), (10, 500, 80), (3, 60, 60), (2, 1000, 1000)]
)
def test_indices_by_chance_are_below_and_not_far_below(bins, before, now):
    random = np.random.default_rng(1)
    shares = np.full(bins, 1 / bins)
    sides = (random.multinomial(rows, shares, SAMPLES) for rows in (before, now))
    indices = np.array([stability_index(*counts) for counts in zip(*sides, strict=True)])
    chance = chance_of_index(bins, before, now)
    assert np.mean(indices <= chance) > 0.995
    assert np.mean(indices <= chance / 3) < 0.98


@pytest.mark.parametrize(("share", "before", "now"), [(0.5, 50, 50), (0.1, 300, 100)])
def test_shares_by_chance_are_within(share, before, now):
    # 999 in 1,000 on either side.
    random = np.random.default_rng(1)
    apart = (
        random.binomial(before, share, SAMPLES) / before
        - random.binomial(now, share, SAMPLES) / now
    )
    assert np.mean(np.abs(apart) <= chance_of_share(share, before, now)) == pytest.approx(
        0.998, abs=0.002
    )


@pytest.mark.parametrize(("before", "now"), [(200, 200), (500, 60)])
@pytest.mark.parametrize("equal", [0, 0.7])
def test_distances_of_numbers_by_chance_are_within_and_not_far_within(before, now, equal):
    random = np.random.default_rng(1)
    sides = [
        random.random((3000, rows)) * (random.random((3000, rows)) >= equal)
        for rows in (before, now)
    ]
    apart = np.array([kolmogorov_smirnov(*values) for values in zip(*sides, strict=True)])
    chance = chance_of_kolmogorov_smirnov(before, now)
    assert np.mean(apart <= chance) > 0.998
    assert np.mean(apart <= chance / 3) < 0.98


@pytest.mark.parametrize(("bins", "before", "now"), [(10, 200, 200), (3, 60, 60), (100, 500, 200)])
def test_distances_of_categories_by_chance_are_within_and_not_far_within(bins, before, now):
    random = np.random.default_rng(1)
    shares = np.full(bins, 1 / bins)
    sides = (random.multinomial(rows, shares, 3000) for rows in (before, now))
    apart = np.array([total_variation(*counts) for counts in zip(*sides, strict=True)])
    chance = chance_of_total_variation(bins, before, now)
    assert np.mean(apart <= chance) > 0.998
    assert np.mean(apart <= chance / 3) < 0.98
