"""How the columns that tables declare differ from those that they have in the lake, and how a rebuild changes them."""

from collections.abc import Iterator, Sequence
from datetime import date

from deltalake import DeltaTable

from backfill_assets.calendar import Calendar, days_as_typed
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.columns import ColumnChanges, changes
from backfill_assets.lake.ledger import open_table
from backfill_assets.lake.table_state import day_files
from backfill_assets.plan.chunks import Chunk
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def column_lines(workspace: Workspace, tables: Sequence[Table], chunks: Sequence[Chunk] | None = None) -> dict[str, list[str]]:
    """Of each table whose columns in the lake are not the declared ones, a sentence for each kind of difference.

    With the `chunks` of a plan, also whether its commits will be refused: a type changes only where one chunk has all days.
    """
    lines: dict[str, list[str]] = {}
    for table in tables:
        stored = _stored(workspace.lake.path(table.name))
        if stored and (changed := changes(stored, types_of(table.columns))):
            days = {day for day, _, _ in day_files(stored)}
            lines[table.name] = list(_lines(table.name, changed, days))
            if changed.retyped and chunks is not None and not any(days <= set(c.days.get(table.name, ())) for c in chunks):
                lines[table.name].append(_refused(table.name, days, workspace.calendar))
    return lines


def _stored(folder: str) -> DeltaTable | None:
    """The table as it is in the lake; None for one that cannot be read, of which status names every day."""
    try:
        return open_table(folder)
    except TableUnreadable:
        return None


def _refused(name: str, days: set[date], calendar: Calendar) -> str:
    outside = sorted(day for day in days if day not in calendar)
    more = f" First set BACKFILL_FIRST_DAY so that the calendar has {outside[0]}." if outside else ""
    return (
        f"{name} will be refused: a type changes in the commit that replaces all {len(days)} days, and no chunk has them all."
        f"{more} Type `backfill run --partitions {days_as_typed(days)} --target {name} --canary 0 --days-per-run 10000 --yes`."
    )


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
