"""The audit of computed rows: profile each day, and judge it by every rule.

It is the gate before the commit. For `rules.no_leak`, the day with the most rows is computed a
second time. A leak is a property of the code, so one day is enough. If its rows change, no day is
committed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.errors import first_line
from backfill_assets.lake.history import Latest
from backfill_assets.lake.spark.session import without_code_generation
from backfill_assets.point_in_time.leaks import leaks
from backfill_assets.quality.masking import masked_samples
from backfill_assets.quality.profile import offending_rows, profiles, repeated_keys
from backfill_assets.quality.rule import LONGEST_ERROR, DayProfile, RuleVerdict
from backfill_assets.quality.rules import ENOUGH_TRAILING_DAYS, trailing_days
from backfill_assets.step.accept import is_accepted
from backfill_assets.step.compute import SMALL, Computed, InputRows
from backfill_assets.step.errors import failure_text, is_of_step
from backfill_assets.step.inputs import (
    UNDECLARED,
    AcceptedBuilds,
    Baseline,
    is_filled,
    with_accepted,
)
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table

# Each day and rule is a query, and a new rule may fail every day of several years.
_DAYS_SHOWN = 10


@dataclass(frozen=True)
class Audited:
    """The profile and the verdicts of one day.

    `failing_rows` has up to five rows by rule, for the first failed days of a step. `accept` are
    the accepted names, separated by commas. `not_merged` says why rows cannot be merged by key.
    """

    profile: DayProfile
    verdicts: Sequence[RuleVerdict]
    failing_rows: Mapping[str, Sequence[str]] = field(default_factory=dict)
    accept: str = ""
    not_merged: str = ""

    @property
    def passed(self) -> bool:
        return not (self.not_merged or any(verdict.refuses for verdict in self.verdicts))

    def warnings(self) -> str:
        """The rules that warn about the day, without accepted rules."""
        return "; ".join(
            f"{verdict.rule}: {verdict.message}"
            for verdict in self.verdicts
            if not verdict.passed
            and not verdict.refuses
            and not is_accepted(verdict.rule, self.accept)
        )

    def why(self) -> str:
        """The rules that refused the day, with figures and rows; "" if it passed."""
        reasons = [self.not_merged] if self.not_merged else []
        for verdict in (v for v in self.verdicts if v.refuses):
            rows = _on_lines(self.failing_rows.get(verdict.rule, ()))
            reasons.append(f"{verdict.rule}: {verdict.message}{rows}")
        return "; ".join(reasons)


def _on_lines(rows: Iterable[str]) -> str:
    return "".join(f"\n      {row}" for row in rows)


def audit(
    table: Table,
    computed: Computed,
    days: Sequence[date],
    builds: Latest,
    baselines: Mapping[date, Baseline],
    leaks: Sequence[str] | None = None,
) -> dict[date, Audited]:
    """Judge every day, in order, including days without rows.

    `builds` are the latest builds before this step. `baselines` has the comparison of each day.
    `leaks` are the rows that `rules.no_leak` found.
    """
    faults = computed.schema_mismatches
    measured = {} if faults else computed.profiles
    if measured is None:
        measured = _measure(table, computed.after, computed.merge_key)
    audited: dict[date, Audited] = {}
    failed = 0
    for day in sorted(days):
        baseline = baselines[day]
        past = list(_past_days(table, day, builds.accepted, baselines, audited))
        no_rows = DayProfile(day, measures=dict.fromkeys(table.all_measures, 0))
        figures = measured.get(day, no_rows)
        profile = replace(
            figures,
            samples=masked_samples(figures.samples, table.all_samples, table.masked_columns),
            schema_mismatches=faults,
            filled_before=baseline.filled,
            **_usual(table, baseline, past),
            leaks=leaks,
            dropped=computed.dropped,
            trailing_rows=[past_day.rows for past_day in past],
            compared_rows={
                other.name: build.rows
                for other in table.compared_with
                if (build := builds.accepted.get((other.name, day)))
            },
        )
        lines = sum(baseline.delivery.files.values())
        is_empty = baseline.may_be_empty and not profile.rows and not lines
        unjudged = faults or is_empty
        rules = table.rules[:1] if unjudged else with_accepted(table, baseline.accept)
        verdicts = [rule.verdict(profile) for rule in rules]
        is_repeated = bool(computed.merge_key and profile.repeated_keys)
        failed += is_repeated or not all(verdict.passed for verdict in verdicts)
        is_shown = failed <= _DAYS_SHOWN
        shown = _at_fault(table, computed, day, verdicts) if is_shown else {}
        not_merged = ""
        if is_repeated:
            repeated = _rows_shown(table, computed, day, None) if is_shown else ()
            number = profile.repeated_keys
            keys = "1 key is" if number == 1 else f"{number:,} keys are"
            not_merged = (
                f"merge: {keys} in several rows, and a merge needs one row per key"
                f" ({', '.join(computed.merge_key)}){_on_lines(repeated)}"
            )
        audited[day] = Audited(profile, verdicts, shown, baseline.accept, not_merged)
    return audited


def _measure(table: Table, rows: DataFrame, merge_key: Sequence[str]) -> dict[date, DayProfile]:
    """The profile of each day. Keys are counted in a second thread: both mostly wait for Spark."""
    day = table.partition_by
    with ThreadPoolExecutor(1) as executor:
        counting = (
            executor.submit(repeated_keys, rows, day=day, key=table.key)
            if table.counts_keys or merge_key
            else None
        )
        by_day = profiles(
            rows,
            day=day,
            about=table.fingerprint_by,
            measures=table.all_measures,
            samples=table.all_samples,
        )
        for on, count in counting.result().items() if counting else ():
            by_day[on] = replace(by_day[on], repeated_keys=count)
    return by_day


class _PastDay(NamedTuple):
    """The figures of a day, for comparison with later days."""

    rows: int
    nulls: Mapping[str, int]
    lines: int
    undeclared: Sequence[str]


def _past_days(
    table: Table,
    day: date,
    accepted: AcceptedBuilds,
    baselines: Mapping[date, Baseline],
    audited: Mapping[date, Audited],
) -> Iterator[_PastDay]:
    """Yield the accepted days among the 28 before, the latest first, including this run's."""
    for on in trailing_days(day):
        if table.expected and not table.expected(on):
            continue
        today = audited.get(on)
        if today and today.passed:
            profile = today.profile
            delivery = baselines[on].delivery
            lines = sum(delivery.files.values())
            yield _PastDay(profile.rows, profile.nulls, lines, delivery.undeclared)
        elif (
            build := baselines[day].before.get(on) or accepted.get((table.name, on))
        ) and not build.is_closed:
            lines = sum(build.files.values())
            undeclared = build.samples.get(UNDECLARED, ())
            yield _PastDay(build.rows, build.nulls, lines, undeclared)


