"""What a step begins with: the latest builds of what it looks at, and the versions at which it reads its inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta

from backfill_assets.lake.latest import Latest, latest
from backfill_assets.lake.ledger import Days
from backfill_assets.lake.recovery import recover_newest
from backfill_assets.lake.rewritten import rewritten_partitions
from backfill_assets.quality.rules import TRAILING_DAYS
from backfill_assets.step.read import versions_of_inputs
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


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
        before, builds = versions, latest(lake.ledger, relevant)
        versions = versions_of_inputs(table, lake)
    rewritten = rewritten_partitions(lake.root, builds.accepted, {table.name: None, **versions})
    return replace(builds, rewritten=builds.differing() | rewritten), versions


def partitions_looked_at(table: Table, days: Sequence[date], request: StepRequest, workspace: Workspace) -> Days:
    """The partitions whose builds matter for `days`: the ledger of years is not read for one day."""
    clip = workspace.calendar.clip
    relevant: dict[str, set[date]] = {each.name: set() for each in table.ancestors()} if request.plan else {}
    relevant.setdefault(table.name, set()).update(days)
    relevant[table.name].update(day - timedelta(days=n) for day in days for n in range(1, TRAILING_DAYS + 1))
    for other, window in table.windows():
        relevant.setdefault(other.name, set()).update(d for day in days for d in clip(window.days(day)))
    planned = [(each, day) for each in table.ancestors() for name, day in request.planned if name == each.name]
    for each, day in planned if request.plan else ():
        relevant[each.name].add(day)
        for other, window in each.windows():  # to see whether one that failed is up to date again
            relevant.setdefault(other.name, set()).update(clip(window.days(day)))
    return relevant
