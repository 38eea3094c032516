"""The audit trail as values: builds filtered, and grouped into the lines of a log."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.lake.record import COMMITTED, Build
from backfill_assets.lake.recovery import BuildHistory, key


@dataclass(frozen=True)
class Line:
    """Builds of one table in one run that differ only in their days, in order of days. `recorded`: the ledger has them."""

    builds: Sequence[Build]
    recorded: bool

    @property
    def example(self) -> Build:
        """Any of the builds: what a line shows of them is the same."""
        return self.builds[0]

    @property
    def days(self) -> list[date]:
        return [build.day for build in self.builds]

    def messages(self) -> dict[str, date]:
        """The builds' messages, each once, with the first day that has it."""
        first: dict[str, date] = {}
        for build in self.builds:
            first.setdefault(build.message, build.day)
        return {message: day for message, day in first.items() if message}


@dataclass(frozen=True)
class BuildFilter:
    """Builds of these days (None: any), of plans and runs whose ids begin so, and of the `last` so many runs (0: all)."""

    days: Collection[date] | None = None
    plan: str = ""
    run: str = ""
    last: int = 0


def select(builds: Sequence[Build], wanted: BuildFilter) -> list[Build]:
    """Those of `builds`, oldest first, that fit the filter."""
    days = None if wanted.days is None else set(wanted.days)
    fitting = [
        build
        for build in builds
        if (days is None or build.day in days) and build.plan.startswith(wanted.plan) and build.run.startswith(wanted.run)
    ]
    if not wanted.last:
        return fitting
    newest = list(dict.fromkeys(build.run for build in reversed(fitting)))[: wanted.last]
    return [build for build in fitting if build.run in newest]


def lines_by_run(builds: Sequence[Build], trail: BuildHistory, *, fold: bool) -> dict[str, list[Line]]:
    """`builds`, oldest first, as lines by run, the last run at the end; `fold` joins builds that differ only in their days."""
    unrecorded = {key(build) for build in trail.unrecorded}
    by_run: dict[str, dict[object, list[Build]]] = {}
    for build in builds:
        by_run[build.run] = by_run.pop(build.run, {})  # to the end
        group = _all_but_day(build, key(build) in unrecorded) if fold else key(build)
        by_run[build.run].setdefault(group, []).append(build)
    return {
        run: [Line(sorted(group, key=lambda b: b.day), key(group[0]) not in unrecorded) for group in groups.values()]
        for run, groups in by_run.items()
    }


def _all_but_day(build: Build, unrecorded: bool) -> object:
    # A failed or unchanged day has no commit of its own: the table's version differs from day to day.
    commit = build.delta_version if build.outcome in COMMITTED else None
    read = tuple(sorted(build.input_versions.items()))
    return build.table, build.outcome, commit, build.code_version, read, build.who, build.plan, build.reason, unrecorded
