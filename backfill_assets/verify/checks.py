"""The checklist of a rebuild: every line of every table, then what the project declares about several. No Spark.

What was rebuilt and what is live come as values (`RebuiltTable`) and as readers of either side; nothing here knows where a
rebuild lies before it is published.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date

from backfill_assets.lake.record import Build
from backfill_assets.tables.agreements import Consumer, Reader, Reconciliation
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.verify.checklist import Line
from backfill_assets.verify.checks_of_builds import (
    RowBounds,
    changed_days,
    changes,
    days_built,
    null_shares,
    planned_code,
    row_counts,
)
from backfill_assets.verify.checks_of_project import consumers, reconciliations
from backfill_assets.verify.checks_of_rows import drift_of_columns, unique_keys
from backfill_assets.verify.outside_days import TableDays, outside_days

DEFAULT_BOUNDS = RowBounds()


@dataclass(frozen=True)
class RebuiltTable:
    """What a plan rebuilt of one table, and what is live.

    `code` is the planned version, `accepted` has the accepted builds of the days that the plan built, `unbuilt` the days that
    are not as they should be, and why. `opened` and `now`: live when the rebuild was begun, and now. `in_shadow`: the days that
    the rebuilt table has rows of.
    """

    table: Table
    plan: str
    code: str
    days: Collection[date]
    accepted: Mapping[date, Build]
    opened: TableDays
    now: TableDays = field(default_factory=TableDays)
    in_shadow: Collection[date] = ()
    unbuilt: Mapping[date, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.table.name


def checklist(
    tables: Iterable[RebuiltTable],
    live: Reader,
    rebuilt: Reader,
    *,
    reconciled: Iterable[Reconciliation] = (),
    consumed_by: Iterable[Consumer] = (),
    bounds: RowBounds = DEFAULT_BOUNDS,
) -> tuple[Line, ...]:
    """All lines, in an order that does not change. `live` reads live as it was when the rebuild was begun, `rebuilt` the tables
    as they would be published."""
    tables = list(tables)
    days = {each.name: list(each.accepted) for each in tables}
    lines = [line for each in tables for line in lines_of_table(each, live, rebuilt, bounds)]
    return (*lines, *reconciliations(reconciled, days, rebuilt), *consumers(consumed_by, days, rebuilt))


def lines_of_table(each: RebuiltTable, live: Reader, rebuilt: Reader, bounds: RowBounds = DEFAULT_BOUNDS) -> Iterator[Line]:
    """The lines of one table. Where the plan built no day of it, live has its rows already, and there is nothing to compare."""
    yield days_built(each.name, each.days, each.accepted, each.unbuilt)
    if each.accepted:
        yield from _lines_of_rows(each, live, rebuilt, bounds)
    yield outside_days(each.name, each.plan, each.days, each.opened, each.now, each.in_shadow)
    if each.accepted:
        yield changes(each.name, each.accepted, each.opened.accepted)


def _lines_of_rows(each: RebuiltTable, live: Reader, rebuilt: Reader, bounds: RowBounds) -> Iterator[Line]:
    name, table = each.name, each.table
    yield planned_code(name, each.code, each.accepted)
    yield row_counts(name, each.accepted, each.opened.accepted, bounds)
    yield from null_shares(name, each.accepted, each.opened.accepted)
    yield unique_keys(name, table.key, table.partition_by, each.accepted, rebuilt)
    columns = [column for column in types_of(table.columns) if column != table.partition_by]
    changed = changed_days(each.accepted, each.opened.accepted)
    yield from drift_of_columns(name, columns, changed, live, rebuilt, table.drift, day=table.partition_by)
