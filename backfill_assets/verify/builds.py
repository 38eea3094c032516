"""Checks that need only the builds of a table's days. No row is read.

One of them compares data files and fingerprints of all days, to show that a rebuild changed no day
outside its plan.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from statistics import median
from textwrap import shorten

from backfill_assets.calendar import ranges
from backfill_assets.errors import first_line
from backfill_assets.grouping import grouped
from backfill_assets.lake.damage import Damage
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.integrity import damaged
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.listed_files import data_files
from backfill_assets.quality.drift import chance_of_share
from backfill_assets.quality.rules import ENOUGH_TRAILING_DAYS, trailing_days
from backfill_assets.quality.thresholds import DriftThresholds, thresholds_of
from backfill_assets.verify.checklist import CheckLine, CheckOutcome, Remedy, figures_text

# The rows of a rebuilt day need no decision between these multiples of the day's rows in live.
_BOUNDS_OF_LIVE = (0.8, 1.25)
# For a day that live lacks: multiples of the median of the days before.
_BOUNDS_OF_MEDIAN = (0.2, 5.0)
_REASON_SHOWN = 120
NOTHING_TO_COMPARE = "nothing to compare: live has none of these days, or the same rows"
BuildsByDay = Mapping[date, Build]


def days_built(
    table: str, days: Collection[date], rebuilt: Collection[date], unbuilt: Mapping[date, str]
) -> CheckLine:
    """Check that every planned day is rebuilt, or up to date in live.

    `unbuilt` has the reason for each other day.
    """
    in_live = len({*days} - {*rebuilt} - unbuilt.keys())
    figures = f"{len(days) - len(unbuilt) - in_live} of {len(days)} days built"
    figures += f", {in_live} up to date in live" if in_live else ""
    reasons = [f"{day} {first_line(unbuilt[day])}" for day in sorted(unbuilt)]
    first = [f"for example {shorten(reason, _REASON_SHOWN)}" for reason in reasons[:1]]
    line = _line("days built", table, "; ".join([figures, *first]), unbuilt)
    return replace(line, findings=(figures, *reasons), remedy=Remedy.BUILD)


def planned_code(table: str, code: str, accepted: BuildsByDay) -> CheckLine:
    """Check that every day was built by the planned code version."""
    others = [day for day, build in accepted.items() if not build.is_of_code(code)]
    versions = Counter(build.code_version for build in accepted.values())
    counted = ", ".join(f"{version} ({n} day(s))" for version, n in versions.most_common())
    return _line("code version", table, f"planned {code}; built by {counted or 'none'}", others)


def row_counts(table: str, rebuilt: BuildsByDay, live: BuildsByDay) -> CheckLine:
    """Compare the rows of each rebuilt day with the same day in live.

    A day that live lacks is compared with the median of the 28 days before it, rebuilt or in live.
    With fewer than 7 such days, any count passes. `live` has the accepted builds of all days.
    """
    rows = {day: build.rows for day, build in {**live, **rebuilt}.items()}
    outside: dict[date, str] = {}
    excess = 0.0
    for day, build in sorted(rebuilt.items()):
        trailing = [rows[earlier] for earlier in trailing_days(day) if earlier in rows]
        if day in live:
            expected: float = live[day].rows
            low, high = _BOUNDS_OF_LIVE
            basis = "in live"
        elif len(trailing) >= ENOUGH_TRAILING_DAYS:
            expected = median(trailing)
            low, high = _BOUNDS_OF_MEDIAN
            basis = "is the median"
        else:
            continue
        if not low * expected <= build.rows <= high * expected:
            outside[day] = f"{day} {build.rows:,} rows, {expected:,.0f} {basis}"
            excess = max(excess, build.rows / max(high * expected, 1), 1.0)
    figures = (
        f"{sum(build.rows for build in rebuilt.values()):,} rows in {len(rebuilt)} day(s),"
        f" {sum(live[day].rows for day in rebuilt if day in live):,} in live; allowed for a day:"
        f" {_BOUNDS_OF_LIVE[0]:g}-{_BOUNDS_OF_LIVE[1]:g}x live, for a day new to live:"
        f" {_BOUNDS_OF_MEDIAN[0]:g}-{_BOUNDS_OF_MEDIAN[1]:g}x the median"
    )
    text = figures_text(figures, list(outside.values()))
    line = _line("row counts", table, text, outside, CheckOutcome.DECISION)
    return replace(line, excess=excess)


def null_shares(
    table: str,
    rebuilt: BuildsByDay,
    live: BuildsByDay,
    thresholds: Mapping[str, DriftThresholds] | None = None,
    lineage: Collection[str] = (),
) -> list[CheckLine]:
    """Compare the share of nulls in each column before and after, over the days that changed.

    A column has its own line if its share changed by more than its threshold: over all these days,
    or on one day beyond chance. Columns of `lineage` are not judged.
    """
    days = days_with_other_rows(rebuilt, live)
    name = f"null shares {table}"
    if not days:
        return [CheckLine(name, CheckOutcome.SKIPPED, NOTHING_TO_COMPARE, table)]
    after, before = (_shares([side[day] for day in days]) for side in (rebuilt, live))
    moved = {column: abs(after[column] - before[column]) for column in sorted({*after} & {*before})}
    lines = []
    for column, difference in moved.items():
        warn = thresholds_of(column, thresholds).changed
        if column in lineage:
            continue
        on_days = {
            day: f"{day} {shares}"
            for day in days
            if (shares := _moved_share(column, live[day], rebuilt[day], warn))
        }
        if difference > warn or on_days:
            figures = f"nulls {before[column]:.1%} before, {after[column]:.1%} now"
            text = figures_text(figures, list(on_days.values()))
            line = f"{name}.{column}"
            lines.append(
                CheckLine(
                    line,
                    CheckOutcome.DECISION,
                    text,
                    table,
                    tuple(on_days),
                    column=column,
                    excess=excess_of(difference, warn),
                )
            )
    figures = f"{len(moved)} columns over {len(days)} changed day(s)"
    if moved:
        largest = max(moved, key=lambda column: (moved[column], column))
        figures += f"; the largest difference is {moved[largest]:.1%}"
        figures += f" in {largest}" if moved[largest] else ""
    for change, columns in (("new", {*after} - {*before}), ("removed", {*before} - {*after})):
        figures += f"; {change}: {', '.join(sorted(columns))}" if columns else ""
    return [CheckLine(name, CheckOutcome.PASSED, figures, table), *lines]


def excess_of(size: float, bound: float) -> float:
    """The value as a multiple of the bound; a large number for a bound of 0."""
    return size / max(bound, 1e-6)


def _moved_share(column: str, before: Build, now: Build, warn: float) -> str:
    """Both shares of nulls of one day; "" unless the difference beyond chance is above `warn`."""
    if not before.rows or not now.rows or column not in before.nulls.keys() & now.nulls.keys():
        return ""
    nulls = before.nulls[column], now.nulls[column]
    old = nulls[0] / before.rows
    new = nulls[1] / now.rows
    chance = chance_of_share(sum(nulls) / (before.rows + now.rows), before.rows, now.rows)
    return f"{old:.1%} before, {new:.1%} now" if abs(new - old) - chance > warn else ""


def _shares(builds: Sequence[Build]) -> dict[str, float]:
    """The share of nulls in each column over the rows of all these days; 0 without rows."""
    rows = sum(build.rows for build in builds)
    nulls = Counter[str]()
    for build in builds:
        nulls.update(build.nulls)
    return {column: count / rows if rows else 0.0 for column, count in nulls.items()}


def days_with_other_rows(rebuilt: BuildsByDay, live: BuildsByDay) -> list[date]:
    """The days on both sides with different rows. Equal days would dilute a comparison."""
    both = rebuilt.keys() & live.keys()
    return sorted(day for day in both if rebuilt[day].fingerprint != live[day].fingerprint)


def changes_to_live(table: str, rebuilt: BuildsByDay, live: BuildsByDay) -> CheckLine:
    """Count the changes of a publication, from the days' fingerprints. It always passes."""
    changed = len(days_with_other_rows(rebuilt, live))
    new = len(rebuilt.keys() - live.keys())
    rows = sum(build.rows for build in rebuilt.values())
    before = sum(live[day].rows for day in rebuilt if day in live)
    figures = (
        f"{len(rebuilt)} day(s): {changed} changed, {len(rebuilt) - changed - new} as in live,"
        f" {new} new; {before:,} rows become {rows:,} ({rows - before:+,})"
    )
    return _line("changes", table, figures, [])


