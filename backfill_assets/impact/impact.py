"""Find the days that an edit of a project makes outdated.

With a lake, these are the built days that a plan of outdated days selects with the edited code, and
does not select with the code of the base. Without a lake, every day of the calendar may be one. If
an edit changes what a table reads, all outdated days of that table count as days of the edit.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from backfill_assets.calendar import Partition
from backfill_assets.errors import named
from backfill_assets.impact.declared import Edit
from backfill_assets.lake.delta import version_of
from backfill_assets.plan.neighbours import StatusReader, select_neighbours
from backfill_assets.plan.progress import Estimate, estimate
from backfill_assets.plan.selector import Selector
from backfill_assets.plan.status import runs_by_partition
from backfill_assets.project import in_order
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Impact:
    """The effect of an edit.

    `changes` says what changed of each new, removed or edited table. `days` become outdated by
    that, or are the first days of a new table; they are by table, inputs first. `earlier` is the
    number of days that are outdated without the edit. `expected` is the time to build `days`, None
    without a lake.
    """

    changes: Mapping[str, Mapping[str, str]]
    days: Mapping[str, Sequence[date]]
    earlier: int
    expected: Estimate | None


def find_impact(edit: Edit, workspace: Workspace) -> Impact:
    """Compare the tables before and after an edit, and find the days that need a build."""
    before = edit.before
    changes = {name: {"table": "removed"} for name in before if name not in edit.after}
    for name, facts in edit.after.items():
        changed = _changes(before[name], facts) if name in before else {"table": "new"}
        changes |= {name: changed} if changed else {}
    names = [name for name in edit.after if {"table", "version"} & changes.get(name, {}).keys()]
    graph = workspace.graph
    if version_of(workspace.lake.ledger.path) < 0:
        readers = ",".join(f"{name}+" for name in names)
        tables = workspace.named(readers) if readers else ()
        days = {table.name: table.calendar_of(graph.calendar).days() for table in tables}
        return Impact(changes, days, 0, None)
    version = {name: facts["version"][0] for name, facts in before.items()}
    unedited = [replace(table, version=version.get(table.name, "")) for table in graph.tables]
    # Their builds have other inputs than the edited tables read.
    same_inputs = [name for name in names if not {"table", "inputs"} & changes[name].keys()]
    earlier = _to_build(replace(workspace, tables=in_order(unedited)), same_inputs, ())
    needed = _to_build(workspace, names, edit.after.keys() - before) - earlier
    expected = estimate(
        needed, workspace.lake.ledger.usual_seconds(edit.after), chunks=bool(needed)
    )
    return Impact(changes, graph.by_table(needed), len(earlier), expected)


def _to_build(workspace: Workspace, names: Sequence[str], new: Collection[str]) -> set[Partition]:
    """The outdated days of these tables, what is made from them, and days of `new` tables."""
    if not names:
        return set()
    graph = workspace.graph
    selector = Selector(
        names,
        graph.calendar.days(),
        # Days of new tables are built with the days that read them.
        only={"outdated", "missing"},
        downstream="built",
        leave_protected=True,
        on_request=True,
    )
    workspace = replace(workspace, area=workspace.area.with_cached_listing())
    reader = StatusReader(workspace, runs_by_partition(workspace))
    selection = select_neighbours(selector, graph, reader.read, reader.was_built)
    return {
        partition
        for partition in (*selection.partitions, *selection.blocked)
        if partition[0] in new or reader.partitions[partition].is_built
    }


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Name each changed fact of a table, with its earlier (-) and present (+) values."""
    changes = {}
    definitions = before["definitions"].items() ^ after["definitions"].items()
    if definitions:
        changes["code"] = named(sorted({name for name, _ in definitions}))
    for fact in ("columns", "key", "inputs", "rules", "version"):
        gone = [f"-{value}" for value in before[fact] if value not in after[fact]]
        came = [f"+{value}" for value in after[fact] if value not in before[fact]]
        if gone or came:
            changes[fact] = ", ".join([*gone, *came])
    if "version" not in changes and changes.keys() - {"rules"}:
        changes["same version"] = f"{after['version'][0]}, given by hand"
    return changes
