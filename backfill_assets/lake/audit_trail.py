"""The audit trail as values: which builds are asked for, and which of them are told as one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.lake.record import COMMITTED, Build
from backfill_assets.lake.recovery import Trail, key


@dataclass(frozen=True)
class Line:
    """Builds of one table in one run that came to the same, in order of days. `recorded`: the ledger has them."""

    builds: Sequence[Build]
    recorded: bool

    @property
    def one(self) -> Build:
        """Any of them: in what a line has in common they are alike."""
        return self.builds[0]

    @property
    def days(self) -> list[date]:
        return [build.day for build in self.builds]

    def messages(self) -> dict[str, date]:
        """What was said of the days, each once, with the first day it was said of."""
        said: dict[str, date] = {}
        for build in self.builds:
            said.setdefault(build.message, build.day)
        return {message: day for message, day in said.items() if message}


@dataclass(frozen=True)
class RebuildRequest:
    """Which builds: of these days (None: any), of plans and runs whose ids begin so, of so many last runs (0: all)."""

    days: Collection[date] | None = None
    plan: str = ""
    run: str = ""
    last: int = 0


def select(builds: Sequence[Build], asked: RebuildRequest) -> list[Build]:
    """Those of `builds`, oldest first, that are asked for."""
    days = None if asked.days is None else set(asked.days)
    fit = [
        build
        for build in builds
        if (days is None or build.day in days) and build.plan.startswith(asked.plan) and build.run.startswith(asked.run)
    ]
    if not asked.last:
        return fit
    newest = list(dict.fromkeys(build.run for build in reversed(fit)))[: asked.last]
    return [build for build in fit if build.run in newest]


def runs(builds: Sequence[Build], trail: Trail, *, fold: bool) -> dict[str, list[Line]]:
    """`builds`, oldest first, by run, the run that built last at the end; as few lines as tell the same, or one a build."""
    left_out = {key(build) for build in trail.unrecorded}
    found: dict[str, dict[object, list[Build]]] = {}
    for build in builds:
        found[build.run] = found.pop(build.run, {})  # to the end
        alike = key(build) if not fold else _alike(build, key(build) in left_out)
        found[build.run].setdefault(alike, []).append(build)
    return {
        run: [Line(sorted(each, key=lambda b: b.day), key(each[0]) not in left_out) for each in lines.values()]
        for run, lines in found.items()
    }


def _alike(build: Build, left_out: bool) -> object:
    # A day that failed or came out the same has no commit of its own: the version told of it differs from day to day.
    commit = build.delta_version if build.outcome in COMMITTED else None
    read = tuple(sorted(build.input_versions.items()))
    return build.table, build.outcome, commit, build.code_version, read, build.who, build.plan, build.reason, left_out
