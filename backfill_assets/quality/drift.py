"""How far figures of two small samples of one population are apart by chance: what a single day is
allowed beyond a threshold.

The quantiles are those of 999 samples in 1,000: a month of a table of twenty columns is 600 of
them.

Figures of how far two samples are apart. No Spark.

The population stability index is the sum over bins of (q - p) ln(q / p), p and q being the shares
of the reference's and of the current rows in a bin (Siddiqi, Credit Risk Scorecards, 2006). It is 0
for equal shares, symmetric in them, and has no upper bound. A bin that is empty on one side counts
there as half a row, as in weights of evidence (SAS, HPBIN, WOEADJUST=0.5): of few rows, a fixed
small share would make one row that is gone look like another population. A bin that is empty on
both counts nothing.

The distances are between 0 and 1: of numbers the two-sample Kolmogorov-Smirnov statistic, sup |F(x)
- G(x)|, ties counted together (Conover, Practical Nonparametric Statistics, 3rd edition, 6.3); of
values without an order the total variation, half the sum of |p - q| over the values (Levin and
Peres, Markov Chains and Mixing Times, 4.1).

Drift: how far the values of a column have moved from a reference, in two figures (`distances`). No
Spark.

The population stability index has as bins

- of numbers and times, the ten between the deciles of the reference, the outer ones open. There are
  fewer where deciles coincide. If the reference has at most ten different values, each of them is a
  bin, and there is one for all others;
- of text, booleans and days, each value;
- in either case one for nulls, and one for NaN.

The distance of numbers and times is the Kolmogorov-Smirnov statistic of the values that are not
null; that of values without an order the total variation, null being a value. NaN is the largest
number, as in Spark. Where a side has nothing but nulls, the two values of any type are null and not
null.

Whole numbers beyond 2^53 are compared as the nearest floating-point numbers.
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


# More different values than these, on more than half of the rows: a key, whose values are all new
# after any change.
_MANY_VALUES = 50


_KEY_SHARE = 0.5


_HALF_A_ROW = 0.5


KOLMOGOROV_SMIRNOV = "Kolmogorov-Smirnov"


_TOTAL_VARIATION = "total variation"


Floats = npt.NDArray[np.float64]


Counts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Drift:
    """Drift of one column: the stability index, over so many `bins`, the distance and its name; or
    why it was `skipped`.
    """

    column: str
    index: float = 0.0
    distance: float = 0.0
    measure: str = ""
    bins: int = 0
    skipped: str = ""

    @property
    def size(self) -> float:
        """The larger of the two figures: each sees what the other does not."""
        return max(self.index, self.distance)


def drift(column: str, reference: pa.ChunkedArray, current: pa.ChunkedArray) -> Drift:
    """The drift of one column's values. Skipped: a side without rows, other types than those above,
    keys.
    """
    before = _plain(reference)
    now = _plain(current)
    empty = [side for side, values in (("live", before), ("the rebuild", now)) if not len(values)]
    if empty:
        return Drift(column, skipped=f"{' and '.join(empty)} has no rows of these days")
    if before.null_count == len(before) or now.null_count == len(now):
        return _of_nulls(column, before, now)
    kinds = [_kind(values.type) for values in (before, now)]
    if "" in kinds:
        return Drift(
            column,
            skipped=f"{(before if not kinds[0] else now).type} has neither an order nor categories",
        )
    if kinds[0] != kinds[1]:
        return Drift(column, skipped=f"{before.type} in live and {now.type} in the rebuild")
    return (
        _of_numbers(column, before, now)
        if kinds[0] == "number"
        else _of_categories(column, before, now)
    )


def _of_numbers(column: str, before: pa.ChunkedArray, now: pa.ChunkedArray) -> Drift:
    values = [_numbers(side) for side in (before, now)]
    bins = _bins(values[0][~np.isnan(values[0])])
    counts = [
        bins.counts(each, side.null_count) for each, side in zip(values, (before, now), strict=True)
    ]
    return Drift(
        column,
        stability_index(*counts),
        kolmogorov_smirnov(*values),
        KOLMOGOROV_SMIRNOV,
        int(np.count_nonzero(counts[0] + counts[1])),
    )


@dataclass(frozen=True)
class _Bins:
    """`edges`, in order: the upper ends of bins, or, if they are `values`, bins themselves."""

    edges: Floats
    values: bool

    def counts(self, numbers: Floats, nulls: int) -> Counts:
        """The rows in each bin, then those above all edges (or at none of the values), then nulls
        and NaN.
        """
        known = numbers[~np.isnan(numbers)]
        bins = np.searchsorted(self.edges, known, side="left")
        if self.values and len(self.edges):
            bins[self.edges[np.minimum(bins, len(self.edges) - 1)] != known] = len(self.edges)
        counted = np.bincount(bins, minlength=len(self.edges) + 1)
        return np.concatenate([counted, [nulls, len(numbers) - len(known)]]).astype(float)


def _bins(reference: Floats) -> _Bins:
    different = np.unique(reference)
    if len(different) <= _BINS:
        return _Bins(different, values=True)
    # Deciles that are values themselves: between an infinite value and another one there is no
    # middle.
    ranks = np.ceil(np.arange(1, _BINS) * len(reference) / _BINS).astype(int) - 1
    return _Bins(np.unique(np.sort(reference)[ranks]), values=False)


def _of_categories(column: str, before: pa.ChunkedArray, now: pa.ChunkedArray) -> Drift:
    counted = [pc.value_counts(side) for side in (before, now)]
    if all(map(_is_key, counted, (before, now))):
        return Drift(
            column, skipped=f"a key: {len(counted[1]):,} different values in {len(now):,} rows"
        )
    sides = [
        dict(zip(*(part.to_pylist() for part in each.flatten()), strict=True)) for each in counted
    ]
    return _by_category(column, *sides)


def _is_key(counted: pa.StructArray, rows: pa.ChunkedArray) -> bool:
    return len(counted) > max(_MANY_VALUES, _KEY_SHARE * (len(rows) - rows.null_count))


def _of_nulls(column: str, before: pa.ChunkedArray, now: pa.ChunkedArray) -> Drift:
    """Where a side has nothing but nulls, whatever its type, a row is null or it is not."""
    sides = [
        {None: side.null_count, "value": len(side) - side.null_count} for side in (before, now)
    ]
    return _by_category(column, *sides)


def _by_category(column: str, before: Mapping[Any, int], now: Mapping[Any, int]) -> Drift:
    names = list(dict.fromkeys([*before, *now]))
    counts = [np.array([side.get(name, 0) for name in names], float) for side in (before, now)]
    return Drift(
        column, stability_index(*counts), total_variation(*counts), _TOTAL_VARIATION, len(names)
    )


def _kind(of: pa.DataType) -> str:
    """`number` (times too), `category`, or "" for what is neither."""
    if (
        types.is_integer(of)
        or types.is_floating(of)
        or types.is_decimal(of)
        or types.is_timestamp(of)
    ):
        return "number"
    is_text = types.is_string(of) or types.is_large_string(of) or types.is_string_view(of)
    return "category" if is_text or types.is_boolean(of) or types.is_date(of) else ""


def _plain(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    values = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    return values.cast(values.type.value_type) if types.is_dictionary(values.type) else values


def _numbers(values: pa.ChunkedArray) -> Floats:
    """The values that are not null."""
    present = values.drop_null()
    if types.is_timestamp(present.type):
        present = present.cast(pa.timestamp("us", present.type.tz), safe=False).cast(pa.int64())
    numbers: Floats = present.cast(pa.float64(), safe=False).to_numpy()
    return numbers


def stability_index(reference: Counts, current: Counts) -> float:
    """The population stability index of the row counts of the same bins; both sides have rows."""
    reference = np.asarray(reference, float)
    current = np.asarray(current, float)
    used = (reference > 0) | (current > 0)
    p = np.maximum(reference[used], _HALF_A_ROW) / reference.sum()
    q = np.maximum(current[used], _HALF_A_ROW) / current.sum()
    return float(np.sum((q - p) * np.log(q / p)))


def kolmogorov_smirnov(reference: Floats, current: Floats) -> float:
    """sup |F - G| of the values of two samples: 0 if both are empty, 1 if one is."""
    if not len(reference) or not len(current):
        return float(len(reference) != len(current))
    one = np.sort(reference)
    other = np.sort(current)
    at = np.concatenate([one, other])
    shares = [np.searchsorted(values, at, side="right") / len(values) for values in (one, other)]
    return float(np.max(np.abs(shares[0] - shares[1])))


def total_variation(reference: Counts, current: Counts) -> float:
    """Half the sum of the differences of shares, of the row counts of the same categories."""
    p, q = (np.asarray(counts, float) / np.sum(counts) for counts in (reference, current))
    return float(np.abs(p - q).sum() / 2)


def chance_of_index(bins: int, before: int, now: int) -> float:
    """The population stability index that two samples of so many rows each have by chance.

    It is distributed as (1/n + 1/m) times chi-square with `bins` - 1 degrees of freedom (Yurdakul
    and Naranjo, Statistical properties of the population stability index, Journal of Risk Model
    Validation 14(4), 2020); the quantile of chi-square by the cube of Wilson and Hilferty (PNAS 17,
    1931).
    """
    freedom = max(bins - 1, 1)
    chi_square = freedom * (1 - 2 / (9 * freedom) + _Z * sqrt(2 / (9 * freedom))) ** 3
    return (1 / before + 1 / now) * chi_square


def chance_of_kolmogorov_smirnov(before: int, now: int) -> float:
    """The Kolmogorov-Smirnov statistic that two samples of so many values each have by chance: its
    limit for many values, which is above it for few or equal ones (Smirnov, Annals of Mathematical
    Statistics 19, 1948; the first term of its series).
    """
    return sqrt(-log(_TAIL / 2) / 2 * (1 / before + 1 / now))


def chance_of_total_variation(bins: int, before: int, now: int) -> float:
    """The total variation of two samples by chance is below this: by Cauchy and Schwarz, half the
    root of the sum of squares that the stability index comes to where both are samples of one
    population.
    """
    return sqrt(chance_of_index(bins, before, now)) / 2


def chance_of_share(share: float, before: int, now: int) -> float:
    """By how much the shares of two samples are apart by chance, if `share` is that of both
    together: the two-proportion test (Agresti, Categorical Data Analysis, 3rd edition, 3.1).
    """
    return _Z * sqrt(share * (1 - share) * (1 / before + 1 / now))
