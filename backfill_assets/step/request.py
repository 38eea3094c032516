"""The request for a step, and its result.

A table that reads itself stops early. A correction of the past makes all later days due, and they
are computed in one pass. At the first day with unchanged rows, if nothing else has changed, the
days after it are neither written nor recorded, and nothing downstream is rebuilt.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import get_args

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import counted
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import Build, WriteMode, refuse_unstorable_text
from backfill_assets.step.inputs import own_days
from backfill_assets.tables.declaration import Table


@dataclass(frozen=True)
class EarlyStop:
    """A `day` whose rows did not change, and the days after it that were not rebuilt (`left`)."""

    table: str
    day: date
    left: Sequence[date]

    def __str__(self) -> str:
        days = counted(len(self.left), "day")
        return (
            f"{self.table}: stopped early. The rows of {self.day} did not change. {days} computed"
            f" from it, {ranges(self.left)}, were not rebuilt."
        )


def early_stops(table: Table, built: Iterable[Build], left: Iterable[Build]) -> list[EarlyStop]:
    """The early stops of a rebuild of `table`.

    `built` has its builds. The builds in `left` are up to date and were not rebuilt. A build in
    `left` that is newer than the stop was made by another run and does not count.
    """
    stop_of = {build.day: build for build in built}
    left_after: dict[date, list[date]] = {}
    for build in sorted(left, key=lambda build: build.day):
        own = [day for day in own_days(table, build.day) if day in stop_of]
        if own and build.at < (stop := stop_of[own[-1]]).at:
            stop_of[build.day] = stop
            left_after.setdefault(stop.day, []).append(build.day)
    return [EarlyStop(table.name, stop, days) for stop, days in left_after.items()]


@dataclass(frozen=True)
class StepRequest:
    """Who requests a build, how and why.

    `planned` are the partitions of the request's plan, and `force_days` the days of the table that
    the plan forces. `force` applies to every requested day. `accept` names files that may be empty
    or missing, and columns and rules, separated by commas. With `replace_foreign_rows`, days with
    rows of another program are built too. With `skip_not_due`, days that wait for later days are
    left out instead of blocked. `git_commit` is the commit of the table's code.
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
    replace_foreign_rows: bool = False
    skip_not_due: bool = False
    git_commit: str = ""

    def __post_init__(self) -> None:
        for name, text in (("reason", self.reason), ("accept", self.accept)):
            refuse_unstorable_text(name, text)

    def forced(self, table: Table, days: Iterable[date], builds: Latest) -> set[date]:
        """The days to compute even if nothing has changed.

        A plan forces a day once, even if it is launched several times.
        """
        if self.force:
            return set(days)
        return set(self.force_days) - {
            day for name, day in builds.built_by(self.plan) if name == table.name
        }


def write_mode_problem(table: Table, write_mode: WriteMode) -> str:
    """The reason why days of `table` cannot be written in this mode; "" if they can."""
    if write_mode not in (modes := get_args(WriteMode)):
        return f"{write_mode} is not a write mode: there are {' and '.join(modes)}"
    if write_mode == "merge" and not table.key:
        return f"{table.name} has no key to merge on"
    if write_mode == "merge" and table.needs_itself():
        return (
            f"{table.name} reads itself: with rows that merge keeps, its days would depend on how"
            " they are cut into runs"
        )
    return ""


@dataclass(frozen=True)
class StepResult:
    """The result of a step: each day is built, up to date, or blocked with a reason."""

    table: Table
    built: Sequence[Build] = ()
    up_to_date: Sequence[Build] = ()
    blocked: Mapping[date, str] = field(default_factory=dict)

    def early_stops(self) -> list[EarlyStop]:
        """The places at which the rebuild of a table that reads itself stopped early."""
        return early_stops(
            self.table, [build for build in self.built if build.succeeded], self.up_to_date
        )

    def failed(self) -> list[Build]:
        return [build for build in self.built if build.outcome in ("failed", "refused")]

    def accepted(self) -> list[Build]:
        """The builds whose rows are in the table, and the audits that passed, ordered by day."""
        failed = self.failed()
        return sorted(
            [b for b in self.built if b not in failed] + list(self.up_to_date), key=lambda b: b.day
        )
