"""What a plan leaves outdated: partitions that are not in it, and read what it rebuilt."""

from collections.abc import Iterator
from datetime import date

from backfill_assets.calendar import days_as_typed
from backfill_assets.plan.make import latest_builds
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.status import State, status_of
from backfill_assets.workspace import Workspace


def left_outdated(plan: Plan, workspace: Workspace) -> dict[str, list[date]]:
    """The days of each table, not in `plan`, whose inputs have changed since they were built, by what the plan built."""
    graph, builds = workspace.graph, latest_builds(workspace, plan.id)
    built, planned = builds.built_by(plan.id), plan.partitions().keys()
    readers = {reader for partition in built for reader in graph.readers(partition)} - planned
    days = graph.by_table(readers)
    tables = [table for table in workspace.tables if days[table.name]]
    status = status_of(workspace, tables, sorted({day for _, day in readers}), latest=builds) if tables else None
    outdated = {
        table.name: [day for day in days[table.name] if status.partitions[table.name, day].state == State.INPUT_CHANGED]
        for table in tables
        if status
    }
    return {name: of_table for name, of_table in outdated.items() if of_table}


def outdated_lines(outdated: dict[str, list[date]], ask_above_days: int) -> Iterator[str]:
    """A sentence for each table, and the command that rebuilds them; it says --yes for more days than are planned without."""
    for name, days in outdated.items():
        yield f"{name} {days_as_typed(days)} read what was rebuilt, are not in the plan, and are outdated now."
    if outdated:
        days = sorted({day for of_table in outdated.values() for day in of_table})
        yes = " --yes" if len(days) > ask_above_days else ""
        yield f"Rebuild them: `backfill run --partitions {days_as_typed(days)} --only outdated --downstream{yes}`."
