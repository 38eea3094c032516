"""Partitions that are not in a plan, and read what it rebuilt: which of them are outdated now."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.calendar import Partition, days_as_typed
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Readers:
    """Partitions that are not in a plan and read what it changed: days that are outdated now by table, and those up to date."""

    outdated: dict[str, list[date]]
    up_to_date: Sequence[Partition] = ()


def readers_left(plan: Plan, workspace: Workspace) -> Readers:
    """What reads the days to which `plan` gave other rows, and is not in the plan."""
    graph, builds = workspace.graph, latest_builds(workspace)
    planned = {name: days for name, days in graph.by_table(plan.partitions()).items() if days}
    of_plan = workspace.lake.ledger.builds(planned, ("table", "day", "run", "code_version", "outcome", "plan", "at"))
    changed = {(b.table, b.day) for b in of_plan if b.plan == plan.id and b.succeeded and b.outcome != "unchanged"}
    readers = {reader for partition in changed for reader in graph.readers(partition)} - plan.partitions().keys()
    days = graph.by_table(readers)
    tables = [table for table in workspace.tables if days[table.name]]
    if not tables:
        return Readers({})
    partitions = status_of(workspace, tables, sorted({day for _, day in readers}), latest=builds).partitions
    outdated = {name: [day for day in days[name] if partitions[name, day].state == State.INPUT_CHANGED] for name in days}
    return Readers(
        {name: of_table for name, of_table in outdated.items() if of_table},
        [reader for reader in graph.in_order(readers) if partitions[reader].state == State.UP_TO_DATE],
    )


def outdated_lines(outdated: dict[str, list[date]], ask_above_days: int) -> Iterator[str]:
    """A sentence for each table, and the command that rebuilds them; it says --yes for more days than are planned without."""
    for name, days in outdated.items():
        yield f"{name} {days_as_typed(days)} read what was rebuilt, are not in the plan, and are outdated now."
    if outdated:
        days = sorted({day for of_table in outdated.values() for day in of_table})
        yes = " --yes" if len(days) > ask_above_days else ""
        yield f"Rebuild them: `backfill run --partitions {days_as_typed(days)} --only outdated --downstream{yes}`."
