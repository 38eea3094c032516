"""The whole checklist of a small rebuild, and how it is shown."""

import io
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from backfill_assets import DriftThresholds, Reconciled, SliceDays, consumer, reconciliation, table
from backfill_assets.diff.diff import TableDiff
from backfill_assets.tables.declaration import Table
from backfill_assets.verbs.verify import markdown, terminal_table, verdict_lines
from backfill_assets.verify.builds import (
    TableDays,
    changes_to_live,
    days_built,
    null_shares,
    planned_code,
    row_counts,
)
from backfill_assets.verify.checklist import CheckLine, CheckOutcome, PlanVerdict, VerdictResult
from backfill_assets.verify.checks import RebuiltTable, checklist
from tests.worlds.deliveries import day, days
from tests.worlds.tables import TABLE, accepted_build, accepted_builds, reader, rows_of_days

OUTSIDE = "days outside the plan"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIVE = rows_of_days([0, 0, 1, 1], id=["a", "b", "a", "b"], n=[1, 2, 3, 4])
NOW = rows_of_days([0, 0, 1, 1], id=["a", "b", "a", "b"], n=[1, 2, 13, 14])


def declared(**fields) -> Table:
    known = {
        "partition_by": "day",
        "columns": "day DATE, id STRING, n BIGINT",
        "reads": {"d": SliceDays()},
        "key": ["id"],
    }
    return table(TABLE, **{"version": "c1", **known, **fields})(as_they_are)


def as_they_are(d):
    return d


@reconciliation(tables=[TABLE])
def ids(read, days):
    rows_of_days = read(TABLE, days)
    return Reconciled(
        f"{rows_of_days.num_rows} rows", [] if rows_of_days.num_rows == 4 else ["not two a day"]
    )


@consumer(tables=[TABLE])
def report(read, days):
    return read(TABLE, days)


def verdict(of: Table, values=NOW, **changed) -> PlanVerdict:
    """The verdict on two rebuilt days, of which the second has other values."""
    live = accepted_builds(0, 1, 5, rows=2, nulls={"id": 0, "n": 0})
    built = {
        **accepted_builds(0, rows=2, nulls={"id": 0, "n": 0}),
        **accepted_builds(1, rows=2, nulls={"id": 0, "n": 0}, fingerprint="g"),
    }
    opened = TableDays({at: f"files of {at}" for at in live}, live)
    known = RebuiltTable(of, "p1", "c1", days(0, 1), built, opened, opened, days(0, 1))
    sides = reader(o=LIVE), reader(o=values)
    lines = checklist([replace(known, **changed)], *sides, declared=[ids, report])
    return PlanVerdict("p1", lines, {f"live {TABLE}": 3}, {TABLE: "c1"}, NOON, "ada")


def outcomes(of: PlanVerdict) -> dict[str, str]:
    return {line.name.replace(f" {TABLE}", ""): line.outcome.value for line in of.lines}


CHECKS = [
    "days built",
    "code version",
    "unique keys",
    "row counts",
    "null shares",
    "drift",
    "changes",
    OUTSIDE,
    "reconciliation ids",
    "consumer report",
]


def test_a_rebuild_that_moved_a_column_needs_one_decision_and_passes_with_it():
    found = verdict(declared())
    assert outcomes(found) == dict.fromkeys(CHECKS, "passed") | {"changes": "decision"}
    assert found.result == VerdictResult.NEEDS_A_DECISION
    assert found.accept(f"changes {TABLE}", who="ada", reason="ten were forgotten", at=NOON).passed


def test_a_table_of_which_nothing_was_built_has_no_figures_to_compare():
    found = verdict(declared(), accepted={}, in_shadow=())
    assert outcomes(found) == {"days built": "passed", OUTSIDE: "passed"}


def test_the_thresholds_declared_with_the_table_are_its_own():
    assert verdict(declared(drift={"n": DriftThresholds(warn=9)})).passed
    assert (
        outcomes(verdict(declared(drift={"n": DriftThresholds(fail=0.25)})))["drift.n"] == "failed"
    )


def test_a_table_with_a_key_is_judged_by_its_rows_unless_it_declares_thresholds():
    rows = {"diff": TableDiff(TABLE, "1", "2", ("id",), keyed=True)}
    assert "drift" not in outcomes(verdict(declared(), **rows))
    for named in ("n", "*"):
        fails = declared(drift={named: DriftThresholds(fail=0.25)})
        assert outcomes(verdict(fails, **rows))["drift.n"] == "failed"
    unkeyed = {"diff": TableDiff(TABLE, "1", "2", keyed=False)}
    assert outcomes(verdict(declared(), **unkeyed))["drift"] == "passed"


def test_thresholds_do_not_change_the_code_version_of_a_table():
    one = declared(version="")
    other = declared(version="", drift={"*": DriftThresholds(9)})
    assert (one.version, one.rules_version) == (other.version, other.rules_version) != ("", "")


@pytest.mark.parametrize("drift", [{"m": DriftThresholds()}, {"n": 0.1}])
def test_thresholds_of_no_column_and_what_is_no_threshold_are_refused(drift):
    with pytest.raises(ValueError, match=r"staging/o: drift=.* DriftThresholds"):
        declared(drift=drift)


