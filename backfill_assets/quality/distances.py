"""Figures of how far two samples are apart. No Spark.

The population stability index is the sum over bins of (q - p) ln(q / p), p and q being the shares of the reference's and of the
current rows in a bin (Siddiqi, Credit Risk Scorecards, 2006). It is 0 for equal shares, symmetric in them, and has no upper
bound. A bin that is empty on one side counts there as half a row, as in weights of evidence (SAS, HPBIN, WOEADJUST=0.5): of few
rows, a fixed small share would make one row that is gone look like another population. A bin that is empty on both counts
nothing.

The distances are between 0 and 1: of numbers the two-sample Kolmogorov-Smirnov statistic, sup |F(x) - G(x)|, ties counted
together (Conover, Practical Nonparametric Statistics, 3rd edition, 6.3); of values without an order the total variation, half
the sum of |p - q| over the values (Levin and Peres, Markov Chains and Mixing Times, 4.1).
"""

import numpy as np
import numpy.typing as npt

HALF_A_ROW = 0.5

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.float64]


def stability_index(reference: Counts, current: Counts) -> float:
    """The population stability index of the row counts of the same bins; both sides have rows."""
    reference, current = np.asarray(reference, float), np.asarray(current, float)
    used = (reference > 0) | (current > 0)
    p = np.maximum(reference[used], HALF_A_ROW) / reference.sum()
    q = np.maximum(current[used], HALF_A_ROW) / current.sum()
    return float(np.sum((q - p) * np.log(q / p)))


def kolmogorov_smirnov(reference: Floats, current: Floats) -> float:
    """sup |F - G| of the values of two samples: 0 if both are empty, 1 if one is."""
    if not len(reference) or not len(current):
        return float(len(reference) != len(current))
    one, other = np.sort(reference), np.sort(current)
    at = np.concatenate([one, other])
    shares = [np.searchsorted(values, at, side="right") / len(values) for values in (one, other)]
    return float(np.max(np.abs(shares[0] - shares[1])))


def total_variation(reference: Counts, current: Counts) -> float:
    """Half the sum of the differences of shares, of the row counts of the same categories."""
    p, q = (np.asarray(counts, float) / np.sum(counts) for counts in (reference, current))
    return float(np.abs(p - q).sum() / 2)