def _line(
    check: str,
    table: str,
    figures: str,
    days: Iterable[date],
    otherwise: CheckOutcome = CheckOutcome.FAILED,
) -> CheckLine:
    """A line that passes if there are no `days`."""
    wrong = tuple(sorted(days))
    outcome = otherwise if wrong else CheckOutcome.PASSED
    return CheckLine(f"{check} {table}", outcome, figures, table, wrong)


@dataclass(frozen=True)
class TableDays:
    """All days of a live table at one version.

    By day: a hash of the names of its data files, its accepted build, and its damage by others.
    """

    files: Mapping[date, str] = field(default_factory=dict)
    accepted: Mapping[date, Build] = field(default_factory=dict)
    damaged: Mapping[date, Damage] = field(default_factory=dict)


def table_days(folder: str, version: int, accepted: Mapping[date, Build]) -> TableDays:
    """The days of the table in `folder` at `version` (-1: no table), with its accepted builds.

    Raises TableUnreadable if the log no longer has that version.
    """
    table = open_table(folder, version) if version >= 0 else None
    files = data_files(table) if table else {}
    return TableDays(files, accepted, damaged(folder, accepted.values(), version))


class _DayChange(StrEnum):
    """The kinds of change of a live day since the rebuild began."""

    NONE = "identical"
    UPKEEP = "the same rows in other files"
    OTHERS = "built since by others"
    PLAN = "built by this plan, which does not have them"
    FOREIGN = "not as they were built"
    REMOVED = "removed"
    ROLLED_BACK = "removed by a rollback"


