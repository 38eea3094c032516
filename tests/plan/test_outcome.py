"""What a backfill made of its days, read from the ledger."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from backfill_assets.calendar import Partition
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.plan.progress import TableOutcome, lines, outcomes
from backfill_assets.plan.remaining import WorkState

DAYS = [date(2019, 9, n) for n in range(1, 7)]
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = {"rule": "has_rows", "passed": True}
BAD = {"rule": "has_rows", "passed": False}


def build(
    day: int, outcome: str, plan: str, rows: int = 10, checks: tuple = (GOOD,), minute: int = 0
) -> Build:
    at = BEGAN + timedelta(minutes=minute)
    made = Build(
        "raw/a",
        DAYS[day],
        outcome,  # type: ignore[arg-type]
        "a run",
        "1",
        rows=rows,
        checks=checks,
        seconds=1.5,
        at=at,
    )
    return replace(made, plan=plan)


def states(*of: WorkState, table: str = "raw/a") -> dict[Partition, WorkState]:
    return {(table, day): state for day, state in zip(DAYS, of, strict=False)}


DONE = WorkState.DONE
FAILED = WorkState.FAILED
BLOCKED = WorkState.BLOCKED
PENDING = WorkState.PENDING


def test_every_day_is_counted_once_by_what_became_of_it(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(0, "accepted", "earlier"), build(2, "accepted", "earlier", rows=7)])
    ledger.append(
        [
            build(1, "accepted", "now", minute=1),
            build(2, "failed", "now", checks=(GOOD, BAD), minute=1),
        ]
    )
    ledger.append([build(3, "unchanged", "now", minute=1)])
    (outcome,) = outcomes(ledger, states(DONE, DONE, FAILED, DONE, BLOCKED, PENDING), "now")
    assert outcome == TableOutcome(
        "raw/a",
        days=6,
        changed=1,
        unchanged=1,
        up_to_date=1,
        failed=1,
        blocked=1,
        not_run=1,
        rows=30,
        checks=5,
        checks_passed=4,
        seconds=4.5,
    )
    values = outcome.values()
    counted = ("written", "same rows", "up to date", "failed", "blocked", "running", "not run")
    assert sum(int(values[name]) for name in counted) == outcome.days
    assert set(counted) <= set(lines([outcome, replace(outcome, running=1)])[0])


def test_a_day_that_failed_and_is_up_to_date_again_is_not_failed(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append(
        [build(0, "accepted", "earlier"), build(0, "failed", "now", checks=(BAD,), minute=1)]
    )
    (outcome,) = outcomes(ledger, states(DONE), "now")
    assert (
        outcome.done,
        outcome.up_to_date,
        outcome.failed,
        outcome.checks_passed,
        outcome.checks,
    ) == (1, 1, 0, 1, 1)


def test_the_outcome_of_a_plan_counts_no_older_builds(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(n, "accepted", "earlier", rows=100 + n) for n in range(4)])
    ledger.append([build(0, "failed", "earlier", checks=(BAD, BAD), minute=1)])
    (outcome,) = outcomes(ledger, states(FAILED, BLOCKED, PENDING, DONE), "now")
    assert outcome == TableOutcome(
        "raw/a",
        days=4,
        up_to_date=1,
        failed=1,
        blocked=1,
        not_run=1,
        rows=103,
        checks=1,
        checks_passed=1,
    )


def test_a_day_that_is_being_computed_is_running(tmp_path):
    at_work = {("raw/a", DAYS[0]), ("raw/a", DAYS[1])}
    made = outcomes(Ledger(str(tmp_path)), states(DONE, PENDING, PENDING), "now", at_work)
    assert made == [TableOutcome("raw/a", days=3, up_to_date=1, running=1, not_run=1)]


def test_columns_of_days_that_no_table_has_are_left_out():
    columns, rows = lines([TableOutcome("raw/a", 2, changed=2), TableOutcome("raw/b", 1, failed=1)])
    assert columns == ["table", "days", "written", "failed", "rows", "checks", "seconds"]
    assert [row[:4] for row in rows] == [["raw/a", "2", "2", "0"], ["raw/b", "1", "0", "1"]]


def test_days_of_other_tables_and_days_not_requested_do_not_count(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(3, "accepted", "now")])
    requested = states(PENDING) | states(PENDING, table="raw/b")
    assert outcomes(ledger, requested, "now") == [
        TableOutcome("raw/a", 1, not_run=1),
        TableOutcome("raw/b", 1, not_run=1),
    ]
