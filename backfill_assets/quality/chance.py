"""How far figures of two small samples of one population are apart by chance: what a single day is allowed beyond a threshold.

The quantiles are those of 999 samples in 1,000: a month of a table of twenty columns is 600 of them.
"""

from math import log, sqrt

# The 0.999 quantile of the standard normal distribution.
Z = 3.090
BEYOND = 0.001


def chance_of_index(bins: int, before: int, now: int) -> float:
    """The population stability index that two samples of so many rows each have by chance.

    It is distributed as (1/n + 1/m) times chi-square with `bins` - 1 degrees of freedom (Yurdakul and Naranjo, Statistical
    properties of the population stability index, Journal of Risk Model Validation 14(4), 2020); the quantile of chi-square by
    the cube of Wilson and Hilferty (PNAS 17, 1931).
    """
    freedom = max(bins - 1, 1)
    chi_square = freedom * (1 - 2 / (9 * freedom) + Z * sqrt(2 / (9 * freedom))) ** 3
    return (1 / before + 1 / now) * chi_square


def chance_of_kolmogorov_smirnov(before: int, now: int) -> float:
    """The Kolmogorov-Smirnov statistic that two samples of so many values each have by chance: its limit for many values, which
    is above it for few or equal ones (Smirnov, Annals of Mathematical Statistics 19, 1948; the first term of its series)."""
    return sqrt(-log(BEYOND / 2) / 2 * (1 / before + 1 / now))


def chance_of_total_variation(bins: int, before: int, now: int) -> float:
    """The total variation of two samples by chance is below this: by Cauchy and Schwarz, half the root of the sum of squares
    that the stability index comes to where both are samples of one population."""
    return sqrt(chance_of_index(bins, before, now)) / 2


def chance_of_share(share: float, before: int, now: int) -> float:
    """By how much the shares of two samples are apart by chance, if `share` is that of both together: the two-proportion test
    (Agresti, Categorical Data Analysis, 3rd edition, 3.1)."""
    return Z * sqrt(share * (1 - share) * (1 / before + 1 / now))
