"""Checks that read rows: keys, and drift against live. With pyarrow, in this process."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.diff.rows import row_codes
from backfill_assets.quality.drift import (
    Drift,
    chance_of_kolmogorov_smirnov,
    drift,
    drift_beyond_chance,
)
from backfill_assets.quality.masking import masked_row
from backfill_assets.quality.thresholds import SOME_CHANGE, DriftThresholds, thresholds_of
from backfill_assets.tables.agreements import Reader
from backfill_assets.verify.builds import NOTHING_TO_COMPARE, excess_of
from backfill_assets.verify.checklist import CheckLine, CheckOutcome

_KEYS_SHOWN = 3
# The name for the number of rows with a key. No table has a column with this name.
_ROWS = "rows with this key"
# The keys of a long plan are read in parts.
_DAYS_AT_ONCE = 31


def unique_keys(
    table: str,
    key: Sequence[str],
    day: str,
    days: Collection[date],
    read: Reader,
    masked: Collection[str] = (),
) -> CheckLine:
    """Check that no key is repeated within a day. `day` is the column of the day.

    Values of `masked` columns are not shown.
    """
    name = f"unique keys {table}"
    if not key:
        return CheckLine(name, CheckOutcome.SKIPPED, "the table declares no key", table)
    columns = list(dict.fromkeys([day, *key]))
    rows = 0
    repeated = list[dict[str, Any]]()
    ordered = sorted(days)
    for start in range(0, len(ordered), _DAYS_AT_ONCE):
        keys = read(table, ordered[start : start + _DAYS_AT_ONCE], columns).select(columns)
        rows += keys.num_rows
        codes, count = row_codes(
            [column.combine_chunks() for column in keys.columns], keys.num_rows
        )
        counts = np.bincount(codes, minlength=count)
        first_rows = np.unique(codes, return_index=True)[1]
        at = np.sort(first_rows[counts > 1])
        repeated += keys.take(at).append_column(_ROWS, pa.array(counts[codes[at]])).to_pylist()
    figures = f"{rows:,} rows; {len(repeated):,} repeated keys"
    for row in repeated[:_KEYS_SHOWN]:
        shown = masked_row(row, masked)
        figures += f"; {' '.join(str(shown[column]) for column in columns)}: {row[_ROWS]} rows"
    wrong = tuple(sorted({row[day] for row in repeated}))
    outcome = CheckOutcome.FAILED if wrong else CheckOutcome.PASSED
    return CheckLine(name, outcome, figures, table, wrong)


@dataclass(frozen=True)
class _ColumnDrift:
    """The drift of a column over all days together, and on each of several days.

    `beyond_chance` is the drift of a day beyond the drift of two samples of its size by chance. The
    days in `too_small` have too few rows for any drift beyond chance.
    """

    total: Drift
    by_day: Mapping[date, Drift] = field(default_factory=dict)
    beyond_chance: Mapping[date, float] = field(default_factory=dict)
    too_small: Collection[date] = ()

    @property
    def is_compared(self) -> bool:
        return bool(self.by_day) or not self.total.skipped


def drift_of_columns(
    table: str,
    columns: Sequence[str],
    days: Collection[date],
    live: Reader,
    rebuilt: Reader,
    thresholds: Mapping[str, DriftThresholds] | None = None,
    *,
    day: str,
) -> list[CheckLine]:
    """A line for the table, and one for each column that drifted beyond its threshold.

    A column is judged over all days together, and on each day by its drift beyond chance. Columns
    are read one at a time. `days` are the days on both sides with different rows. `thresholds` are
    by column, "*" for all others. `day` is the column of the day.
    """
    name = f"drift {table}"
    if not days:
        return [CheckLine(name, CheckOutcome.SKIPPED, NOTHING_TO_COMPARE, table)]
    drifts = [_drift(table, column, sorted(days), live, rebuilt, day) for column in columns]
    compared = [of_column for of_column in drifts if of_column.is_compared]
    skipped = [
        f"{of_column.total.column} ({of_column.total.skipped})"
        for of_column in drifts
        if not of_column.is_compared
    ]
    lines = [_line(table, of_column, thresholds or {}) for of_column in compared]
    beyond = [line for line in lines if line.outcome != CheckOutcome.PASSED]
    too_small = {at for of_column in compared for at in of_column.too_small}
    unjudged = too_small.difference(*(line.days for line in beyond))
    figures = f"{len(compared)} columns over {len(days)} changed day(s)"
    if compared:
        largest = max((of_column.total for of_column in compared), key=lambda total: total.size)
        figures += (
            f"; the largest is {largest.column}: {_figures(largest)}"
            if largest.size
            else "; all distributed as in live"
        )
    figures += f"; not compared: {', '.join(skipped)}" if skipped else ""
    if unjudged:
        figures += (
            f"; {len(unjudged)} day(s) have too few rows to judge: `backfill diff` shows the"
            " changes"
        )
    figures += f"; {len(beyond)} beyond their threshold" if beyond else ""
    return [CheckLine(name, CheckOutcome.PASSED, figures, table), *beyond]


def _drift(
    table: str, column: str, days: Sequence[date], live: Reader, rebuilt: Reader, day: str
) -> _ColumnDrift:
    before, now = (read(table, days, [day, column]) for read in (live, rebuilt))
    for side, name in ((before, "live"), (now, "the rebuild")):
        if column not in side.column_names:
            return _ColumnDrift(Drift(column, skipped=f"{name} has no such column"))
    by_day = dict[date, Drift]()
    beyond_chance = dict[date, float]()
    too_small = set[date]()
    for at in days if len(days) > 1 else ():
        old, new = (
            side.filter(pc.equal(side[day], pa.scalar(at, pa.date32())))[column]
            for side in (before, now)
        )
        found = drift(column, old, new)
        if found.skipped:
            continue
        by_day[at] = found
        beyond_chance[at] = drift_beyond_chance(found, old, new)
        if 1 - chance_of_kolmogorov_smirnov(len(old), len(new)) <= SOME_CHANGE:
            too_small.add(at)
    return _ColumnDrift(
        drift(column, before[column], now[column]), by_day, beyond_chance, too_small
    )


def _line(table: str, found: _ColumnDrift, thresholds: Mapping[str, DriftThresholds]) -> CheckLine:
    column = found.total.column
    bounds = thresholds_of(column, thresholds)
    outcomes = {
        day: CheckOutcome(bounds.judge(drift_of_day))
        for day, drift_of_day in found.beyond_chance.items()
    }
    beyond = sorted(day for day, outcome in outcomes.items() if outcome != CheckOutcome.PASSED)
    figures = _figures(found.total)
    if beyond:
        worst = max(beyond, key=lambda day: found.beyond_chance[day])
        figures += (
            f"; {len(beyond)} single day(s), most on {worst}: {_figures(found.by_day[worst])}"
        )
    figures += f"; needs a decision beyond {bounds.warn:g}"
    figures += "" if bounds.fail is None else f", and fails beyond {bounds.fail:g}"
    all_outcomes = {CheckOutcome(bounds.judge(found.total.size)), *outcomes.values()}
    by_severity = (CheckOutcome.FAILED, CheckOutcome.DECISION, CheckOutcome.PASSED)
    outcome = next(outcome for outcome in by_severity if outcome in all_outcomes)
    size = max([found.total.size, *found.beyond_chance.values()])
    return CheckLine(
        f"drift {table}.{column}",
        outcome,
        figures,
        table,
        tuple(beyond),
        column=column,
        excess=excess_of(size, bounds.warn),
    )


def _figures(found: Drift) -> str:
    return found.skipped or f"PSI {found.index:.3f}, {found.measure} {found.distance:.3f}"