_WRONG = (_DayChange.PLAN, _DayChange.FOREIGN, _DayChange.REMOVED)


def outside_days(
    table: str,
    plan: str,
    days: Collection[date],
    opened: TableDays,
    now: TableDays,
    in_shadow: Collection[date] = (),
) -> CheckLine:
    """Check that live's days outside the plan's `days` have not changed since `opened`.

    Days that others built since are counted, because nightly runs continue and publishing keeps
    their rows. The shadow (`in_shadow`) must have no day outside the plan.
    """
    others = {*opened.files, *now.files, *opened.accepted, *now.accepted} - {*days}
    changes = grouped((_change(day, plan, opened, now), day) for day in sorted(others))
    figures = [
        f"{len(changed)} {change}" + ("" if change == _DayChange.NONE else f": {ranges(changed)}")
        for change, changed in changes.items()
    ]
    unplanned = {*in_shadow} - {*days}
    if unplanned:
        figures.append(f"the shadow has days that are not in the plan: {ranges(unplanned)}")
    wrong = sorted(unplanned.union(*(changes.get(change, ()) for change in _WRONG)))
    if wrong and wrong[0] in now.damaged:
        figures.append(f"{wrong[0]}: {now.damaged[wrong[0]]}")
    return _line("days outside the plan", table, "; ".join(figures) or "no other days", wrong)


def _change(day: date, plan: str, opened: TableDays, now: TableDays) -> _DayChange:
    same_files = opened.files.get(day) == now.files.get(day)
    before = opened.accepted.get(day)
    build = now.accepted.get(day)
    same_rows = (before.fingerprint if before else "") == (build.fingerprint if build else "")
    if same_files and same_rows:
        return _DayChange.NONE
    if before and build is None and day not in now.files:
        # A day that another program removed still has its accepted build.
        return _DayChange.ROLLED_BACK
    if day in now.damaged or (same_files and not (build and not build.rows)):
        # A record without a commit, or a commit without a record.
        return _DayChange.FOREIGN
    if build is None:
        return _DayChange.REMOVED if day not in now.files else _DayChange.FOREIGN
    if same_rows:
        return _DayChange.UPKEEP
    return _DayChange.PLAN if build.plan == plan else _DayChange.OTHERS
