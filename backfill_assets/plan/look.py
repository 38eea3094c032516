"""Looking at a plan: how far it is, from the lake and the landing area alone. Nothing is launched and no server is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from backfill_assets.lake.latest import Partition
from backfill_assets.lake.record import Build
from backfill_assets.plan.make import latest_builds
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Remaining, remaining_of
from backfill_assets.plan.status import status_of
from backfill_assets.workspace import Workspace

# What is left of a plan now: (failures from before the command began, partitions given up and why) -> Remaining.
Look = Callable[[Mapping[Partition, Build], Mapping[Partition, str]], Remaining]


def looking_at(plan: Plan, workspace: Workspace) -> Look:
    """A function that looks at the plan's days and tables each time it is called. UsageError for tables that are gone."""
    # A partition is done once it is what the plan's code makes of it, whatever the code is now.
    tables = [replace(table, version=plan.code[table.name]) for table in workspace.tables if table.name in plan.code]
    graph = workspace.graph
    plan.refuse_gone_tables(workspace.names)

    def look(before: Mapping[Partition, Build], given_up: Mapping[Partition, str]) -> Remaining:
        builds = latest_builds(workspace)
        status = status_of(workspace, tables, plan.days(), latest=builds)
        return remaining_of(plan, graph, status.partitions, builds, before=before, given_up=given_up)

    return look
