"""The checklist of a rebuild: checks of each table, then those that the project declares.

A project declares reconciliations between tables, and consumers that read them. The rebuilt and the
live tables are values (`RebuiltTable`) and readers of each side. This module does not know where a
rebuild is stored before it is published. No Spark.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import islice
from typing import Any

import pyarrow as pa

from backfill_assets.diff.diff import TableDiff, examples_of
from backfill_assets.lake.ledger import Build, BuildByPartition
from backfill_assets.plan.request import NOTHING
from backfill_assets.quality.thresholds import EVERY_OTHER_COLUMN
from backfill_assets.tables.agreements import Consumer, Reader, Reconciled, Reconciliation
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.verify.builds import (
    TableDays,
    changes_to_live,
    days_built,
    days_with_other_rows,
    null_shares,
    outside_days,
    planned_code,
    row_counts,
)
from backfill_assets.verify.changes import (
    NO_CHANGE,
    changed_rows,
    is_expected,
    row_counts_text,
)
from backfill_assets.verify.checklist import CheckLine, CheckOutcome, figures_text
from backfill_assets.verify.rows import drift_of_columns, unique_keys

_LONGEST_SHOWN = 300  # characters of one problem


@dataclass(frozen=True)
class RebuiltTable:
    """A table that a plan rebuilt, and the same table in live.

    `code` is the planned version. `accepted` has the accepted builds of the plan by day, and
    `unbuilt` the reason for each missing day. `opened` and `now` are live at the beginning of the
    rebuild, and now. `in_shadow` has the days with rows in the rebuilt table. `diff` compares the
    rows of both. `expected` has the columns that the plan is meant to change.
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
    diff: TableDiff | None = None
    expected: Collection[str] = ()

    @property
    def expects_nothing(self) -> bool:
        return NOTHING in self.expected


ReadRows = Callable[[str, Sequence[date], Sequence[str] | None], pa.Table]


@dataclass(frozen=True)
class SideReader:
    """One side of a rebuild as a `Reader`.

    `rows` reads rows by the name of a table, its days and columns (None: all). `builds` are the
    accepted builds of the side.
    """

    rows: ReadRows
    builds: BuildByPartition

    def __call__(
        self, table: Table | str, days: Iterable[date], columns: Sequence[str] | None = None
    ) -> pa.Table:
        return self.rows(_name(table), sorted(set(days)), columns)

    def lines(self, table: Table | str, days: Iterable[date]) -> dict[date, int]:
        builds = {day: build for day in days if (build := self.builds.get((_name(table), day)))}
        return {day: sum(build.files.values()) for day, build in builds.items() if build.delivered}


def _name(table: Table | str) -> str:
    return table if isinstance(table, str) else table.name


def checklist(
    tables: Iterable[RebuiltTable],
    live: Reader,
    rebuilt: Reader,
    declared: Iterable[Reconciliation | Consumer] = (),
) -> tuple[CheckLine, ...]:
    """All checks, in a fixed order.

    `live` reads live at the beginning of the rebuild, `rebuilt` the tables as they would be
    published. `declared` are the checks of the project.
    """
    tables = list(tables)
    days = {rebuilt_table.table.name: rebuilt_table.accepted for rebuilt_table in tables}
    lines = [line for of in tables for line in _table_checks(of, live, rebuilt)]
    return (*lines, *project_checks(declared, days, rebuilt))


def _table_checks(of: RebuiltTable, live: Reader, rebuilt: Reader) -> Iterator[CheckLine]:
    table = of.table
    name = table.name
    yield days_built(name, of.days, of.accepted, of.unbuilt)
    # If the plan built no day, live already has the rows, and there is nothing to compare.
    if of.accepted:
        yield planned_code(name, of.code, of.accepted)
        yield unique_keys(
            name, table.key, table.partition_by, of.accepted, rebuilt, table.masked_columns
        )
        compared = list(_compared_with_live(of, live, rebuilt))
        yield from (line for line in compared if line.outcome != CheckOutcome.DECISION)
        yield _decision(of, [line for line in compared if line.outcome == CheckOutcome.DECISION])
    yield outside_days(name, of.plan, of.days, of.opened, of.now, of.in_shadow)


def _compared_with_live(of: RebuiltTable, live: Reader, rebuilt: Reader) -> Iterator[CheckLine]:
    table = of.table
    name = table.name
    before = of.opened.accepted
    yield row_counts(name, of.accepted, before)
    yield from null_shares(name, of.accepted, before, table.drift, table.lineage)
    changed = days_with_other_rows(of.accepted, before)
    if columns := _judged_by_distribution(of):
        yield from drift_of_columns(
            name, columns, changed, live, rebuilt, table.drift, day=table.partition_by
        )
    if of.diff:
        bounds = NO_CHANGE if of.expects_nothing else table.drift
        yield from changed_rows(of.diff, bounds, table.lineage)