def _usual(table: Table, baseline: Baseline, past: Sequence[_PastDay]) -> dict[str, Any]:
    """The usual figures for a day's delivery. `past` are the days before, the latest first."""
    if not table.sources():
        return {}
    recent = [past_day for past_day in past if past_day.rows][:ENOUGH_TRAILING_DAYS]
    delivery = baseline.delivery
    vanished = set[str]()
    if past and delivery.columns:
        vanished = {*past[0].undeclared}.difference(delivery.columns)
    return {
        "lines": sum(delivery.files.values()),
        "trailing_lines": [past_day.lines for past_day in past],
        "usually_filled": [
            name
            for name in sorted(types_of(table.columns))
            if recent
            and name not in baseline.optional
            and not is_accepted("columns_still_filled", baseline.accept)
            and all(is_filled(past_day.rows, past_day.nulls, name) for past_day in recent)
            and not is_accepted(name, baseline.accept)
        ],
        "absent": delivery.absent,
        "notes": delivery.notes,
        "vanished": sorted(vanished),
    }


def _at_fault(
    table: Table, computed: Computed, day: date, verdicts: Sequence[RuleVerdict]
) -> dict[str, list[str]]:
    conditions = {
        rule.name: rule.offending for rule in table.rules if rule.offending or rule.counts_keys
    }
    return {
        v.rule: _rows_shown(table, computed, day, conditions[v.rule])
        for v in verdicts
        if not v.passed and v.rule in conditions
    }


def _rows_shown(table: Table, computed: Computed, day: date, condition: str | None) -> list[str]:
    """Rows that broke a rule, or the reason why they cannot be shown.

    The verdict holds in either case.
    """
    try:
        return offending_rows(
            computed.after,
            day=table.partition_by,
            on=day,
            key=table.key,
            condition=condition,
            masked=table.masked_columns,
        )
    except Exception as error:
        if is_of_step(error):
            raise
        why = first_line(failure_text(error, table), LONGEST_ERROR)
        return [f"its rows cannot be shown: {condition or 'its keys'} raised {why}"]


def leaks_of_step(
    table: Table,
    days: Sequence[date],
    computed: Computed,
    read: Callable[[Sequence[date]], InputRows],
) -> list[str] | None:
    """Rows that change if later knowledge is left out.

    None if the table has no rule `no_leak`, or no row has a cut.
    """
    cut = next((rule.cut for rule in table.rules if rule.cut), None)
    if computed.schema_mismatches or cut is None:
        return None
    day = F.col(table.partition_by)
    row_counts = (
        computed.after.where(F.col(cut.column).isNotNull())
        .groupBy(day.alias("day"))
        .count()
        .collect()
    )
    if not row_counts:
        return None
    most = max(row["count"] for row in row_counts)
    candidates = sorted(row["day"] for row in row_counts if row["count"] == most)
    chosen = candidates[len(candidates) // 2]
    inputs = read([chosen])
    rows = computed.after.where(day == F.lit(chosen))
    with without_code_generation(rows.sparkSession, unless=inputs.size > SMALL):
        return leaks(table, inputs.rows, rows)
