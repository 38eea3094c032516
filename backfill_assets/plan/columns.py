"""Differences between declared columns and columns in the lake."""

from collections.abc import Iterator, Sequence
from datetime import date

from backfill_assets.calendar import Calendar, days_as_typed, ranges
from backfill_assets.errors import TableUnreadable, UsageError
from backfill_assets.lake.columns import ColumnChanges, declared_changes
from backfill_assets.lake.delta import other_partitioning
from backfill_assets.lake.table_facts import TableFacts, table_facts
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def column_lines(
    workspace: Workspace,
    tables: Sequence[Table],
    chunks: Sequence[Chunk] | None = None,
    *,
    in_shadow: bool = False,
) -> dict[str, list[str]]:
    """Sentences about each table whose columns in the lake differ from the declared columns.

    With the `chunks` of a plan, the sentences also say whether its commits will be refused: in
    live, a type changes only in a run that builds all days. With `chunks`, raises UsageError for a
    table that is partitioned by another column, because none of its days can be built.
    """
    lines: dict[str, list[str]] = {}
    for table in tables:
        folder = workspace.lake.path(table.name)
        stored = _stored(folder)
        by = stored.columns.partitioned_by if stored else [table.partition_by]
        if other := other_partitioning(by, table.partition_by):
            advice = (
                "Delta keeps the column that a table was made with. Move that folder away, or"
                f" remove it, then type {_all_days(table, workspace.calendar)}. Or declare"
                " partition_by as it was."
            )
            if chunks is not None:
                raise UsageError(
                    f"{table.name} cannot be built: its folder {folder} {other}.",
                    unchanged="Nothing was planned.",
                    next_step=f"{advice}",
                )
            lines[table.name] = [
                f"{table.name} will be refused: its folder {folder} {other}. {advice}"
            ]
        elif stored and (changed := _changes(stored, table)):
            of_live = None if in_shadow else chunks
            lines[table.name] = list(_lines(table, stored, changed, folder, workspace, of_live))
    return lines


def refuse_type_of_some_days(plan: Plan, workspace: Workspace, tables: Sequence[Table]) -> None:
    """Refuse a plan into a shadow that changes a type and lacks some days.

    Raises UsageError. The plan could be built but never published: the other days keep the other
    type.
    """
    for table in tables if plan.is_shadow else ():
        stored = _stored(workspace.lake.path(table.name))
        changed = _changes(stored, table) if stored else None
        if not stored or not changed or not changed.retyped:
            continue
        days = stored.days()
        missing = sorted(days - plan.days_of(table.name))
        if not missing:
            continue
        of_table = table.calendar_of(workspace.calendar)
        outside = [day for day in missing if day not in of_table]
        settings = _bring_in(outside, table, workspace.calendar) if outside else []
        first = f"First {' and '.join(settings)}. Then type" if settings else "Type"
        raise UsageError(
            f"{table.name}: {changed.types}. A type changes only in a plan that has"
            f" all {len(days)} days of the table, and {ranges(missing)} is not in this one.",
            unchanged="Nothing was planned.",
            next_step=(
                f"{first} `backfill plan --partitions {min(days)}..{max(days)} --target"
                f" {table.name} --force --into shadow`."
            ),
        )


def _stored(folder: str) -> TableFacts | None:
    """Return the table in the lake; None if it cannot be read.

    Status reports the error on each day of the table.
    """
    try:
        return table_facts(folder)
    except TableUnreadable:
        return None


def _changes(stored: TableFacts, table: Table) -> ColumnChanges:
    return declared_changes(stored.columns.schema, types_of(table.columns))


def _all_days(table: Table, calendar: Calendar) -> str:
    of_table = table.calendar_of(calendar)
    return (
        f"`backfill run --partitions {of_table.first}..{of_table.last} --target {table.name} --yes`"
    )


def _lines(
    table: Table,
    stored: TableFacts,
    changed: ColumnChanges,
    folder: str,
    workspace: Workspace,
    chunks: Sequence[Chunk] | None,
) -> Iterator[str]:
    name = table.name
    days = stored.days()
    if changed.new:
        yield (
            f"{name} gets {', '.join(changed.new)} with the first day built; days built before then"
            " hold null."
        )
    if changed.gone:
        yield (
            f"{name} has {', '.join(changed.gone)}, not declared any more: gone once all"
            f" {len(days)} day(s) are built again."
        )
    if changed.respelled:
        yield (
            f"{name} will be refused: its table spells {', '.join(changed.respelled)} otherwise,"
            " and Delta does not tell upper and lower case apart. Declare the columns as they"
            " were."
        )
    if changed.retyped:
        yield (
            f"{name}: {changed.types}: changed by a run that builds all {len(days)} day(s) at once."
        )
        yield from _refused(table, days, folder, workspace, chunks)


def _refused(
    table: Table, days: set[date], folder: str, workspace: Workspace, chunks: Sequence[Chunk] | None
) -> Iterator[str]:
    """Yield a sentence if the change of a type will be refused, with the command that works."""
    calendar = workspace.calendar
    of_table = table.calendar_of(calendar)
    # Forced, because days of a table with an explicit version may be up to date.
    all_at_once = (
        f"`backfill run --partitions {days_as_typed(days)} --target {table.name} --force --canary 0"
        f" --days-per-run {len(days)} --yes`"
    )
    refused = (
        f"{table.name} will be refused: a type changes in the commit that replaces all {len(days)}"
        " days, and"
    )
    if outside := sorted(day for day in days if day not in of_table):
        settings = " and ".join(_bring_in(outside, table, calendar))
        # The files of other days stay, because a rebuild changes only the days that it names.
        yield (
            f"{refused} no run builds {ranges(outside)}, outside its calendar. Either {settings},"
            f" then type {all_at_once}. Or, if these days are not wanted any more, move {folder}"
            f" away, then type {_all_days(table, calendar)}."
        )
    elif chunks is not None and not any(
        days <= set(chunk.days.get(table.name, ())) for chunk in chunks
    ):
        yield f"{refused} no chunk has them all. Type {all_at_once}."


def _bring_in(outside: Sequence[date], table: Table, calendar: Calendar) -> list[str]:
    """Name the settings that extend the table's calendar to these days."""
    first = outside[0]
    last = outside[-1]
    settings = []
    if first < calendar.first:
        settings.append(f"set BACKFILL_FIRST_DAY to {first} or earlier")
    if last > calendar.last:
        settings.append(f"set BACKFILL_LAST_DAY to {last} or later")
    if table.first_day and first < table.first_day:
        settings.append(f"declare the table with first_day={first} or earlier")
    return settings
