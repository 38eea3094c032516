"""How long a rebuild will take, by the ledger: the seconds that builds of each table took, and their spread."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean, pstdev

from backfill_assets.calendar import Partition
from backfill_assets.lake.record import Build
from backfill_assets.plan.progress import Progress
from backfill_assets.plan.remaining import WorkState

# What was recorded counts as much as so many seconds of what is seen: days come in bursts, a run at a time.
PRIOR_S = 60.0


@dataclass(frozen=True)
class Estimate:
    """Minutes, one build after the other: the mean, and one standard deviation. `unknown`: tables without any build."""

    minutes: float
    spread: float
    unknown: tuple[str, ...] = ()

    def text(self) -> str:
        spread = f", give or take {self.spread:.1f}" if round(self.spread, 1) else ""
        known = f"about {self.minutes:.1f} minutes{spread}"
        unknown = f"unknown for {', '.join(self.unknown)}, of which no build is recorded"
        return "; ".join([known] * bool(self.minutes) + [unknown] * bool(self.unknown))

    def cost(self, per_hour: float | None) -> float | None:
        return round(self.minutes / 60 * per_hour, 2) if per_hour else None


# Besides its steps, a chunk waits for the daemon's ticks (every 2 s) and for its runs to start (10 s each; windows make it two
# or three). Three days of all tables took 43 s and 36 s, where 42 s were expected.
CHUNK_S = 30.0


def estimate(partitions: Collection[Partition], builds: Iterable[Build], chunks: int = 0) -> Estimate:
    """The sum over the partitions of what a day of their table took, and what launching takes, one chunk after the other.

    Days are taken to vary independently of each other.
    """
    seconds = seconds_by_table(builds)
    counts = Counter(table for table, _ in partitions)
    known = [(n, seconds[table]) for table, n in counts.items() if table in seconds]
    mean = sum(n * fmean(took) for n, took in known)
    variance = sum(n * pstdev(took) ** 2 for n, took in known)
    mean += CHUNK_S * chunks if known else 0
    return Estimate(mean / 60, math.sqrt(variance) / 60, tuple(table for table in counts if table not in seconds))


def seconds_by_table(builds: Iterable[Build]) -> dict[str, list[float]]:
    """The seconds that each accepted build of each table took."""
    seconds: dict[str, list[float]] = {}
    for build in builds:
        if build.succeeded and build.seconds > 0:
            seconds.setdefault(build.table, []).append(build.seconds)
    return seconds


def expected_end(first: Progress, now: Progress, seconds: Mapping[str, list[float]]) -> datetime | None:
    """When the pending partitions will be built: at first by the recorded `seconds`, more and more by the pace since `first`.

    None as long as nothing is known: no build of one of the tables is recorded, and none was made.
    """
    weight = {table: fmean(seconds[table]) if table in seconds else 1.0 for table in now.plan.code}
    built_since = set(now.remaining.of(WorkState.DONE)) - set(first.remaining.of(WorkState.DONE))
    built = sum(weight[table] for table, _ in built_since)
    pending = sum(weight[table] for table, _ in now.remaining.of(WorkState.PENDING))
    known = PRIOR_S if all(table in seconds for table in now.plan.code) else 0.0
    if not built + known:
        return None
    pace = ((now.at - first.at).total_seconds() + known) / (built + known)
    return now.at + timedelta(seconds=pending * pace)
