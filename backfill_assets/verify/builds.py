"""Checks that are answered by the builds of a table's days. No row is read.

One of them is that a rebuild changed no day outside its plan, by the data files and fingerprints of
all days.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from statistics import median

from backfill_assets.calendar import ranges
from backfill_assets.lake.damage import Damage
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.integrity import damaged, data_files, day_files
from backfill_assets.lake.ledger import Build
from backfill_assets.quality.drift import chance_of_share
from backfill_assets.quality.rules import ENOUGH_TRAILING_DAYS, TRAILING_DAYS
from backfill_assets.verify.checklist import CheckLine, CheckOutcome

_EXAMPLES_SHOWN = 3
NOTHING_TO_COMPARE = "nothing to compare: live has none of these days, or the same rows"
BuildsByDay = Mapping[date, Build]
_Bounds = tuple[float, float]


@dataclass(frozen=True)
class RowBounds:
    """How many rows a rebuilt day may have without anybody looking at it: as multiples of what live
    has of the same day or, of a day that live does not have, of the median of the 28 days before
    it.
    """

    of_live: _Bounds = (0.8, 1.25)
    of_usual: _Bounds = (0.2, 5.0)


def days_built(
    table: str, days: Collection[date], rebuilt: Collection[date], unbuilt: Mapping[date, str]
) -> CheckLine:
    """Every day of the plan is as it should be: `rebuilt`, or up to date in live. `unbuilt`: the
    days that are not, and why.
    """
    of_live = len({*days} - {*rebuilt} - unbuilt.keys())
    figures = f"{len(days) - len(unbuilt) - of_live} of {len(days)} days built"
    figures += f", {of_live} up to date in live" if of_live else ""
    for day in sorted(unbuilt)[:_EXAMPLES_SHOWN]:
        figures += f"; {day} {unbuilt[day].strip().partition(chr(10))[0]}"
    if len(unbuilt) > _EXAMPLES_SHOWN:
        figures += f"; {len(unbuilt)} days are not built: {ranges(unbuilt)}"
    return _line("days built", table, figures, sorted(unbuilt))


def planned_code(table: str, code: str, accepted: BuildsByDay) -> CheckLine:
    """Every day was built by the code version `code`, which the plan was made for."""
    others = sorted(day for day, build in accepted.items() if build.code_version != code)
    versions = Counter(build.code_version for build in accepted.values())
    counted = ", ".join(f"{version} on {n} day(s)" for version, n in versions.most_common())
    return _line("code version", table, f"planned {code}; built by {counted or 'none'}", others)


def row_counts(
    table: str, rebuilt: BuildsByDay, live: BuildsByDay, bounds: RowBounds | None = None
) -> CheckLine:
    """The rows of each rebuilt day, against those of the same day in live; of a day that live does
    not have, against the median of the 28 days before it.

    A day as unusual as it is in live already needs nobody's decision. `live` has the accepted
    builds of all days; of the days before, those that were rebuilt count as rebuilt, and fewer than
    7 say nothing.
    """
    bounds = bounds or RowBounds()
    rows = {day: build.rows for day, build in {**live, **rebuilt}.items()}
    outside: dict[date, str] = {}
    for day, build in sorted(rebuilt.items()):
        for expected, (low, high), what in _expected(day, live, rows, bounds):
            if not low * expected <= build.rows <= high * expected:
                outside[day] = f"{day} {build.rows:,} rows, {expected:,.0f} {what}"
    figures = (
        f"{sum(build.rows for build in rebuilt.values()):,} rows in {len(rebuilt)} day(s),"
        f" {sum(live[day].rows for day in rebuilt if day in live):,} in live; a day may have"
        f" {bounds.of_live[0]:g} to {bounds.of_live[1]:g} times live's, a new one"
        f" {bounds.of_usual[0]:g} to {bounds.of_usual[1]:g} times the usual"
    )
    return _line(
        "row counts", table, _with_examples(figures, outside), outside, CheckOutcome.DECISION
    )


def _expected(
    day: date, live: BuildsByDay, rows: Mapping[date, int], bounds: RowBounds
) -> Iterator[tuple[float, _Bounds, str]]:
    """What the rows of a day are held against, by which bounds, and what it is called; nothing if
    nothing is known.
    """
    before = [
        rows[d] for n in range(1, TRAILING_DAYS + 1) if (d := day - timedelta(days=n)) in rows
    ]
    if day in live:
        yield live[day].rows, bounds.of_live, "in live"
    elif len(before) >= ENOUGH_TRAILING_DAYS:
        yield median(before), bounds.of_usual, "usual"


def null_shares(
    table: str, rebuilt: BuildsByDay, live: BuildsByDay, warn: float = 0.05
) -> list[CheckLine]:
    """The share of nulls in each column, before and after, over the days that changed; a line more
    for each column whose share moved by more than `warn`: over all of them together, or on a day by
    more than that beyond what is chance.
    """
    days = days_with_other_rows(rebuilt, live)
    name = "null shares"
    if not days:
        return [CheckLine(f"{name} {table}", CheckOutcome.SKIPPED, NOTHING_TO_COMPARE, table)]
    after, before = (_shares([side[day] for day in days]) for side in (rebuilt, live))
    moved = {
        c: f"{before[c]:.1%} before, {share:.1%} now"
        for c, share in after.items()
        if abs(share - before.get(c, share)) > warn
    }
    on_days = _moved_by_day([(day, live[day], rebuilt[day]) for day in days], warn)
    apart = {column: abs(after[column] - before[column]) for column in after.keys() & before.keys()}
    largest = max(apart, key=lambda column: (apart[column], column), default="")
    figures = f"{len(apart)} columns over {len(days)} changed day(s)"
    if apart:
        difference = (
            f"the largest difference is {apart[largest]:.1%} in {largest}"
            if apart[largest]
            else "none differs"
        )
        figures += f"; {difference}; a person decides beyond {warn:.1%}"
    for what, columns in (
        ("new", after.keys() - before.keys()),
        ("gone", before.keys() - after.keys()),
    ):
        figures += f"; {what}: {', '.join(sorted(columns))}" if columns else ""
    farther = {
        column: f"{before[column]:.1%} before, {after[column]:.1%} now" for column in on_days
    } | moved
    lines = [
        CheckLine(
            f"{name} {table}.{column}",
            CheckOutcome.DECISION,
            _with_examples(said, of_days),
            table,
            tuple(of_days),
        )
        for column, said in farther.items()
        if (of_days := on_days.get(column, {})) or column in moved
    ]
    figures += f"; farther: {', '.join(farther)}" if farther else ""
    return [CheckLine(f"{name} {table}", CheckOutcome.PASSED, figures, table), *lines]


def _moved_by_day(
    days: Iterable[tuple[date, Build, Build]], warn: float
) -> dict[str, dict[date, str]]:
    """Of each column the days, with their builds in live and rebuilt, on which its share of nulls
    moved.
    """
    moved: dict[str, dict[date, str]] = {}
    for day, before, now in days:
        for column in (
            sorted(before.nulls.keys() & now.nulls.keys()) if before.rows and now.rows else ()
        ):
            nulls = before.nulls[column], now.nulls[column]
            shares = nulls[0] / before.rows, nulls[1] / now.rows
            chance = chance_of_share(sum(nulls) / (before.rows + now.rows), before.rows, now.rows)
            if abs(shares[1] - shares[0]) - chance > warn:
                moved.setdefault(column, {})[day] = (
                    f"{day} {shares[0]:.1%} before, {shares[1]:.1%} now"
                )
    return moved


def _shares(builds: Sequence[Build]) -> dict[str, float]:
    """Of each column, the share of nulls in the rows of all these days; a day without rows has no
    nulls to count.
    """
    rows = sum(build.rows for build in builds)
    nulls = Counter[str]()
    for build in builds:
        nulls.update(build.nulls)
    return {column: count / rows if rows else 0.0 for column, count in nulls.items()}


def days_with_other_rows(rebuilt: BuildsByDay, live: BuildsByDay) -> list[date]:
    """The days that both have, with other rows: what is compared is not watered down by days that
    are as they were.
    """
    return sorted(
        day for day in rebuilt if day in live and rebuilt[day].fingerprint != live[day].fingerprint
    )


def changes_to_live(table: str, rebuilt: BuildsByDay, live: BuildsByDay) -> CheckLine:
    """What a publish would change, by the days' fingerprints: it passes always."""
    changed = days_with_other_rows(rebuilt, live)
    new = [day for day in rebuilt if day not in live]
    rows = sum(build.rows for build in rebuilt.values())
    before = sum(live[day].rows for day in rebuilt if day in live)
    figures = (
        f"{len(rebuilt)} day(s): {len(changed)} changed, {len(rebuilt) - len(changed) - len(new)}"
        f" as in live, {len(new)} new; {before:,} rows become {rows:,} ({rows - before:+,})"
    )
    return _line("changes", table, figures, [])


