"""What a step begins with: the latest builds of what it looks at, and the versions at which it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from backfill_assets.calendar import Partition
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.rewritten import never_accepted
from backfill_assets.lake.store import Lake
from backfill_assets.quality.rules import TRAILING_DAYS
from backfill_assets.step.due import Due
from backfill_assets.step.inputs import days_of_inputs
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

DaysByTable = dict[str, set[date]]


@dataclass(frozen=True)
class Snapshot:
    """The latest builds, with what somebody else rewrote; the version of each input, and that of the table itself."""

    builds: Latest
    inputs: Mapping[str, int]
    version: int

    def without(self, lost: Mapping[Partition, str]) -> Snapshot:
        """The same, but `lost` partitions do not hold what was accepted, and why."""
        return replace(self, builds=replace(self.builds, rewritten={**self.builds.rewritten, **lost}))


def snapshot(table: Table, days: Sequence[date], request: StepRequest, workspace: Workspace) -> Snapshot:
    """What a step of `days` begins with.

    No commit came between the builds and the versions: the builds' fingerprints are those of the rows at these versions.
    """
    lake, relevant = workspace.lake, partitions_looked_at(table, days, request, workspace)
    lake.recover(relevant)
    versions, before, builds = _versions(table, lake), None, Latest()
    while versions != before:
        before, builds = versions, lake.latest(relevant, plan=request.plan)
        if request.plan and (more := inputs_of_failed(table, builds, workspace)):
            wider = {name: relevant.get(name, set()) | more.get(name, set()) for name in {*relevant, *more}}
            builds = lake.latest(wider, plan=request.plan)
        versions = _versions(table, lake)
    rewritten = lake.rewritten(builds.accepted, versions)
    if request.write_mode != "overwrite":  # rows that are kept must be ours
        unknown = never_accepted(
            lake.path(table.name), days, {day for name, day in builds.accepted if name == table.name}, versions[table.name]
        )
        rewritten |= {(table.name, day): why for day, why in unknown.items()}
    inputs = {other.name: versions[other.name] for other, _ in table.windows()}
    return Snapshot(replace(builds, rewritten=builds.differing() | rewritten), inputs, versions[table.name])


def _versions(table: Table, lake: Lake) -> dict[str, int]:
    return {name: lake.version(name) for name in {table.name, *(other.name for other, _ in table.windows())}}


def lost_partitions(table: Table, due: Due, start: Snapshot, workspace: Workspace) -> dict[Partition, str]:
    """The partitions that `due` would write or read whose files are not there as they were written. One look a file."""
    looked_at: dict[str, set[date]] = {table.name: set(due.compute)}
    for day in due.compute:
        for name, read in due.inputs[day].tables.items():
            looked_at.setdefault(name, set()).update(map(date.fromisoformat, read))
    columns, versions = (
        {other.name: other.partition_by for other, _ in table.windows()},
        {**start.inputs, table.name: start.version},
    )
    columns[table.name] = table.partition_by
    return {
        (name, day): why
        for name, of_table in looked_at.items()
        for day, why in workspace.lake.lost_files(name, columns[name], of_table, versions[name]).items()
    }


def partitions_looked_at(table: Table, days: Sequence[date], request: StepRequest, workspace: Workspace) -> DaysByTable:
    """The partitions whose builds matter for `days`: the ledger of years is not read for one day."""
    relevant: dict[str, set[date]] = {each.name: set() for each in table.ancestors()} if request.plan else {}
    relevant.setdefault(table.name, set()).update(days)
    relevant[table.name].update(day - timedelta(days=n) for day in days for n in range(1, TRAILING_DAYS + 1))
    for name, of_input in days_of_inputs(table, days, workspace.calendar).items():
        relevant.setdefault(name, set()).update(of_input)
    for name, day in request.planned:
        if name in relevant:
            relevant[name].add(day)
    return relevant


def inputs_of_failed(table: Table, builds: Latest, workspace: Workspace) -> DaysByTable:
    """What the partitions that failed last read, to see whether they are up to date again."""
    relevant: dict[str, set[date]] = {}
    for ancestor in table.ancestors():
        failed = [day for (name, day), build in builds.last.items() if name == ancestor.name and not build.succeeded]
        for other, of_input in days_of_inputs(ancestor, failed, workspace.calendar).items() if failed else ():
            relevant.setdefault(other, set()).update(of_input)
    return relevant
