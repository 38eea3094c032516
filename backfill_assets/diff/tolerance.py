"""The greatest difference of two doubles that count as the same.

A column's tolerance is a size (0.01) or a share of the larger number (1 %).
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from backfill_assets.diff.rows import as_doubles
from backfill_assets.errors import NOTHING_CHANGED, UsageError, did_you_mean

_FORM = re.compile(r"(?P<column>.+?)\s*=(?P<size>[^=%]+)(?P<percent>%?)")


@dataclass(frozen=True)
class Tolerance:
    """The greatest difference of two doubles that count as the same.

    It is relative to the larger of the two magnitudes, or absolute.
    """

    size: float
    is_relative: bool = False

    def __str__(self) -> str:
        return f"{self.size * 100:.15g} %" if self.is_relative else f"{self.size:.15g}"

    def allows(self, before: pa.Array, after: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether each pair is within the tolerance. Null, NaN and infinity never are."""
        old, new = map(as_doubles, (before, after))
        is_finite = np.isfinite(old) & np.isfinite(new)
        with np.errstate(over="ignore", invalid="ignore"):
            scale = np.maximum(np.abs(old), np.abs(new)) if self.is_relative else 1.0
            within: npt.NDArray[np.bool_] = np.abs(new - old) <= self.size * scale
        return is_finite & within


# By column. A typed name may be a pattern with *.
Tolerances = Mapping[str, Tolerance]
NO_TOLERANCES: Tolerances = {}


def parse_tolerances(typed: Iterable[str]) -> Tolerances:
    """Read `COLUMN=0.01` and `COLUMN=1%`. Raises UsageError for other texts, or a repeated name."""
    tolerances: dict[str, Tolerance] = {}
    for name, tolerance in map(_parse, typed):
        if name in tolerances:
            raise UsageError(
                f"--tolerance names {name} twice.",
                unchanged=NOTHING_CHANGED,
                next_step="Leave one out.",
            )
        tolerances[name] = tolerance
    return tolerances


def _parse(text: str) -> tuple[str, Tolerance]:
    match = _FORM.fullmatch(text.strip())
    try:
        size = float(match["size"]) if match else math.nan
    except ValueError:
        size = math.nan
    if not match or not 0 <= size < math.inf:
        raise UsageError(
            f"--tolerance {text} is not a tolerance.",
            unchanged=NOTHING_CHANGED,
            next_step="Type it as price=0.01, or as price=1% of the larger number.",
        )
    is_relative = bool(match["percent"])
    return match["column"].strip(), Tolerance(size / 100 if is_relative else size, is_relative)


def tolerances_of(columns: Iterable[str], typed: Tolerances) -> Tolerances:
    """The tolerance of each column that has one. The first name or pattern that fits counts."""
    fitting = {
        column: [tolerance for name, tolerance in typed.items() if _fits(column, name)]
        for column in columns
    }
    return {column: tolerances[0] for column, tolerances in fitting.items() if tolerances}


def _fits(column: str, name: str) -> bool:
    return fnmatchcase(column.casefold(), name.casefold())


def refuse_unknown_columns(tolerances: Tolerances, doubles: Collection[str]) -> None:
    """Raise UsageError for a tolerance that fits no column."""
    for name in tolerances:
        if not any(_fits(column, name) for column in doubles):
            raise UsageError(
                f"--tolerance names {name}, which is not a column of doubles outside the key."
                f"{did_you_mean(name, doubles)}",
                unchanged=NOTHING_CHANGED,
                next_step=(
                    f"These columns may have one: {', '.join(sorted(doubles))}."
                    if doubles
                    else "No compared table has such a column: leave --tolerance out."
                ),
            )
