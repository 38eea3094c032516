"""What a rebuild will take, from what days took before: the recorded seconds of each table's days, and their spread."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import fmean, pstdev

from backfill_assets.lake.latest import Cell
from backfill_assets.lake.records import Build


@dataclass(frozen=True)
class Estimate:
    """Minutes of work, one after the other: the mean, and one standard deviation. `unknown`: tables without a record."""

    minutes: float
    spread: float
    unknown: tuple[str, ...] = ()

    def told(self) -> str:
        known = f"about {self.minutes:.1f} minutes, give or take {self.spread:.1f}"
        unknown = f"unknown for {', '.join(self.unknown)}: the canary will tell"
        return "; ".join([known] * bool(self.minutes) + [unknown] * bool(self.unknown))


def estimate(cells: Collection[Cell], builds: Iterable[Build]) -> Estimate:
    """The sum over the cells of what a day of their table took; days are taken to vary independently of each other."""
    seconds: dict[str, list[float]] = {}
    for build in builds:
        if build.stands and build.seconds > 0:
            seconds.setdefault(build.table, []).append(build.seconds)
    counts = Counter(table for table, _ in cells)
    known = [(n, seconds[table]) for table, n in counts.items() if table in seconds]
    mean = sum(n * fmean(took) for n, took in known)
    variance = sum(n * pstdev(took) ** 2 for n, took in known)
    return Estimate(mean / 60, math.sqrt(variance) / 60, tuple(table for table in counts if table not in seconds))
