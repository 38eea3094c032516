"""The progress of a rebuild, its outcome by table, and its estimated time.

Estimates use the seconds of each table's builds in the ledger, and their spread.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Literal

from backfill_assets.calendar import Partition
from backfill_assets.grouping import grouped
from backfill_assets.lake.ledger import Build, Ledger, UsualSeconds
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Remaining, WorkState

# The columns that are left out if every table has 0.
_LEFT_OUT = ("written", "same rows", "up to date", "failed", "blocked", "running", "not run")


@dataclass(frozen=True)
class TableOutcome:
    """The requested days of one table, each counted once.

    A day is changed, unchanged, up to date without being computed, failed, blocked, running or not
    run. `rows` counts the rows of changed, unchanged and up-to-date days. `checks` counts the
    checks of these days, and of days that failed in a build of the plan.
    """

    table: str
    days: int
    changed: int = 0
    unchanged: int = 0
    up_to_date: int = 0
    failed: int = 0
    blocked: int = 0
    not_run: int = 0
    rows: int = 0
    checks: int = 0
    checks_passed: int = 0
    seconds: float = 0.0
    running: int = 0

    @property
    def done(self) -> int:
        return self.changed + self.unchanged + self.up_to_date

    def values(self) -> dict[str, str]:
        """The values by column. A day is counted in one of the columns after `days`."""
        return {
            "table": self.table,
            "days": f"{self.days:,}",
            "written": f"{self.changed:,}",
            "same rows": f"{self.unchanged:,}",
            "up to date": f"{self.up_to_date:,}",
            "failed": f"{self.failed:,}",
            "blocked": f"{self.blocked:,}",
            "running": f"{self.running:,}",
            "not run": f"{self.not_run:,}",
            "rows": f"{self.rows:,}",
            "checks": f"{self.checks_passed:,} of {self.checks:,}",
            "seconds": f"{self.seconds:,.1f}",
        }


def lines(outcomes: Sequence[TableOutcome]) -> tuple[list[str], list[list[str]]]:
    """Return the columns, and a row per table. Columns with 0 for every table are left out."""
    tables = [outcome.values() for outcome in outcomes]
    columns = [
        name
        for name in TableOutcome("", 0).values()
        if name not in _LEFT_OUT or any(table[name] != "0" for table in tables)
    ]
    return columns, [[table[name] for name in columns] for table in tables]


def outcomes(
    ledger: Ledger,
    states: Mapping[Partition, WorkState],
    plan_id: str,
    at_work: Collection[Partition] = (),
) -> list[TableOutcome]:
    """Return the outcome of the plan for the requested partitions, table by table.

    `at_work` are the running partitions.
    """
    days = grouped(states)
    builds = grouped(((build.table, build.day), build) for build in ledger.builds(days))
    running = {p for p in at_work if states.get(p) == WorkState.PENDING}
    made = [
        _outcome(table, {day: states[table, day] for day in of}, builds, plan_id)
        for table, of in days.items()
    ]
    counts = [sum(table == each.table for table, _ in running) for each in made]
    return [
        replace(each, running=n, not_run=each.not_run - n)
        for each, n in zip(made, counts, strict=True)
    ]


def _outcome(
    table: str,
    states: Mapping[date, WorkState],
    builds: Mapping[Partition, list[Build]],
    plan_id: str,
) -> TableOutcome:
    by_day = {day: builds.get((table, day), []) for day in states}
    ours = {day: [b for b in of if plan_id and b.plan == plan_id] for day, of in by_day.items()}
    done = [day for day, state in states.items() if state == WorkState.DONE]
    accepted = [b for day in done for b in [b for b in by_day[day] if b.succeeded][-1:]]
    computed = [ours[day][-1].outcome for day in done if ours[day] and ours[day][-1].succeeded]
    failed = [day for day, state in states.items() if state == WorkState.FAILED]
    of_failed = [b for day in failed for b in [b for b in ours[day] if b.outcome == "failed"][-1:]]
    verdicts = [check["passed"] for build in accepted + of_failed for check in build.checks]
    return TableOutcome(
        table,
        len(states),
        changed=len(computed) - computed.count("unchanged"),
        unchanged=computed.count("unchanged"),
        up_to_date=len(done) - len(computed),
        failed=len(failed),
        blocked=sum(state == WorkState.BLOCKED for state in states.values()),
        not_run=sum(state == WorkState.PENDING for state in states.values()),
        rows=sum(b.rows for b in accepted),
        checks=len(verdicts),
        checks_passed=sum(verdicts),
        seconds=round(sum(b.seconds for of in ours.values() for b in of), 1),
    )


class Ending(StrEnum):
    """The end of a command's work on a plan."""

    DONE = "done"
    PARTIAL = "partial"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    REFUSED = "refused"


@dataclass(frozen=True)
class Stop:
    """The reason why nothing more is launched."""

    kind: Literal["budget", "canary", "cancelled", "refused"]
    why: str


@dataclass(frozen=True)
class TableProgress:
    """The number of days of one table in each state.

    `running` days are being computed. `saved` days are up to date without computing.
    """

    table: str
    days: int
    done: int
    failed: int
    blocked: int
    running: int
    pending: int
    saved: int

    def counts(self) -> dict[str, int]:
        """The counts by name, as recorded at a plan's end."""
        return {name: value for name, value in vars(self).items() if name != "table"}


