"""Checks of the row diff: changed rows, added and removed keys, nested nulls, sums, means.

The diff compares rows (`diff/`). Here its figures meet their bounds.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import date

from backfill_assets.calendar import as_day
from backfill_assets.diff.diff import DayDiff, GroupChange, NestedNulls, TableDiff
from backfill_assets.quality.drift import chance_of_share
from backfill_assets.quality.masking import MASKED
from backfill_assets.quality.thresholds import EVERY_OTHER_COLUMN, DriftThresholds, thresholds_of
from backfill_assets.verify.builds import excess_of
from backfill_assets.verify.checklist import CheckLine, CheckOutcome

# The words of `--expect` for rows instead of a column.
ADDED = "added"
REMOVED = "removed"
_Thresholds = Mapping[str, DriftThresholds]
# Less than one row of a day, but more than the difference of a sum of doubles in another order.
NO_CHANGE: _Thresholds = {EVERY_OTHER_COLUMN: DriftThresholds(changed=1e-9)}


def changed_rows(
    diff: TableDiff, thresholds: _Thresholds, lineage: Collection[str]
) -> Iterator[CheckLine]:
    """A line for each column, and for added or removed rows, beyond its bound.

    Days without rows in live are judged only by `NO_CHANGE`. Columns of `lineage` are not judged.
    """
    days = [day for day in diff.days if day.rows_before or thresholds is NO_CHANGE]
    keys = thresholds_of(EVERY_OTHER_COLUMN, thresholds).changed
    unit = "keys" if diff.keyed else "rows"
    for verb in (ADDED, REMOVED):
        shares = {day.day: getattr(day, verb) / (day.rows_before or 1) for day in days}
        total = sum(getattr(day, verb) for day in days)
        rows = sum(day.rows_before for day in days)
        yield from _line(diff.name, verb, shares, keys, f"{total:,} {unit} {verb}, {rows:,} before")
    for column in diff.columns:
        if column.name in lineage:
            continue
        shares = {day.day: _changed(day, column.name) for day in days}
        matched = sum(_matched(day) for day in days)
        figures = f"{column.changed:,} of {matched:,} matched rows changed"
        bound = thresholds_of(column.name, thresholds).changed
        yield from _line(diff.name, column.name, shares, bound, figures)
    yield from _nested(diff, days, thresholds, lineage)
    yield from _groups(diff, thresholds, lineage)


def _matched(day: DayDiff) -> int:
    return day.changed + day.unchanged


def _changed(day: DayDiff, column: str) -> float:
    changed = sum(of.changed for of in day.columns if of.name == column)
    return changed / _matched(day) if changed else 0.0


def _line(
    table: str, what: str, shares: Mapping[str, float], bound: float, figures: str
) -> Iterator[CheckLine]:
    """A line if a day is beyond the bound."""
    beyond = {day: share for day, share in shares.items() if share > bound}
    if not beyond:
        return
    worst = max(beyond, key=lambda day: beyond[day])
    days = tuple(map(date.fromisoformat, sorted(beyond)))
    where = f" on {worst}" if len(beyond) == 1 else f" on {len(days)} days, most on {worst}"
    text = f"{figures}; {beyond[worst]:.1%}{where}; allowed: {bound:.1%}"
    yield CheckLine(
        f"rows {table}.{what}",
        CheckOutcome.DECISION,
        text,
        table,
        days,
        column=what,
        excess=excess_of(beyond[worst], bound),
    )


def _nested(
    diff: TableDiff, days: Collection[DayDiff], thresholds: _Thresholds, lineage: Collection[str]
) -> Iterator[CheckLine]:
    """A line for each path in a column whose share of nulls changed beyond chance on a day."""
    moved: dict[str, dict[str, float]] = {}
    for day in days:
        for nulls in day.nested_nulls:
            share = _moved(nulls)
            moved.setdefault(nulls.path, {})[day.day] = share
    for path, shares in moved.items():
        column = path.partition(".")[0]
        bound = thresholds_of(column, thresholds).changed
        if column in lineage:
            continue
        for line in _line(diff.name, f"nulls of {path}", shares, bound, f"nulls of {path} moved"):
            yield replace(line, column=column)


def _moved(nulls: NestedNulls) -> float:
    """The difference of the shares of nulls beyond chance; 1 if one side has no values."""
    before = nulls.values_before
    after = nulls.values_after
    if not before or not after:
        return float(before != after)
    both = nulls.nulls_before + nulls.nulls_after
    chance = chance_of_share(both / (before + after), before, after)
    return abs(nulls.nulls_after / after - nulls.nulls_before / before) - chance


def _groups(
    diff: TableDiff, thresholds: _Thresholds, lineage: Collection[str]
) -> Iterator[CheckLine]:
    """A line for each sum or mean by key value beyond its bound."""
    for group in diff.groups:
        bound = thresholds_of(group.column or EVERY_OTHER_COLUMN, thresholds).changed
        if group.size <= bound or group.column in lineage:
            continue
        days = (as_day(group.value),) if group.key == "day" else ()
        name = f"{group.figure} {diff.name}.{group.column or 'rows'} by {group.key}"
        yield CheckLine(
            name,
            CheckOutcome.DECISION,
            _group_text(group, bound),
            diff.name,
            days,
            column=group.column,
            excess=excess_of(group.size, bound),
        )


def _group_text(group: GroupChange, bound: float) -> str:
    where = f"{group.key} {group.value}"
    what = f"the {group.figure}" if group.column else "rows"
    if group.before is None:
        figures = MASKED
    else:
        figures = f"{group.before:,.6g} before, {group.after:,.6g} now"
    return f"{what} of {where}: {figures}; allowed: {bound:.1%}"


def row_counts_text(diff: TableDiff) -> str:
    """The numbers of rows that publishing would add, remove and change."""
    counts = ", ".join(
        f"{diff.total(figure):,} {figure}"
        for figure in ("added", "removed", "changed", "unchanged")
    )
    return f"rows: {counts}"


def is_expected(column: str, expected: Collection[str]) -> bool:
    """True if the plan is meant to change the column. Row counts change with added rows."""
    if "*" in expected or column in expected:
        return True
    return not column and bool({ADDED, REMOVED} & {*expected})
