"""What a backfill made of its days, read from the ledger."""

from datetime import UTC, date, datetime, timedelta

from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import Build
from backfill_assets.plan.outcome import TableOutcome, outcomes

DAYS = [date(2019, 9, n) for n in range(1, 5)]
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
GOOD, BAD = {"rule": "has_rows", "passed": True}, {"rule": "has_rows", "passed": False}


def build(day: int, outcome: str, run: str, rows: int = 10, checks: tuple = (GOOD,), minute: int = 0) -> Build:
    at = BEGAN + timedelta(minutes=minute)
    return Build("raw/a", DAYS[day], outcome, run, "1", rows=rows, checks=checks, seconds=1.5, at=at)  # type: ignore[arg-type]


def by(*runs: str):
    return lambda build: build.run in runs


def test_built_up_to_date_failed_and_missing_days_are_counted_apart(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(0, "accepted", "earlier"), build(2, "accepted", "earlier", rows=7)])
    ledger.append([build(1, "accepted", "now", minute=1), build(2, "failed", "now", checks=(GOOD, BAD), minute=1)])
    (outcome,) = outcomes(ledger, {"raw/a": DAYS}, by("now"))
    assert outcome == TableOutcome(
        "raw/a", requested=4, built=1, up_to_date=1, failed=1, rows=27, checks_passed=4, checks_failed=1, seconds=3.0
    )
    assert not outcome.complete


def test_a_day_that_failed_and_was_mended_in_the_same_backfill_is_complete(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(0, "failed", "first", checks=(BAD,)), build(0, "accepted", "second", minute=1)])
    (outcome,) = outcomes(ledger, {"raw/a": DAYS[:1]}, by("first", "second"))
    assert (outcome.complete, outcome.built, outcome.failed, outcome.checks_failed) == (True, 1, 0, 0)


def test_days_of_other_tables_and_days_not_requested_do_not_count(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(3, "accepted", "now")])
    requested = {"raw/a": DAYS[:1], "raw/b": DAYS[:1]}
    assert outcomes(ledger, requested, by("now")) == [TableOutcome("raw/a", 1), TableOutcome("raw/b", 1)]