@dataclass(frozen=True)
class Progress:
    """The progress at one moment.

    `running` has the run or backfill of each chunk that runs, by the chunk's number, from 1.
    `over`: no command is carrying the plan out. `waiting` says why the command waits for the
    server. `recorded` is the recorded ending of an ended plan.
    """

    plan: Plan
    remaining: Remaining
    running: Mapping[int, str]
    chunks_over: frozenset[int]
    stopped: Stop | None
    started: datetime
    at: datetime
    over: bool
    waiting: str = ""
    recorded: Ending | None = None

    def tables(self) -> Sequence[TableProgress]:
        by_table: dict[str, list[Partition]] = {name: [] for name in self.plan.reasons}
        for partition in self.remaining.states:
            by_table[partition[0]].append(partition)
        return [self._table(name, partitions) for name, partitions in by_table.items()]

    def _table(self, name: str, partitions: Collection[Partition]) -> TableProgress:
        states = self.remaining.states
        count = self.remaining.count(partitions)
        at_work = self.remaining.at_work
        running = sum(
            1
            for partition in partitions
            if partition in at_work and states[partition] == WorkState.PENDING
        )
        return TableProgress(
            name,
            days=len(partitions),
            done=count[WorkState.DONE],
            failed=count[WorkState.FAILED],
            blocked=count[WorkState.BLOCKED],
            running=running,
            pending=count[WorkState.PENDING] - running,
            saved=sum(1 for partition in partitions if partition in self.remaining.saved),
        )

    @property
    def ending(self) -> Ending:
        """The ending: the recorded one, or else the one that would be recorded now."""
        if self.recorded:
            return self.recorded
        if all(state == WorkState.DONE for state in self.remaining.states.values()):
            return Ending.DONE
        if self.stopped is None:
            return Ending.PARTIAL
        return {"cancelled": Ending.CANCELLED, "refused": Ending.REFUSED}.get(
            self.stopped.kind, Ending.STOPPED
        )

    def line(self) -> str:
        """The progress in one line. The line stays the same until something changes."""
        counts = []
        for table in self.tables():
            failed = [f"{table.failed} failed"] if table.failed else []
            blocked = [f"{table.blocked} blocked"] if table.blocked else []
            unbuilt = ", ".join(failed + blocked)
            counts.append(
                f"{table.table} {table.done}/{table.days}" + (f" ({unbuilt})" if unbuilt else "")
            )
        return f"{self.chunks_line()}: {', '.join(counts)}"

    def chunks_line(self) -> str:
        over = f"{len(self.chunks_over)} of {len(self.plan.chunks)} chunk(s) done"
        running = ", ".join(f"chunk {number}" for number in sorted(self.running))
        return "".join(
            [
                over,
                f", running: {running}" if running else "",
                f"; stopping: {self.stopped.why}" if self.stopped and not self.over else "",
                f"; {self.waiting}" if self.waiting else "",
            ]
        )


# The weight of recorded times, in seconds of observed progress: days come in bursts, a run at a
# time.
PRIOR_S = 60.0


@dataclass(frozen=True)
class Estimate:
    """Minutes for one build after another: the mean and one standard deviation."""

    minutes: float
    spread: float
    unknown: tuple[str, ...] = ()

    def text(self) -> str:
        spread = f", give or take {self.spread:.1f}" if round(self.spread, 1) else ""
        known = f"about {self.minutes:.1f} minutes{spread}"
        unknown = f"unknown for {', '.join(self.unknown)}, which have no recorded build"
        return "; ".join([known] * bool(self.minutes) + [unknown] * bool(self.unknown))

    def cost(self, per_hour: float | None) -> float | None:
        return round(self.minutes / 60 * per_hour, 2) if per_hour else None


# A chunk also waits for the daemon's ticks (every 2 s) and for its runs to start (10 s each; with
# windows there are two or three). Three days of all tables took 43 s and 36 s; 42 s were expected.
CHUNK_S = 30.0


def estimate(
    partitions: Collection[Partition], usual: Mapping[str, UsualSeconds], chunks: int = 0
) -> Estimate:
    """Add up the usual time of each partition's table, and the time for launching the chunks.

    `usual` has the seconds of a build of each table. Chunks are launched one after the other. Days
    are assumed to vary independently of each other.
    """
    counts = Counter(table for table, _ in partitions)
    known = [(n, usual[table]) for table, n in counts.items() if table in usual]
    mean = sum(n * took.mean for n, took in known)
    variance = sum(n * took.deviation**2 for n, took in known)
    mean += CHUNK_S * chunks if known else 0
    return Estimate(
        mean / 60,
        math.sqrt(variance) / 60,
        tuple(table for table in counts if table not in usual),
    )


def expected_end(
    first: Progress, now: Progress, usual: Mapping[str, UsualSeconds]
) -> datetime | None:
    """Estimate when the pending partitions will be built.

    The estimate starts with the `usual` seconds and moves to the pace since `first`. Returns None
    if a table has no recorded build and no partition was built since `first`.
    """
    weight = {table: usual[table].mean if table in usual else 1.0 for table in now.plan.code}
    built_since = set(now.remaining.of(WorkState.DONE)) - set(first.remaining.of(WorkState.DONE))
    built = sum(weight[table] for table, _ in built_since)
    pending = sum(weight[table] for table, _ in now.remaining.of(WorkState.PENDING))
    known = PRIOR_S if all(table in usual for table in now.plan.code) else 0.0
    if not built + known:
        return None
    pace = ((now.at - first.at).total_seconds() + known) / (built + known)
    return now.at + timedelta(seconds=pending * pace)