def _with_examples(figures: str, examples: Mapping[date, str]) -> str:
    more = (
        [f"and {len(examples) - _EXAMPLES_SHOWN} more days"]
        if len(examples) > _EXAMPLES_SHOWN
        else []
    )
    return "; ".join([figures, *list(examples.values())[:_EXAMPLES_SHOWN], *more])


def _line(
    check: str,
    table: str,
    figures: str,
    days: Iterable[date],
    otherwise: CheckOutcome = CheckOutcome.FAILED,
) -> CheckLine:
    """A line that passes if no day is left over."""
    at_fault = tuple(sorted(days))
    return CheckLine(
        f"{check} {table}", otherwise if at_fault else CheckOutcome.PASSED, figures, table, at_fault
    )


class _DayChange(StrEnum):
    """What became of a day since the rebuild was begun."""

    NONE = "identical"
    UPKEEP = "the same rows in other files"
    OTHERS = "built since by others"
    PLAN = "built by this plan, which does not have them"
    FOREIGN = "not as they were built"
    GONE = "gone"


_AT_FAULT = (_DayChange.PLAN, _DayChange.FOREIGN, _DayChange.GONE)


@dataclass(frozen=True)
class TableDays:
    """All days of a live table at one version: a hash of each one's data files, its accepted build,
    and what somebody else did to it since that.
    """

    files: Mapping[date, str] = field(default_factory=dict)
    accepted: Mapping[date, Build] = field(default_factory=dict)
    damaged: Mapping[date, Damage] = field(default_factory=dict)


