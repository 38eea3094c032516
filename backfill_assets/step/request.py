"""What a step is asked for, and what it returns.

A table that reads itself stops early. A correction of the past makes all later days due, and they
are computed in one pass. At the first day that comes out as before, if nothing else has changed,
the days after it are neither written nor recorded, and nothing downstream is rebuilt.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import get_args

from backfill_assets.calendar import Partition, ranges
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import Build, WriteMode, refuse_unstorable_text
from backfill_assets.step.inputs import own_days
from backfill_assets.tables.declaration import Table


@dataclass(frozen=True)
class EarlyStop:
    """`day` was built and came out as it was: `left` are the days after it, computed from it, that
    were not rebuilt.
    """

    table: str
    day: date
    left: Sequence[date]

    def __str__(self) -> str:
        left = f"{len(self.left)} day(s) computed from it, {ranges(self.left)}"
        return (
            f"{self.table}: stopped early. {self.day} came out as it was, so that the {left}, were"
            " not rebuilt."
        )


def early_stops(table: Table, built: Iterable[Build], left: Iterable[Build]) -> list[EarlyStop]:
    """The early stops of a rebuild that has `built` some days of `table`, and `left` the builds of
    others, which are up to date. Of these, none is a stop's that was built later, by others.
    """
    stop_of = {build.day: build for build in built}
    left_after: dict[date, list[date]] = {}
    for build in sorted(left, key=lambda build: build.day):
        own = [each for each in own_days(table, build.day) if each in stop_of]
        if own and build.at < (stop := stop_of[own[-1]]).at:
            stop_of[build.day] = stop
            left_after.setdefault(stop.day, []).append(build.day)
    return [EarlyStop(table.name, stop, days) for stop, days in left_after.items()]


@dataclass(frozen=True)
class StepRequest:
    """Who asks for a build, how and why.

    `planned` are the partitions of the request's plan, `force_days` the days of the table that the
    plan forces; `force` applies to every day requested. `accept` names files, separated by commas,
    that may be empty or missing. With `skip_not_due`, days that wait for later ones are left out,
    not blocked. `git_commit` is that of the table's code.
    """

    run: str
    force: bool = False
    force_days: Collection[date] = frozenset()
    planned: Collection[Partition] = frozenset()
    write_mode: WriteMode = "overwrite"
    plan: str = ""
    who: str = ""
    reason: str = ""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""
    skip_not_due: bool = False
    git_commit: str = ""

    def __post_init__(self) -> None:
        for name, text in (("reason", self.reason), ("accept", self.accept)):
            refuse_unstorable_text(name, text)

    def forced(self, table: Table, days: Iterable[date], builds: Latest) -> set[date]:
        """The days to compute even if nothing has changed. A plan forces a day once, however often
        it is launched.
        """
        if self.force:
            return set(days)
        return set(self.force_days) - {
            day for name, day in builds.built_by(self.plan) if name == table.name
        }


def write_mode_problem(table: Table, write_mode: WriteMode) -> str:
    """Why days of `table` cannot be written so, in words; "" if they can."""
    if write_mode not in (modes := get_args(WriteMode)):
        return f"{write_mode} is not a write mode: there are {' and '.join(modes)}"
    if write_mode == "merge" and not table.key:
        return f"{table.name} has no key to merge on"
    if write_mode == "merge" and table.needs_itself():
        # A day is computed from what this run computed of the day before, or, if another run did,
        # from that and what it kept.
        return (
            f"{table.name} reads itself: with rows that merge keeps, its days would depend on how"
            " they are cut into runs"
        )
    return ""


@dataclass(frozen=True)
class StepResult:
    """What became of every requested day: a build, the build it already had, or why it is blocked."""

    table: Table
    built: Sequence[Build] = ()
    up_to_date: Sequence[Build] = ()
    blocked: Mapping[date, str] = field(default_factory=dict)

    def early_stops(self) -> list[EarlyStop]:
        """Where the rebuild of a table that reads itself has stopped early."""
        return early_stops(
            self.table, [build for build in self.built if build.succeeded], self.up_to_date
        )

    def failed(self) -> list[Build]:
        return [build for build in self.built if build.outcome in ("failed", "refused")]

    def accepted(self) -> list[Build]:
        """The builds whose rows are now in the table, and the audits of rows that passed, in order
        of days.
        """
        failed = self.failed()
        return sorted(
            [b for b in self.built if b not in failed] + list(self.up_to_date), key=lambda b: b.day
        )
