"""How the columns that tables declare differ from those that they have in the lake, and how a rebuild changes them."""

from collections.abc import Iterator, Sequence
from datetime import date

from deltalake import DeltaTable

from backfill_assets.calendar import days_as_typed
from backfill_assets.lake.columns import ColumnChanges, changes
from backfill_assets.lake.ledger import open_table
from backfill_assets.lake.table_state import day_files
from backfill_assets.plan.chunks import Chunk
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def column_lines(workspace: Workspace, tables: Sequence[Table]) -> dict[str, list[str]]:
    """Of each table whose columns in the lake are not the declared ones, a sentence for each kind of difference."""
    lines = {name: list(_lines(name, changed, days)) for name, changed, days in _changed(workspace, tables)}
    return {name: of_table for name, of_table in lines.items() if of_table}


def refused_lines(workspace: Workspace, tables: Sequence[Table], chunks: Sequence[Chunk]) -> Iterator[str]:
    """A sentence for each table that no chunk replaces whole although a type changes: its commits will be refused."""
    for name, changed, days in _changed(workspace, tables):
        if changed.retyped and not any(days <= set(chunk.days.get(name, ())) for chunk in chunks):
            outside = sorted(day for day in days if day not in workspace.calendar)
            more = f" First set BACKFILL_FIRST_DAY so that the calendar has {outside[0]}." if outside else ""
            yield (
                f"{name} will be refused: a type changes in the commit that replaces all {len(days)} days, and no chunk has "
                f"them all.{more} Type `backfill run --partitions {days_as_typed(days)} --target {name} --canary 0 "
                "--days-per-run 10000 --yes`."
            )


def _changed(workspace: Workspace, tables: Sequence[Table]) -> Iterator[tuple[str, ColumnChanges, set[date]]]:
    for table in tables:
        stored: DeltaTable | None = open_table(workspace.lake.path(table.name))
        changed = changes(stored, types_of(table.columns)) if stored else ColumnChanges()
        if stored and changed:
            yield table.name, changed, {day for day, _, _ in day_files(stored)}


def _lines(name: str, changed: ColumnChanges, days: set[date]) -> Iterator[str]:
    if changed.new:
        yield f"{name} gets {', '.join(changed.new)} with the first day built; days built before then hold null."
    if changed.gone:
        yield f"{name} has {', '.join(changed.gone)}, not declared any more: gone once all {len(days)} day(s) are built again."
    if changed.respelled:
        yield (
            f"{name} will be refused: its table spells {', '.join(changed.respelled)} otherwise, and Delta does not tell upper "
            "and lower case apart. Declare the columns as they were."
        )
    if changed.retyped:
        yield f"{name}: {'; '.join(changed.retyped)}: changed by a run that builds all {len(days)} day(s) at once."
