"""The whole checklist of a small rebuild, and how it is shown."""

import io
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from backfill_assets import DriftThresholds, Reconciled, SliceDays, consumer, reconciliation, table
from backfill_assets.tables.declaration import Table
from backfill_assets.verify.builds import TableDays
from backfill_assets.verify.checklist import Outcome, Result, Verdict
from backfill_assets.verify.checks import RebuiltTable, checklist
from backfill_assets.verify.text import ending_lines, markdown, terminal_table
from tests.worlds.deliveries import day, days
from tests.worlds.rows import TABLE, accepted_builds, reader, rows_of_days

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


def verdict(of: Table, values=NOW, **changed) -> Verdict:
    """The verdict on two rebuilt days, of which the second has other values."""
    live = accepted_builds(0, 1, 5, rows=2, nulls={"id": 0, "n": 0})
    built = {
        **accepted_builds(0, rows=2, nulls={"id": 0, "n": 0}),
        **accepted_builds(1, rows=2, nulls={"id": 0, "n": 0}, fingerprint="g"),
    }
    opened = TableDays({at: f"files of {at}" for at in live}, live)
    known = RebuiltTable(of, "p1", "c1", days(0, 1), built, opened, opened, days(0, 1))
    sides = reader(o=LIVE), reader(o=values)
    lines = checklist([replace(known, **changed)], *sides, reconciled=[ids], consumed_by=[report])
    return Verdict("p1", lines, {f"live {TABLE}": 3}, {TABLE: "c1"}, NOON, "ada")


def outcomes(of: Verdict) -> dict[str, str]:
    return {line.name.replace(f" {TABLE}", ""): line.outcome.value for line in of.lines}


def test_a_rebuild_that_moved_a_column_needs_one_decision_and_passes_with_it():
    found = verdict(declared())
    assert outcomes(found) == {
        "days built": "passed", "code version": "passed", "row counts": "passed", "null shares": "passed",
        "unique keys": "passed", "drift": "passed", "drift.n": "decision", "days outside the plan": "passed",
        "changes": "passed", "reconciliation ids": "passed", "consumer report": "passed",
    }  # fmt: skip
    assert found.result == Result.NEEDS_A_DECISION
    assert found.accept(f"drift {TABLE}.n", who="ada", reason="ten were forgotten", at=NOON).passed


def test_a_table_of_which_nothing_was_built_has_no_figures_to_compare():
    found = verdict(declared(), accepted={}, in_shadow=())
    assert outcomes(found) == {"days built": "passed", "days outside the plan": "passed"}


def test_the_thresholds_declared_with_the_table_are_its_own():
    assert verdict(declared(drift={"n": DriftThresholds(warn=9)})).passed
    assert (
        outcomes(verdict(declared(drift={"n": DriftThresholds(fail=0.25)})))["drift.n"] == "failed"
    )


def test_thresholds_do_not_change_the_code_version_of_a_table():
    one = declared(version="")
    other = declared(version="", drift={"*": DriftThresholds(9)})
    assert (one.version, one.rules_version) == (other.version, other.rules_version) != ("", "")


@pytest.mark.parametrize("drift", [{"m": DriftThresholds()}, {"n": 0.1}])
def test_thresholds_of_no_column_and_what_is_no_threshold_are_refused(drift):
    with pytest.raises(
        ValueError, match=r"staging/o: drift=.*: write a column, or \"\*\", and its DriftThresholds"
    ):
        declared(drift=drift)


def test_whatever_is_wrong_in_a_rebuild_fails_its_own_line():
    twice = rows_of_days([0, 0, 1, 1, 1], id=["a", "b", "a", "a", "b"], n=[1, 2, 3, 3, 4])
    found = verdict(
        declared(), twice, code="c2", unbuilt={day(1): "failed: no rows"}, in_shadow=days(0, 1, 2)
    )
    wrong = {name for name, outcome in outcomes(found).items() if outcome == "failed"}
    assert wrong == {
        "days built",
        "code version",
        "unique keys",
        "days outside the plan",
        "reconciliation ids",
    }
    assert found.result == Result.FAILED


def test_a_table_that_live_does_not_have_yet_is_compared_with_nothing():
    found = outcomes(verdict(declared(), opened=TableDays(), now=TableDays()))
    assert {name for name, outcome in found.items() if outcome == "skipped"} == {
        "null shares",
        "drift",
    }
    assert set(found.values()) == {"passed", "skipped"}


def shown(of: Verdict, *, with_passed: bool = True) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(terminal_table(of, with_passed=with_passed))
    return out.getvalue()


def test_a_verdict_is_shown_with_figures_with_who_accepted_and_with_what_to_type():
    found = verdict(declared())
    assert f"drift {TABLE}.n" in shown(found)
    assert list(ending_lines(found)) == [
        "Plan p1: needs a decision (10 passed, 1 decision). Nothing was published.",
        f'To accept drift {TABLE}.n: `backfill verify p1 --accept "drift {TABLE}.n" --reason ...`',
    ]
    accepted = found.accept(f"drift {TABLE}.n", who="ada", reason="ten [were] forgotten", at=NOON)
    assert "Accepted by ada: ten [were] forgotten" in " ".join(
        shown(accepted).replace("│", " ").split()
    )
    assert [
        f"row counts {TABLE}" in shown(accepted, with_passed=each) for each in (True, False)
    ] == [True, False]
    assert f"drift {TABLE}.n" in shown(accepted, with_passed=False)
    (line,) = [line for line in markdown(accepted).splitlines() if f"drift {TABLE}.n" in line]
    assert line.startswith(f"| drift {TABLE}.n | accepted | stability index ")
    assert "Plan p1: passed" in markdown(accepted)


def test_what_failed_is_shown_with_its_days_and_cannot_be_accepted():
    found = verdict(declared(), unbuilt={day(1): "missing: never built"})
    assert (
        f"| days built {TABLE} | failed | 1 of 2 days built; {day(1)} missing: never built"
        f" ({day(1)}) |" in markdown(found)
    )
    assert (
        f"Failed: days built {TABLE}: 1 of 2 days built; {day(1)} missing: never built ({day(1)})"
        in markdown(found)
    )
    assert (
        "What failed is mended and built again, not accepted: by `backfill resume` if days are"
        " missing" in markdown(found)
    )
    assert found.lines[0].outcome == Outcome.FAILED
