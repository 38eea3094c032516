"""Lines of the checklist that the project declares: reconciliations between tables, and consumers that read them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa

from backfill_assets.calendar import Partition
from backfill_assets.lake.record import Build
from backfill_assets.tables.agreements import Consumer, Reader, Reconciled, Reconciliation
from backfill_assets.tables.declaration import Table
from backfill_assets.verify.checklist import Line, Outcome

PROBLEMS_SHOWN = 3
LONGEST_SHOWN = 300  # characters of one problem
DaysByTable = Mapping[str, Collection[date]]


@dataclass(frozen=True)
class SideReader:
    """One side of a rebuild as a `Reader`: what reads rows by the name of a table, its days and columns (None: all), and the
    accepted builds of that side."""

    rows: Callable[[str, Sequence[date], Sequence[str] | None], pa.Table]
    builds: Mapping[Partition, Build]

    def __call__(self, table: Table | str, days: Iterable[date], columns: Sequence[str] | None = None) -> pa.Table:
        return self.rows(_name(table), sorted(set(days)), columns)

    def lines(self, table: Table | str, days: Iterable[date]) -> dict[date, int]:
        builds = {day: build for day in days if (build := self.builds.get((_name(table), day)))}
        return {day: sum(build.files.values()) for day, build in builds.items() if build.delivered}


def _name(table: Table | str) -> str:
    return table if isinstance(table, str) else table.name


def reconciliations(declared: Iterable[Reconciliation], days: DaysByTable, read: Reader) -> list[Line]:
    """A line for each reconciliation of a table that was rebuilt. `days`: the days rebuilt, by table."""
    return [_reconciled(each, of, read) for each in declared if (of := _days(each.tables, days))]


def consumers(declared: Iterable[Consumer], days: DaysByTable, read: Reader) -> list[Line]:
    """A line for each consumer of a table that was rebuilt. `days`: the days rebuilt, by table."""
    return [_read_by(each, of, read) for each in declared if (of := _days(each.tables, days))]


def _days(tables: Iterable[str], days: DaysByTable) -> list[date]:
    """The days that were rebuilt of any of these tables, in order."""
    return sorted({day for table in tables for day in days.get(table, ())})


def _reconciled(declared: Reconciliation, days: list[date], read: Reader) -> Line:
    name = f"reconciliation {declared.name}"
    try:
        found = declared(read, days)
        if not isinstance(found, Reconciled):
            raise TypeError(f"it returned {type(found).__name__}, not Reconciled(figures, problems)")
    except Exception as error:  # whatever a project's own function raises, it has not found that the tables agree
        return Line(name, Outcome.FAILED, _raised(error))
    shown = [_shortened(problem) for problem in found.problems[:PROBLEMS_SHOWN]]
    more = [f"and {len(found.problems) - PROBLEMS_SHOWN} more"] if len(found.problems) > PROBLEMS_SHOWN else []
    outcome = Outcome.FAILED if found.problems else Outcome.PASSED
    return Line(name, outcome, "; ".join([found.figures, *shown, *more]))


def _read_by(declared: Consumer, days: list[date], read: Reader) -> Line:
    name = f"consumer {declared.name}"
    try:
        rows = _size(declared(read, days))
    except Exception as error:  # it does not run, whatever the reason
        return Line(name, Outcome.FAILED, _raised(error))
    if rows == 0 and not declared.may_be_empty:
        return Line(name, Outcome.FAILED, "it runs, and returns nothing")
    return Line(name, Outcome.PASSED, "it runs" if rows is None else f"it runs, and returns {rows:,} row(s)")


def _size(result: Any) -> int | None:
    """How much a query returned: rows of a table or of a frame, items of a list; None for one value, 0 for None."""
    if result is None:
        return 0
    if hasattr(result, "num_rows"):
        return int(result.num_rows)
    return len(result) if hasattr(result, "__len__") else None


def _raised(error: Exception) -> str:
    return _shortened(f"it raised {type(error).__name__}: {error}")


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
