"""How much numbers changed: the distribution of after - before, of one day or of several days together."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.diff.diff import NumberChanges

# So many differences of a day are remembered when the days of a table are put together.
POINTS_OF_DAY = 1001
# Integers below this have exact differences in 64 bits.
EXACT = 2.0**62
Floats = npt.NDArray[np.float64]


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def number_changes(before: pa.Array, after: pa.Array) -> tuple[NumberChanges, Floats]:
    """The distribution, and the differences in order."""
    numbers = [each.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for each in (before, after)]
    finite = np.isfinite(numbers[0]) & np.isfinite(numbers[1])
    first, second = (each[finite] for each in numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        differences = second - first
        if pa.types.is_integer(before.type) and pa.types.is_integer(after.type):
            whole = [pc.fill_null(each, 0).to_numpy(zero_copy_only=False).astype(np.int64)[finite] for each in (before, after)]
            differences = np.where(np.abs(differences) < EXACT, whole[1] - whole[0], differences)
        differences = np.sort(np.nan_to_num(differences))
        sums = [float(np.nan_to_num(each.sum())) for each in (first, second)]
        mean = float(np.nan_to_num(differences.mean())) if len(differences) else 0.0
    other = int((~finite).sum())
    if not len(differences):
        return NumberChanges(other=other), differences
    up, down = int((differences > 0).sum()), int((differences < 0).sum())
    median = float(np.nan_to_num(np.median(differences)))
    # Numbers that differ by less than a float shows are neither.
    other += len(differences) - up - down
    return NumberChanges(up, down, other, float(differences[0]), median, mean, float(differences[-1]), *sums), differences


def points_of(differences: Floats) -> tuple[Floats, float]:
    """Differences in order, or as many of them at equal distances as are remembered; and how many each stands for."""
    if len(differences) <= POINTS_OF_DAY:
        return differences, 1.0
    at = np.linspace(0, len(differences) - 1, POINTS_OF_DAY).round().astype(np.int64)
    return differences[at], len(differences) / POINTS_OF_DAY


def together(one: NumberChanges, other: NumberChanges, points: Sequence[Floats], weights: Sequence[Floats]) -> NumberChanges:
    if not one.up + one.down or not other.up + other.down:
        some = one if one.up + one.down else other
        return NumberChanges(**vars(some) | {"other": one.other + other.other})
    counts = [one.up + one.down, other.up + other.down]
    mean = (one.mean * counts[0] + other.mean * counts[1]) / sum(counts)
    return NumberChanges(
        one.up + other.up, one.down + other.down, one.other + other.other,
        min(one.least, other.least), _weighted_median(np.concatenate(points), np.concatenate(weights)), mean,
        max(one.most, other.most), one.sum_before + other.sum_before, one.sum_after + other.sum_after,
    )  # fmt: skip


def _weighted_median(points: Floats, weights: Floats) -> float:
    order = np.argsort(points, kind="stable")
    points, reached = points[order], np.cumsum(weights[order])
    middle = reached[-1] / 2
    at = int(np.searchsorted(reached, middle))
    halfway = math.isclose(reached[at], middle) and at + 1 < len(points)
    return float((points[at] + points[at + 1]) / 2 if halfway else points[at])