def _judged_by_distribution(of: RebuiltTable) -> list[str]:
    """The columns whose distribution is compared with live.

    Rows that are matched by key show more than a distribution does. So the columns of a table with
    a key are judged by their rows, unless the table declares thresholds for their drift.
    """
    table = of.table
    columns = [
        column
        for column in types_of(table.columns)
        if column != table.partition_by and column not in table.lineage
    ]
    if of.diff is None or not of.diff.keyed or EVERY_OTHER_COLUMN in table.drift:
        return columns
    return [column for column in columns if column in table.drift]


def _decision(of: RebuiltTable, lines: Sequence[CheckLine]) -> CheckLine:
    """The changes of a table as one check: it needs at most one decision.

    `lines` have the changes beyond their bounds. Expected changes need no decision.
    """
    table = of.table.name
    counted = changes_to_live(table, of.accepted, of.opened.accepted)
    if of.diff:
        columns = ", ".join(f"{c.name} in {c.changed:,}" for c in of.diff.most_changed)
        counted = replace(
            counted,
            figures="; ".join(filter(None, [counted.figures, row_counts_text(of.diff), columns])),
        )
    open_lines = [line for line in lines if not is_expected(line.column, of.expected)]
    if of.expects_nothing:  # a separate decision: one on larger changes does not count
        counted = replace(counted, name=f"{counted.name} (none expected)")
    if expected := len(lines) - len(open_lines):
        figures = f"{counted.figures}; {expected} expected change(s) beyond their bounds"
        counted = replace(counted, figures=figures)
    if not open_lines:
        return counted
    worst = sorted(open_lines, key=lambda line: (-line.excess, line.name))
    findings = tuple(
        f"{line.column}: {line.figures}" if line.column else line.figures for line in worst
    )
    rows = [row_counts_text(of.diff)] if of.diff else []
    if of.diff and of.expects_nothing:
        rows += islice(examples_of(of.diff), 3)
    worst_of = f"worst of {len(findings)} findings: " if len(findings) > 1 else ""
    return replace(
        counted,
        outcome=CheckOutcome.DECISION,
        figures="; ".join([*rows, f"{worst_of}{findings[0]}"]),
        days=tuple(sorted({day for line in worst for day in line.days})),
        excess=worst[0].excess,
        findings=(*findings, counted.figures),
    )


def project_checks(
    declared: Iterable[Reconciliation | Consumer],
    days: Mapping[str, Iterable[date]],
    read: Reader,
) -> Iterator[CheckLine]:
    """Check each reconciliation and consumer of a rebuilt table. `days`: rebuilt days by table."""
    for check in declared:
        rebuilt = sorted({day for table in check.tables for day in days.get(table, ())})
        if not rebuilt:
            continue
        kind = "consumer" if isinstance(check, Consumer) else "reconciliation"
        try:
            outcome, figures = _judge(check, rebuilt, read)
        except Exception as error:  # the project's own code may raise any error
            outcome = CheckOutcome.FAILED
            figures = _shortened(f"it raised {type(error).__name__}: {error}")
        yield CheckLine(f"{kind} {check.name}", outcome, figures)


def _judge(
    check: Reconciliation | Consumer, days: Sequence[date], read: Reader
) -> tuple[CheckOutcome, str]:
    found = check(read, days)
    if isinstance(check, Reconciliation):
        if not isinstance(found, Reconciled):
            name = type(found).__name__
            raise TypeError(f"it returned {name}, not Reconciled(figures, problems)")
        outcome = CheckOutcome.FAILED if found.problems else CheckOutcome.PASSED
        return outcome, figures_text(found.figures, [_shortened(text) for text in found.problems])
    rows = _size(found)
    if rows is None:
        return CheckOutcome.PASSED, "it runs"
    if not rows and not check.may_be_empty:
        return CheckOutcome.FAILED, "it runs, and returns nothing"
    return CheckOutcome.PASSED, f"it runs, and returns {rows:,} row(s)"


def _size(result: Any) -> int | None:
    """The rows of a table or frame, the items of a list; None for one value, 0 for None."""
    if result is None:
        return 0
    if hasattr(result, "num_rows"):
        return int(result.num_rows)
    return len(result) if hasattr(result, "__len__") else None


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
