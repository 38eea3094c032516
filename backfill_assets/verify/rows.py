"""Checks that read rows: keys, and drift against live. With pyarrow, in this process."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.diff.rows import row_codes
from backfill_assets.quality.drift import (
    KOLMOGOROV_SMIRNOV,
    Drift,
    chance_of_index,
    chance_of_kolmogorov_smirnov,
    chance_of_total_variation,
    drift,
)
from backfill_assets.quality.thresholds import EVERY_OTHER_COLUMN, SOME_CHANGE, DriftThresholds
from backfill_assets.tables.agreements import Reader
from backfill_assets.verify.builds import NOTHING_TO_COMPARE
from backfill_assets.verify.checklist import CheckLine, CheckOutcome

_KEYS_SHOWN = 3
# No column of a table has this name: how often a key stands in a day.
_TIMES = "times it stands in a day"
# Of a long plan, the keys of so many days are read at once.
_DAYS_AT_ONCE = 31


def unique_keys(
    table: str, key: Sequence[str], day: str, days: Collection[date], read: Reader
) -> CheckLine:
    """No key is repeated within a day. `day` is the column of the day."""
    name = f"unique keys {table}"
    if not key:
        return CheckLine(name, CheckOutcome.SKIPPED, "the table declares no key", table)
    columns = list(dict.fromkeys([day, *key]))
    rows = 0
    repeated = list[pa.Table]()
    ordered = sorted(days)
    for some in (ordered[n : n + _DAYS_AT_ONCE] for n in range(0, len(ordered), _DAYS_AT_ONCE)):
        keys = read(table, some, columns).select(columns)
        codes, count = row_codes(
            [column.combine_chunks() for column in keys.columns], keys.num_rows
        )
        times = np.bincount(codes, minlength=count)
        rows = rows + keys.num_rows
        first = np.unique(codes, return_index=True)[1]
        at = np.sort(first[times > 1])
        repeated.append(keys.take(at).append_column(_TIMES, pa.array(times[codes[at]])))
    twice = [row for table_of in repeated for row in table_of.to_pylist()]
    figures = f"{rows:,} rows; {len(twice):,} keys more than once"
    for row in twice[:_KEYS_SHOWN]:
        figures += f"; {' '.join(str(row[column]) for column in columns)}: {row[_TIMES]} rows"
    at_fault = tuple(sorted({row[day] for row in twice}))
    return CheckLine(
        name, CheckOutcome.FAILED if at_fault else CheckOutcome.PASSED, figures, table, at_fault
    )


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
    """A line for the table, and one more for each column that moved beyond its threshold; a column
    is read at a time.

    A column is judged over all days together, and on each day by itself: there by how much farther
    it moved than two samples of so few rows do by chance, in either figure. `days` are those that
    both sides have, with other rows: days of one side would differ by what happened on them, and
    equal ones water the figures down. `thresholds` are by column, "*" for all others; `day` is the
    column of the day.
    """
    name = f"drift {table}"
    known = thresholds or {}
    if not days:
        return [CheckLine(name, CheckOutcome.SKIPPED, NOTHING_TO_COMPARE, table)]
    drifts = [_drift(table, column, sorted(days), live, rebuilt, day) for column in columns]
    compared = [each for each in drifts if not each.skipped]
    skipped = [each.all for each in drifts if each.skipped]
    figures = f"{len(compared)} columns over {len(days)} changed day(s)"
    if compared:
        largest = max((each.all for each in compared), key=lambda each: each.size)
        figures += (
            f"; the largest is {largest.column}: {_figures(largest)}"
            if largest.size
            else "; all distributed as in live"
        )
    figures += (
        f"; not compared: {', '.join(f'{each.column} ({each.skipped})' for each in skipped)}"
        if skipped
        else ""
    )
    lines = [_line(table, each, _of(each.all.column, known)) for each in compared]
    beyond = [line for line in lines if line.outcome != CheckOutcome.PASSED]
    unseen = {at for each in compared for at in each.too_small}.difference(
        *(line.days for line in beyond)
    )
    if unseen:
        figures += (
            f"; {len(unseen)} day(s) have too few rows to be judged by themselves: `backfill diff`"
            " shows what changed"
        )
    figures += f"; {len(beyond)} beyond their threshold" if beyond else ""
    return [CheckLine(name, CheckOutcome.PASSED, figures, table), *beyond]


@dataclass(frozen=True)
class _ColumnDrift:
    """How far a column moved, over `all` days together and on each; `farther`: by how much more
    than a day does by chance. `too_small`: the days of so few rows that they could not be farther,
    whatever is in them.
    """

    all: Drift
    by_day: Mapping[date, Drift] = field(default_factory=dict)
    farther: Mapping[date, float] = field(default_factory=dict)
    too_small: Collection[date] = frozenset()

    @property
    def skipped(self) -> str:
        """Why it was not compared, neither over all days nor on one."""
        return "" if self.by_day else self.all.skipped

    def beyond(self, thresholds: DriftThresholds) -> dict[date, str]:
        """The days on which it moved beyond a threshold, and how that is judged."""
        judged = {day: thresholds.judge(farther) for day, farther in self.farther.items()}
        return {day: outcome for day, outcome in judged.items() if outcome != CheckOutcome.PASSED}


def _drift(
    table: str, column: str, days: Sequence[date], live: Reader, rebuilt: Reader, day: str
) -> _ColumnDrift:
    before, now = (read(table, days, [day, column]) for read in (live, rebuilt))
    for side, where in ((before, "live"), (now, "the rebuild")):
        if column not in side.column_names:
            return _ColumnDrift(Drift(column, skipped=f"{where} has no such column"))
    together = drift(column, before[column], now[column])
    by_day = dict[date, Drift]()
    farther = dict[date, float]()
    too_small = set[date]()
    for at in days if len(days) > 1 else ():
        one, other = (
            side.filter(pc.equal(side[day], pa.scalar(at, pa.date32())))[column]
            for side in (before, now)
        )
        of_day = drift(column, one, other)
        if not of_day.skipped:
            by_day[at], farther[at] = of_day, _farther_than_by_chance(of_day, one, other)
            too_small |= (
                {at}
                if 1 - chance_of_kolmogorov_smirnov(len(one), len(other)) <= SOME_CHANGE
                else set()
            )
    return _ColumnDrift(together, by_day, farther, too_small)


def _farther_than_by_chance(found: Drift, before: pa.ChunkedArray, now: pa.ChunkedArray) -> float:
    """How much farther a column has moved than two samples of so few rows do, by the figure in
    which that is more.
    """
    rows = len(before), len(now)
    if found.measure == KOLMOGOROV_SMIRNOV:
        chance = chance_of_kolmogorov_smirnov(rows[0] - before.null_count, rows[1] - now.null_count)
    else:
        chance = chance_of_total_variation(found.bins, *rows)
    return max(found.index - chance_of_index(found.bins, *rows), found.distance - chance)


def _of(column: str, thresholds: Mapping[str, DriftThresholds]) -> DriftThresholds:
    return thresholds.get(column) or thresholds.get(EVERY_OTHER_COLUMN) or DriftThresholds()


def _line(table: str, found: _ColumnDrift, thresholds: DriftThresholds) -> CheckLine:
    fail = "" if thresholds.fail is None else f", and fails beyond {thresholds.fail:g}"
    figures = _figures(found.all)
    beyond = found.beyond(thresholds)
    if beyond:
        worst = max(beyond, key=lambda day: found.farther[day])
        figures += (
            f"; {len(beyond)} day(s) by themselves, {worst} farthest:"
            f" {_figures(found.by_day[worst])}"
        )
    outcomes = {CheckOutcome(thresholds.judge(found.all.size)), *map(CheckOutcome, beyond.values())}
    outcome = next(
        each
        for each in (CheckOutcome.FAILED, CheckOutcome.DECISION, CheckOutcome.PASSED)
        if each in outcomes
    )
    figures += f"; needs a decision beyond {thresholds.warn:g}{fail}"
    return CheckLine(
        f"drift {table}.{found.all.column}", outcome, figures, table, tuple(sorted(beyond))
    )


def _figures(found: Drift) -> str:
    return (
        found.skipped or f"stability index {found.index:.3f}, {found.measure} {found.distance:.3f}"
    )
