"""Drift: the distance of a column from a reference, in two figures. No Spark.

**The population stability index** is the sum over bins of (q - p) ln(q / p), where p and q are the
shares of the reference's and of the current rows in a bin (Siddiqi, Credit Risk Scorecards, 2006).
It is 0 for equal shares, symmetric, and has no upper bound. A bin that is empty on one side counts
there as half a row (SAS, HPBIN, WOEADJUST=0.5). With a fixed small share, one lost row of a few
would look like another population. The bins are

- for numbers and times, the ten between the deciles of the reference, the outer ones open. There
  are fewer if deciles coincide. If the reference has at most ten different values, each value is a
  bin, and all other values are one bin;
- for text, booleans and days, each value;
- in both cases, one for nulls and one for NaN.

**The distance** is between 0 and 1. For numbers and times it is the two-sample Kolmogorov-Smirnov
statistic of the values that are not null: sup |F(x) - G(x)|, ties counted together (Conover,
Practical Nonparametric Statistics, 3rd edition, 6.3). For values without an order it is the total
variation: half the sum of |p - q| over the values, null being a value (Levin and Peres, Markov
Chains and Mixing Times, 4.1).

NaN is the largest number, as in Spark. If one side has only nulls, the values of any type are null
and not null. Whole numbers above 2^53 are compared as the nearest doubles.

**Chance** is the size of the figures for two small samples of one population. The quantiles hold
for 999 of 1,000 samples: a month of a table with twenty columns makes 600.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

# The 0.999 quantile of the standard normal distribution.
_Z = 3.090
_TAIL = 0.001
_BINS = 10
# A column with more different values than this, on more than this share of the rows, is a key. All
# its values are new after any change.
_MANY_VALUES = 50
_KEY_SHARE = 0.5
_HALF_A_ROW = 0.5
_KOLMOGOROV_SMIRNOV = "Kolmogorov-Smirnov"
_TOTAL_VARIATION = "total variation"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Drift:
    """The drift of one column: the stability index over `bins` bins, and the distance.

    `measure` is the name of the distance. `skipped` is the reason why there are no figures.
    """

    column: str
    index: float = 0.0
    distance: float = 0.0
    measure: str = ""
    bins: int = 0
    skipped: str = ""

    @property
    def size(self) -> float:
        """The larger of the two figures. Each detects changes that the other misses."""
        return max(self.index, self.distance)


def drift(column: str, reference: pa.ChunkedArray, current: pa.ChunkedArray) -> Drift:
    """The drift of one column's values.

    It is skipped for a side without rows, for keys, and for types without order or categories.
    """
    before = _plain(reference)
    now = _plain(current)
    empty = [side for side, values in (("live", before), ("the rebuild", now)) if not len(values)]
    if empty:
        return Drift(column, skipped=f"{' and '.join(empty)} has no rows of these days")
    if before.null_count == len(before) or now.null_count == len(now):
        filled = [{None: of.null_count, "value": len(of) - of.null_count} for of in (before, now)]
        return _of_categories(column, *filled)
    kinds = [_kind(values.type) for values in (before, now)]
    if "" in kinds:
        other = now if kinds[0] else before
        return Drift(column, skipped=f"{other.type} has neither an order nor categories")
    if kinds[0] != kinds[1]:
        return Drift(column, skipped=f"{before.type} in live and {now.type} in the rebuild")
    if kinds[0] == "number":
        return _of_numbers(column, before, now)
    counted = [pc.value_counts(side) for side in (before, now)]
    if all(map(_is_key, counted, (before, now))):
        return Drift(
            column, skipped=f"a key: {len(counted[1]):,} different values in {len(now):,} rows"
        )
    return _of_categories(
        column, *[dict(zip(*map(pa.Array.to_pylist, of.flatten()), strict=True)) for of in counted]
    )


def _plain(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    values = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    return values.cast(values.type.value_type) if types.is_dictionary(values.type) else values


def _kind(of: pa.DataType) -> str:
    """`number` (times too), `category`, or "" for any other type."""
    is_number = types.is_integer(of) or types.is_floating(of) or types.is_decimal(of)
    if is_number or types.is_timestamp(of):
        return "number"
    is_text = types.is_string(of) or types.is_large_string(of) or types.is_string_view(of)
    return "category" if is_text or types.is_boolean(of) or types.is_date(of) else ""


def _is_key(counted: pa.StructArray, rows: pa.ChunkedArray) -> bool:
    return len(counted) > max(_MANY_VALUES, _KEY_SHARE * (len(rows) - rows.null_count))


def _of_categories(column: str, before: Mapping[Any, int], now: Mapping[Any, int]) -> Drift:
    names = dict.fromkeys([*before, *now])
    counts = [np.array([side.get(name, 0) for name in names], float) for side in (before, now)]
    return Drift(
        column, stability_index(*counts), total_variation(*counts), _TOTAL_VARIATION, len(names)
    )


def _of_numbers(column: str, before: pa.ChunkedArray, now: pa.ChunkedArray) -> Drift:
    values = [_numbers(side) for side in (before, now)]
    reference = np.sort(values[0][~np.isnan(values[0])])
    edges = np.unique(reference)
    is_discrete = len(edges) <= _BINS
    if not is_discrete:
        # Deciles that are values themselves: an infinite value has no middle with another value.
        ranks = np.ceil(np.arange(1, _BINS) * len(reference) / _BINS).astype(int) - 1
        edges = np.unique(reference[ranks])
    counts = []
    for numbers, side in zip(values, (before, now), strict=True):
        present = numbers[~np.isnan(numbers)]
        bins = np.searchsorted(edges, present)
        if is_discrete:
            bins[~np.isin(present, edges)] = len(edges)
        in_bins = np.bincount(bins, minlength=len(edges) + 1)
        others = [side.null_count, len(numbers) - len(present)]
        counts.append(np.concatenate([in_bins, others]).astype(float))
    return Drift(
        column,
        stability_index(*counts),
        kolmogorov_smirnov(*values),
        _KOLMOGOROV_SMIRNOV,
        int(np.count_nonzero(counts[0] + counts[1])),
    )


def _numbers(values: pa.ChunkedArray) -> Floats:
    """The values that are not null."""
    present = values.drop_null()
    if types.is_timestamp(present.type):
        present = present.cast(pa.timestamp("us", present.type.tz), safe=False).cast(pa.int64())
    numbers: Floats = present.cast(pa.float64(), safe=False).to_numpy()
    return numbers


def stability_index(reference: Floats, current: Floats) -> float:
    """The population stability index of the row counts of the same bins. Both sides have rows."""
    used = (reference > 0) | (current > 0)
    p = np.maximum(reference[used], _HALF_A_ROW) / reference.sum()
    q = np.maximum(current[used], _HALF_A_ROW) / current.sum()
    return float(np.sum((q - p) * np.log(q / p)))


def kolmogorov_smirnov(reference: Floats, current: Floats) -> float:
    """sup |F - G| of the values of two samples: 0 if both are empty, 1 if one is."""
    if not len(reference) or not len(current):
        return float(len(reference) != len(current))
    at = np.concatenate([reference, current])
    shares = [
        np.searchsorted(np.sort(values), at, side="right") / len(values)
        for values in (reference, current)
    ]
    return float(np.max(np.abs(shares[0] - shares[1])))


def total_variation(reference: Floats, current: Floats) -> float:
    """Half the sum of the differences of shares, from the row counts of the same categories."""
    return float(np.abs(reference / reference.sum() - current / current.sum()).sum() / 2)


def drift_beyond_chance(found: Drift, before: pa.ChunkedArray, now: pa.ChunkedArray) -> float:
    """The drift in excess of the chance drift between two samples of these sizes.

    It is the larger of the two figures.
    """
    rows = len(before), len(now)
    if found.measure == _KOLMOGOROV_SMIRNOV:
        chance = chance_of_kolmogorov_smirnov(rows[0] - before.null_count, rows[1] - now.null_count)
    else:
        chance = chance_of_total_variation(found.bins, *rows)
    return max(found.index - chance_of_index(found.bins, *rows), found.distance - chance)


def chance_of_index(bins: int, before: int, now: int) -> float:
    """The population stability index of two samples of these sizes by chance.

    It is distributed as (1/n + 1/m) times chi-square with `bins` - 1 degrees of freedom (Yurdakul
    and Naranjo, Statistical properties of the population stability index, Journal of Risk Model
    Validation 14(4), 2020). The quantile of chi-square is by the cube of Wilson and Hilferty (PNAS
    17, 1931).
    """
    freedom = max(bins - 1, 1)
    chi_square = freedom * (1 - 2 / (9 * freedom) + _Z * sqrt(2 / (9 * freedom))) ** 3
    return (1 / before + 1 / now) * chi_square


def chance_of_kolmogorov_smirnov(before: int, now: int) -> float:
    """The Kolmogorov-Smirnov statistic of two samples of these sizes by chance.

    It is the limit for many values, which is too high for few or equal ones (Smirnov, Annals of
    Mathematical Statistics 19, 1948; the first term of its series).
    """
    return sqrt(-log(_TAIL / 2) / 2 * (1 / before + 1 / now))


def chance_of_total_variation(bins: int, before: int, now: int) -> float:
    """An upper bound of the total variation of two samples by chance.

    By Cauchy and Schwarz it is half the root of the sum of squares, which the stability index
    approximates if both are samples of one population.
    """
    return sqrt(chance_of_index(bins, before, now)) / 2


def chance_of_share(share: float, before: int, now: int) -> float:
    """The difference of the shares of two samples by chance. `share` is for both together.

    By the two-proportion test (Agresti, Categorical Data Analysis, 3rd edition, 3.1).
    """
    return _Z * sqrt(share * (1 - share) * (1 / before + 1 / now))