def test_whatever_is_wrong_in_a_rebuild_fails_its_own_line():
    twice = rows_of_days([0, 0, 1, 1, 1], id=["a", "b", "a", "a", "b"], n=[1, 2, 3, 3, 4])
    found = verdict(
        declared(), twice, code="c2", unbuilt={day(1): "failed: no rows"}, in_shadow=days(0, 1, 2)
    )
    failed = {name for name, outcome in outcomes(found).items() if outcome == "failed"}
    assert failed == {"days built", "code version", "unique keys", OUTSIDE, "reconciliation ids"}
    assert found.result == VerdictResult.FAILED


def test_a_table_that_live_does_not_have_yet_is_compared_with_nothing():
    found = outcomes(verdict(declared(), opened=TableDays(), now=TableDays()))
    assert {name for name, outcome in found.items() if outcome == "skipped"} == {
        "null shares",
        "drift",
    }
    assert set(found.values()) == {"passed", "skipped"}


def shown(of: PlanVerdict) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(terminal_table(of))
    return out.getvalue()


def test_a_verdict_is_shown_with_figures_with_who_accepted_and_with_what_to_type(golden):
    found = verdict(declared())
    assert f"changes {TABLE}" in shown(found)
    change = next(line for line in found.lines if line.name == f"changes {TABLE}")
    assert change.figures.startswith("n: PSI ")
    golden("\n".join(verdict_lines(found)), "to decide")
    accepted = found.accept(f"changes {TABLE}", who="ada", reason="ten [were] forgotten", at=NOON)
    assert "Accepted by ada: ten [were] forgotten" in " ".join(
        shown(accepted).replace("│", " ").split()
    )
    assert f"row counts {TABLE}" in shown(accepted)
    golden("\n".join(verdict_lines(accepted)), "accepted")
    assert f"| changes {TABLE} | accepted | n: PSI " in markdown(accepted)
    assert next(verdict_lines(accepted)) in markdown(accepted)


def test_what_failed_is_shown_with_its_days_and_cannot_be_accepted():
    found = verdict(declared(), unbuilt={day(1): "missing: never built"})
    line = found.lines[0]
    assert line.outcome == CheckOutcome.FAILED
    findings = "; ".join(line.findings)
    assert f"| {line.name} | failed | {findings} ({day(1)}) |" in markdown(found)
    _, failed, decision, *advice = verdict_lines(found)
    assert decision.startswith("Needs a decision: ")
    assert failed == f"Failed: {line.name}: {line.figures} ({day(1)})"
    assert "cannot be accepted" in advice[0]
    assert "`backfill resume " in advice[1]


def summary(line: CheckLine) -> tuple[str, list]:
    assert line.table == TABLE
    return line.outcome.value, list(line.days)


def figures(of: CheckLine | str) -> list[float]:
    """The numbers of a check, in order."""
    return [
        float(n) for n in re.findall(r"\d+(?:\.\d+)?", of if isinstance(of, str) else of.figures)
    ]


def test_a_plan_is_built_if_each_of_its_days_is(golden):
    assert summary(days_built(TABLE, days(0, 1), days(0, 1), {})) == ("passed", [])
    line = days_built(TABLE, days(0, 1, 2), days(1), {})
    assert summary(line) == ("passed", [])
    golden(line.figures)


def test_days_that_failed_or_were_never_built_are_named_with_why():
    unbuilt = {day(1): "failed: no_nulls: 3 rows\nand where", day(2): "missing: never built"}
    line = days_built(TABLE, days(0, 1, 2), days(0, 1), unbuilt)
    assert summary(line) == ("failed", days(1, 2))
    first = f"{day(1)} failed: no_nulls: 3 rows"
    assert line.figures.split("; ")[1:] == [f"for example {first}"]
    assert line.findings[1:] == (first, f"{day(2)} {unbuilt[day(2)]}")
    five = dict.fromkeys(days(*range(5)), "missing")
    many = days_built(TABLE, list(five), [], five)
    assert summary(many) == ("failed", list(five))
    assert len(many.findings) == 6


def test_a_day_of_other_code_than_planned_fails(golden):
    assert summary(planned_code(TABLE, "c1", accepted_builds(0, 1))) == ("passed", [])
    line = planned_code(TABLE, "c1", accepted_builds(0, 1) | accepted_builds(2, code_version="c2"))
    assert summary(line) == ("failed", [day(2)])
    golden(line.figures)


@pytest.mark.parametrize(
    ("now", "live", "outcome"),
    [
        pytest.param(100, 100, "passed", id="as many as in live"),
        pytest.param(125, 100, "passed", id="at the bound"),
        pytest.param(126, 100, "decision", id="beyond it"),
        pytest.param(79, 100, "decision", id="below it"),
        pytest.param(0, 100, "decision", id="none any more"),
        pytest.param(5, 0, "decision", id="some where live has none"),
        pytest.param(0, 0, "passed", id="none in either"),
    ],
)
def test_the_rows_of_a_day_are_held_against_the_same_day_in_live(now, live, outcome):
    line = row_counts(TABLE, accepted_builds(0, rows=now), accepted_builds(0, rows=live))
    assert summary(line) == (outcome, [day(0)] if outcome == "decision" else [])


