"""The checklist of a rebuild: checks of each table, then those that the project declares.

A project declares reconciliations between tables, and consumers that read them. The rebuilt and the
live tables are values (`RebuiltTable`) and readers of each side. Nothing here knows where a rebuild
lies before it is published. No Spark.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa

from backfill_assets.calendar import Partition
from backfill_assets.lake.ledger import Build
from backfill_assets.tables.agreements import Consumer, Reader, Reconciled, Reconciliation
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.verify.builds import (
    RowBounds,
    TableDays,
    changes_to_live,
    days_built,
    days_with_other_rows,
    null_shares,
    outside_days,
    planned_code,
    row_counts,
)
from backfill_assets.verify.checklist import CheckLine, CheckOutcome
from backfill_assets.verify.rows import drift_of_columns, unique_keys

_PROBLEMS_SHOWN = 3
_LONGEST_SHOWN = 300  # characters of one problem
DaysByTable = Mapping[str, Collection[date]]


@dataclass(frozen=True)
class SideReader:
    """One side of a rebuild as a `Reader`: what reads rows by the name of a table, its days and
    columns (None: all), and the accepted builds of that side.
    """

    rows: Callable[[str, Sequence[date], Sequence[str] | None], pa.Table]
    builds: Mapping[Partition, Build]

    def __call__(
        self, table: Table | str, days: Iterable[date], columns: Sequence[str] | None = None
    ) -> pa.Table:
        return self.rows(_name(table), sorted(set(days)), columns)

    def lines(self, table: Table | str, days: Iterable[date]) -> dict[date, int]:
        builds = {day: build for day in days if (build := self.builds.get((_name(table), day)))}
        return {day: sum(build.files.values()) for day, build in builds.items() if build.delivered}


def _name(table: Table | str) -> str:
    return table if isinstance(table, str) else table.name


def reconciliations(
    declared: Iterable[Reconciliation], days: DaysByTable, read: Reader
) -> list[CheckLine]:
    """A line for each reconciliation of a table that was rebuilt. `days`: the days rebuilt, by
    table.
    """
    return [_reconciled(each, of, read) for each in declared if (of := _days(each.tables, days))]


def consumers(declared: Iterable[Consumer], days: DaysByTable, read: Reader) -> list[CheckLine]:
    """A line for each consumer of a table that was rebuilt. `days`: the days rebuilt, by table."""
    return [_read_by(each, of, read) for each in declared if (of := _days(each.tables, days))]


def _days(tables: Iterable[str], days: DaysByTable) -> list[date]:
    """The days that were rebuilt of any of these tables, in order."""
    return sorted({day for table in tables for day in days.get(table, ())})


def _reconciled(declared: Reconciliation, days: list[date], read: Reader) -> CheckLine:
    name = f"reconciliation {declared.name}"
    try:
        found = declared(read, days)
        if not isinstance(found, Reconciled):
            raise TypeError(
                f"it returned {type(found).__name__}, not Reconciled(figures, problems)"
            )
    except (
        Exception
    ) as error:  # whatever a project's own function raises, it has not found that the tables agree
        return CheckLine(name, CheckOutcome.FAILED, _raised(error))
    shown = [_shortened(problem) for problem in found.problems[:_PROBLEMS_SHOWN]]
    more = (
        [f"and {len(found.problems) - _PROBLEMS_SHOWN} more"]
        if len(found.problems) > _PROBLEMS_SHOWN
        else []
    )
    outcome = CheckOutcome.FAILED if found.problems else CheckOutcome.PASSED
    return CheckLine(name, outcome, "; ".join([found.figures, *shown, *more]))


def _read_by(declared: Consumer, days: list[date], read: Reader) -> CheckLine:
    name = f"consumer {declared.name}"
    try:
        rows = _size(declared(read, days))
    except Exception as error:  # it does not run, whatever the reason
        return CheckLine(name, CheckOutcome.FAILED, _raised(error))
    if rows == 0 and not declared.may_be_empty:
        return CheckLine(name, CheckOutcome.FAILED, "it runs, and returns nothing")
    return CheckLine(
        name,
        CheckOutcome.PASSED,
        "it runs" if rows is None else f"it runs, and returns {rows:,} row(s)",
    )


def _size(result: Any) -> int | None:
    """How much a query returned: rows of a table or of a frame, items of a list; None for one
    value, 0 for None.
    """
    if result is None:
        return 0
    if hasattr(result, "num_rows"):
        return int(result.num_rows)
    return len(result) if hasattr(result, "__len__") else None


def _raised(error: Exception) -> str:
    return _shortened(f"it raised {type(error).__name__}: {error}")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


_DEFAULT_BOUNDS = RowBounds()


@dataclass(frozen=True)
class RebuiltTable:
    """What a plan rebuilt of one table, and what is live.

    `code` is the planned version, `accepted` has the accepted builds of the days that the plan
    built, `unbuilt` the days that are not as they should be, and why. `opened` and `now`: live when
    the rebuild was begun, and now. `in_shadow`: the days that the rebuilt table has rows of.
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
    bounds: RowBounds = _DEFAULT_BOUNDS,
) -> tuple[CheckLine, ...]:
    """All lines, in an order that does not change. `live` reads live as it was when the rebuild was
    begun, `rebuilt` the tables as they would be published.
    """
    tables = list(tables)
    days = {each.name: list(each.accepted) for each in tables}
    lines = [line for each in tables for line in _lines_of_table(each, live, rebuilt, bounds)]
    return (
        *lines,
        *reconciliations(reconciled, days, rebuilt),
        *consumers(consumed_by, days, rebuilt),
    )


def _lines_of_table(
    each: RebuiltTable, live: Reader, rebuilt: Reader, bounds: RowBounds = _DEFAULT_BOUNDS
) -> Iterator[CheckLine]:
    """The lines of one table. Where the plan built no day of it, live has its rows already, and
    there is nothing to compare.
    """
    yield days_built(each.name, each.days, each.accepted, each.unbuilt)
    if each.accepted:
        yield from _lines_of_rows(each, live, rebuilt, bounds)
    yield outside_days(each.name, each.plan, each.days, each.opened, each.now, each.in_shadow)
    if each.accepted:
        yield changes_to_live(each.name, each.accepted, each.opened.accepted)


def _lines_of_rows(
    each: RebuiltTable, live: Reader, rebuilt: Reader, bounds: RowBounds
) -> Iterator[CheckLine]:
    name = each.name
    table = each.table
    yield planned_code(name, each.code, each.accepted)
    yield row_counts(name, each.accepted, each.opened.accepted, bounds)
    yield from null_shares(name, each.accepted, each.opened.accepted)
    yield unique_keys(name, table.key, table.partition_by, each.accepted, rebuilt)
    columns = [column for column in types_of(table.columns) if column != table.partition_by]
    changed = days_with_other_rows(each.accepted, each.opened.accepted)
    yield from drift_of_columns(
        name, columns, changed, live, rebuilt, table.drift, day=table.partition_by
    )
