"""What two samples of one population are apart by chance, against samples."""

import numpy as np
import pytest

from backfill_assets.quality.drift import (
    chance_of_index,
    chance_of_kolmogorov_smirnov,
    chance_of_share,
    chance_of_total_variation,
    kolmogorov_smirnov,
    stability_index,
    total_variation,
)

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