def test_rows_of_a_day_are_compared_with_the_median_of_the_days_before(golden):
    live = {at: each for n in range(8) for at, each in accepted_builds(n, rows=10 * n).items()}
    # Of days 0 to 7 the median is 35: five times that are 175.
    assert summary(row_counts(TABLE, accepted_builds(8, rows=175), live)) == ("passed", [])
    line = row_counts(TABLE, accepted_builds(8, rows=176), live)
    assert summary(line) == ("decision", [day(8)])
    golden(line.figures)
    # As many as in live are not held against the days before.
    assert summary(
        row_counts(TABLE, accepted_builds(8, rows=9999), live | accepted_builds(8, rows=9999))
    ) == ("passed", [])
    # Rebuilt, days 1 and 2 have as many rows as the others now: the median is 55.
    rebuilt = accepted_builds(1, 2, rows=60) | accepted_builds(8, rows=176)
    assert day(8) not in row_counts(TABLE, rebuilt, live).days
    # Six days say nothing yet, and days longer ago than 28 neither.
    few = {at: each for at, each in live.items() if at > day(1)}
    assert summary(row_counts(TABLE, accepted_builds(8, rows=9999), few)) == ("passed", [])
    assert summary(row_counts(TABLE, accepted_builds(40, rows=9999), live)) == ("passed", [])


def test_a_column_whose_share_of_nulls_moved_has_a_line_of_its_own(golden):
    live = accepted_builds(0, 1, rows=50, nulls={"a": 10, "b": 0, "old": 1}, fingerprint="old")
    live |= accepted_builds(3, rows=999, nulls={"a": 0, "b": 0})
    now = accepted_builds(0, rows=100, nulls={"a": 25, "b": 3, "new": 100}) | accepted_builds(
        1, rows=100, nulls={"a": 30, "b": 4, "new": 100}
    )
    # a: 20 of 100, then 55 of 200; b: 0, then 7 of 200. Day 2 is not in live, and day 3 has live's
    # rows.
    first, moved = null_shares(
        TABLE, now | accepted_builds(2, rows=5, nulls={"b": 5}) | {day(3): live[day(3)]}, live
    )
    assert summary(first) == ("passed", [])
    assert (moved.name, summary(moved)) == (f"null shares {TABLE}.a", ("decision", []))
    golden(f"{first.figures}\n{moved.figures}")
    assert len(null_shares(TABLE, now, live, {"*": DriftThresholds(changed=0.01)})) == 3
    assert len(null_shares(TABLE, now, live, {"a": DriftThresholds(changed=0.08)})) == 1


def test_a_day_of_nulls_is_not_watered_down_by_thirty_days_that_have_none():
    live = accepted_builds(*range(31), rows=100, nulls={"a": 0, "b": 0}, fingerprint="old")
    now = accepted_builds(*range(31), rows=100, nulls={"a": 0, "b": 3}) | accepted_builds(
        7, rows=100, nulls={"a": 100, "b": 3}
    )
    first, moved = null_shares(TABLE, now, live)
    assert summary(first) == ("passed", [])
    assert (moved.name, summary(moved)) == (f"null shares {TABLE}.a", ("decision", [day(7)]))
    together, of_day = moved.figures.split(f"; {day(7)} ")
    assert (figures(together), figures(of_day)) == ([0.0, 3.2], [0.0, 100.0])


def test_one_null_in_a_day_of_few_rows_is_chance():
    live, now = (
        accepted_builds(*range(31), rows=5, nulls={"a": 0}, fingerprint=of) for of in ("old", "new")
    )
    now |= accepted_builds(7, rows=5, nulls={"a": 1}, fingerprint="new")
    assert len(null_shares(TABLE, now, live)) == 1


def test_nulls_are_not_compared_for_days_that_are_new_or_equal_in_live():
    for live in ({}, accepted_builds(0, nulls={"a": 1})):
        (line,) = null_shares(TABLE, accepted_builds(0, nulls={"a": 1}), live)
        assert summary(line) == ("skipped", [])


def test_no_rows_have_no_nulls():
    (line,) = null_shares(
        TABLE,
        accepted_builds(0, rows=0, nulls={}),
        accepted_builds(0, nulls={"a": 1}, fingerprint="old"),
    )
    assert summary(line) == ("passed", [])
    assert figures(line) == [0, 1]


def test_changes_are_counted_by_fingerprints(golden):
    now = (
        accepted_builds(0, rows=4)
        | accepted_builds(1, rows=7, fingerprint="g")
        | accepted_builds(2, rows=9)
    )
    line = changes_to_live(
        TABLE,
        now,
        accepted_builds(0, rows=4) | accepted_builds(1, rows=5) | {day(5): accepted_build(5)},
    )
    assert summary(line) == ("passed", [])
    golden(line.figures)
