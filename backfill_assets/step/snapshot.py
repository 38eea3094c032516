"""What a step begins with: the latest builds of what it looks at, and the versions at which it reads its inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta

from backfill_assets.lake.latest import Latest, latest
from backfill_assets.lake.recovery import recover_newest
from backfill_assets.lake.rewritten import rewritten_partitions
from backfill_assets.quality.rules import TRAILING_DAYS
from backfill_assets.step.read import versions_of_inputs
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

DaysByTable = dict[str, set[date]]


def snapshot(
    table: Table, days: Sequence[date], request: StepRequest, workspace: Workspace
) -> tuple[Latest, Mapping[str, int]]:
    """The latest builds, with what somebody else rewrote, and the version of each input.

    No commit came between the two, so the fingerprints of the builds are those of the rows at these versions.
    """
    lake, relevant = workspace.lake, partitions_looked_at(table, days, request, workspace)
    recover_newest(lake.ledger, relevant)
    versions, before, builds = versions_of_inputs(table, lake), None, Latest()
    while versions != before:
        before, builds = versions, latest(lake.ledger, relevant, plan=request.plan)
        if request.plan and (more := inputs_of_failed(table, builds, workspace)):
            builds = latest(
                lake.ledger,
                {name: relevant.get(name, set()) | more.get(name, set()) for name in {*relevant, *more}},
                plan=request.plan,
            )
        versions = versions_of_inputs(table, lake)
    rewritten = rewritten_partitions(lake.root, builds.accepted, {table.name: None, **versions})
    return replace(builds, rewritten=builds.differing() | rewritten), versions


def partitions_looked_at(table: Table, days: Sequence[date], request: StepRequest, workspace: Workspace) -> DaysByTable:
    """The partitions whose builds matter for `days`: the ledger of years is not read for one day."""
    relevant: dict[str, set[date]] = {each.name: set() for each in table.ancestors()} if request.plan else {}
    relevant.setdefault(table.name, set()).update(days)
    relevant[table.name].update(day - timedelta(days=n) for day in days for n in range(1, TRAILING_DAYS + 1))
    for other, window in table.windows():
        clip = other.calendar_of(workspace.calendar).clip
        relevant.setdefault(other.name, set()).update(d for day in days for d in clip(window.days(day)))
    for name, day in request.planned:
        if name in relevant:
            relevant[name].add(day)
    return relevant


def inputs_of_failed(table: Table, builds: Latest, workspace: Workspace) -> DaysByTable:
    """What the partitions that failed last read, to see whether they are up to date again."""
    relevant: dict[str, set[date]] = {}
    for ancestor in table.ancestors():
        failed = [day for (name, day), build in builds.last.items() if name == ancestor.name and not build.succeeded]
        for other, window in ancestor.windows() if failed else ():
            clip = other.calendar_of(workspace.calendar).clip
            relevant.setdefault(other.name, set()).update(d for day in failed for d in clip(window.days(day)))
    return relevant