def table_days(folder: str, version: int, accepted: Mapping[date, Build]) -> TableDays:
    """The days of the table in `folder` at `version` (-1: no table), with the builds that were
    accepted then.

    Raises TableUnreadable if the log does not have that version any more.
    """
    table = open_table(folder, version) if version >= 0 else None
    files = data_files(table, {day for day, _, _ in day_files(table)}) if table else {}
    return TableDays(files, accepted, damaged(folder, accepted.values(), version))


def outside_days(
    table: str,
    plan: str,
    days: Collection[date],
    opened: TableDays,
    now: TableDays,
    in_shadow: Collection[date] = (),
) -> CheckLine:
    """Live's days outside of the plan's `days` are as they were when the rebuild was begun
    (`opened`), but for those that others built since; and the shadow has no day that the plan has
    not.

    Nightly runs go on while a plan is rebuilt, and what they build is not the plan's: it is
    counted, and publishing keeps it.
    """
    others = {*opened.files, *now.files, *opened.accepted, *now.accepted} - set(days)
    found: dict[_DayChange, list[date]] = {}
    for day in sorted(others):
        found.setdefault(_change(day, plan, opened, now), []).append(day)
    figures = [
        f"{len(of)} {change}" + ("" if change == _DayChange.NONE else f": {ranges(of)}")
        for change, of in found.items()
    ]
    too_many = sorted(set(in_shadow) - set(days))
    figures += (
        [f"the shadow has days that are not in the plan: {ranges(too_many)}"] if too_many else []
    )
    wrong = sorted({*too_many, *(day for change in _AT_FAULT for day in found.get(change, ()))})
    figures += [f"{day}: {now.damaged[day]}" for day in wrong[:1] if day in now.damaged]
    outcome = CheckOutcome.FAILED if wrong else CheckOutcome.PASSED
    return CheckLine(
        f"days outside the plan {table}",
        outcome,
        "; ".join(figures) or "no other days",
        table,
        tuple(wrong),
    )


def _change(day: date, plan: str, opened: TableDays, now: TableDays) -> _DayChange:
    same_files = opened.files.get(day) == now.files.get(day)
    before = opened.accepted.get(day)
    build = now.accepted.get(day)
    same_rows = (before.fingerprint if before else "") == (build.fingerprint if build else "")
    if same_files and same_rows:
        return _DayChange.NONE
    if day in now.damaged or (same_files and not (build and not build.rows)):
        # A record without a commit, or the reverse.
        return _DayChange.FOREIGN
    if build is None:
        return _DayChange.GONE if day not in now.files else _DayChange.FOREIGN
    if same_rows:
        return _DayChange.UPKEEP
    return _DayChange.PLAN if build.plan == plan else _DayChange.OTHERS
