"""Lines of the checklist for which rows are read: keys, and drift against live. With pyarrow, in this process."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.quality.drift import Drift, drift
from backfill_assets.quality.thresholds import EVERY_OTHER_COLUMN, DriftThresholds
from backfill_assets.tables.agreements import Reader
from backfill_assets.verify.checklist import Line, Outcome
from backfill_assets.verify.checks_of_builds import NOTHING_CHANGED

KEYS_SHOWN = 3
# Of a long plan, the keys of so many days are read at once.
DAYS_AT_ONCE = 31


def unique_keys(table: str, key: Sequence[str], day: str, days: Collection[date], read: Reader) -> Line:
    """No key stands twice in a day. `day` is the column of the day; the key is unique within one."""
    name = f"unique keys {table}"
    if not key:
        return Line(name, Outcome.SKIPPED, "the table declares no key", table)
    columns, rows, repeated = list(dict.fromkeys([day, *key])), 0, list[pa.Table]()
    ordered = sorted(days)
    for some in (ordered[n : n + DAYS_AT_ONCE] for n in range(0, len(ordered), DAYS_AT_ONCE)):
        keys = read(table, some, columns).select(columns)
        counted = keys.append_column("__one", pa.repeat(1, keys.num_rows)).group_by(columns).aggregate([("__one", "sum")])
        rows += keys.num_rows
        repeated.append(counted.filter(pc.greater(counted["__one_sum"], 1)))
    twice = pa.concat_tables(repeated) if repeated else pa.table({day: pa.array([], pa.date32())})
    figures = f"{rows:,} rows; {twice.num_rows:,} keys more than once"
    for row in twice.slice(0, KEYS_SHOWN).to_pylist():
        figures += f"; {' '.join(str(row[column]) for column in columns)}: {row['__one_sum']} rows"
    at_fault = tuple(sorted(set(twice[day].to_pylist())))
    return Line(name, Outcome.FAILED if at_fault else Outcome.PASSED, figures, table, at_fault)


def drift_of_columns(
    table: str,
    columns: Sequence[str],
    days: Collection[date],
    live: Reader,
    rebuilt: Reader,
    thresholds: Mapping[str, DriftThresholds] | None = None,
) -> list[Line]:
    """A line for the table, and one more for each column that moved beyond its threshold; a column is read at a time.

    `days` are those that both sides have, with other rows: days of one side would differ by what happened on them, and equal
    ones water the figures down. `thresholds` are by column, "*" for all others.
    """
    name, known = f"drift {table}", thresholds or {}
    if not days:
        return [Line(name, Outcome.SKIPPED, NOTHING_CHANGED, table)]
    drifts = [_drift(table, column, sorted(days), live, rebuilt) for column in columns]
    compared, skipped = [d for d in drifts if not d.skipped], [d for d in drifts if d.skipped]
    figures = f"{len(compared)} columns over {len(days)} changed day(s)"
    if compared:
        largest = max(compared, key=lambda each: each.size)
        figures += f"; the largest is {largest.column}: {_figures(largest)}" if largest.size else "; all distributed as in live"
    figures += f"; not compared: {', '.join(f'{each.column} ({each.skipped})' for each in skipped)}" if skipped else ""
    lines = [_line(table, each, _of(each.column, known)) for each in compared]
    beyond = [line for line in lines if line.outcome != Outcome.PASSED]
    figures += f"; {len(beyond)} beyond their threshold" if beyond else ""
    return [Line(name, Outcome.PASSED, figures, table), *beyond]


def _drift(table: str, column: str, days: Sequence[date], live: Reader, rebuilt: Reader) -> Drift:
    sides = [read(table, days, [column]) for read in (live, rebuilt)]
    for side, where in zip(sides, ("live", "the rebuild"), strict=True):
        if column not in side.column_names:
            return Drift(column, skipped=f"{where} has no such column")
    return drift(column, *[side[column] for side in sides])


def _of(column: str, thresholds: Mapping[str, DriftThresholds]) -> DriftThresholds:
    return thresholds.get(column) or thresholds.get(EVERY_OTHER_COLUMN) or DriftThresholds()


def _line(table: str, found: Drift, thresholds: DriftThresholds) -> Line:
    fail = "" if thresholds.fail is None else f", and fails beyond {thresholds.fail:g}"
    figures = f"{_figures(found)}; needs a decision beyond {thresholds.warn:g}{fail}"
    return Line(f"drift {table}.{found.column}", Outcome(thresholds.judge(found.size)), figures, table)


def _figures(found: Drift) -> str:
    return f"stability index {found.index:.3f}, {found.measure} {found.distance:.3f}"
