"""What remains of a plan now, read from the lake and the landing area alone: nothing is launched and no server is asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from backfill_assets.calendar import Partition
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.record import Build
from backfill_assets.lake.running_steps import running_steps
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Remaining, remaining_of
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# (failures from before the command began, partitions given up and why) -> what remains of a plan.
ReadRemaining = Callable[[Mapping[Partition, Build], Mapping[Partition, str]], Remaining]


def remaining_reader(plan: Plan, workspace: Workspace) -> ReadRemaining:
    """A function that reads what remains of the plan each time it is called. UsageError for tables that are gone.

    A partition is up to date by the code that was planned; one that the plan has merged into rows that it kept is done too. A
    plan whose code has changed since cannot be carried on, and can still be shown: what it built is done whatever has changed,
    and so is what is up to date by the code now.
    """
    plan.refuse_gone_tables(workspace.names)
    tables = [table for table in workspace.tables if table.name in plan.code]
    as_planned = [replace(table, version=plan.code[table.name]) for table in tables]
    code_changed = any(table.version != plan.code[table.name] for table in tables)
    graph = workspace.graph

    def up_to_date(tables: Sequence[Table], builds: Latest) -> set[Partition]:
        status = status_of(workspace, tables, plan.days(), latest=builds)
        merged = builds.built_by(plan.id) if plan.options.write_mode == "merge" else set[Partition]()
        return {
            partition
            for partition, each in status.partitions.items()
            if each.state == State.UP_TO_DATE or (each.state == State.MIXED and partition in merged)
        }

    def read(before: Mapping[Partition, Build], given_up: Mapping[Partition, str]) -> Remaining:
        building = workspace_of(plan, workspace)
        steps = running_steps(building.lake.root)  # before the ledger: what ends between the two counts as built
        builds = latest_builds(building, plan.id)
        ready, done = up_to_date(as_planned, builds), set[Partition]()
        if code_changed:
            ready, done = ready | up_to_date(tables, builds), builds.built_by(plan.id)
        remaining = remaining_of(plan, graph, ready, builds, before=before, given_up=given_up, done=done)
        return replace(remaining, at_work={partition for partition, step in steps.items() if step.plan == plan.id})

    return read
