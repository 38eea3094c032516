"""What keeps a shadow that is built whole from being published: its verdict, columns that go, what
runs in live. No Spark.
"""

from dataclasses import replace
from typing import Any

import pytest

from backfill_assets import Reconciled, reconciliation
from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.publish import Publication, Published
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.shadows import discard
from backfill_assets.publish.waiting import Patience
from backfill_assets.verify.checklist import CheckLine, CheckOutcome, PlanVerdict
from backfill_assets.verify.verify import (
    Verdicts,
    require_verified,
    verified_code,
    verified_versions,
)
from tests.worlds.small_lake import DAYS, NOW, A, B, SmallLake

D0, D1, D2, D3 = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path / "lake")
    lake.write({D0: 1, D1: 2, D2: 3, D3: 4})
    release_live(lake.workspace, who="sensor")
    return lake


def few_rows(read, days):
    return Reconciled("", ["too many rows"] if read(A, days).num_rows > 10 else [])


def rebuilt(lake: SmallLake, more: str = "") -> Plan:
    plan = lake.shadow_plan({A.name: [D1]})
    lake.write({D1: 7}, into=plan, more=more)
    return plan


def verdict_on(lake: SmallLake, plan: Plan, *outcomes: CheckOutcome) -> PlanVerdict:
    lines = tuple(
        CheckLine(f"check {n}", outcome, "1 of 2 rows") for n, outcome in enumerate(outcomes)
    )
    seen = verified_versions(plan, state_of(plan, lake.workspace))
    verdict = PlanVerdict(plan.id, lines, seen, verified_code(plan, lake.workspace), NOW, "ada")
    Verdicts(str(lake.root)).keep(verdict)
    return verdict


def publish(lake: SmallLake, plan: Plan, **options: Any) -> Published:
    return Publication(plan, lake.workspace, "ada").publish(
        require_verified(plan, lake.workspace), **options
    )


def test_a_verdict_that_passed_on_these_versions_lets_it_be_published(lake):
    plan = rebuilt(lake)
    verdict_on(lake, plan, CheckOutcome.PASSED, CheckOutcome.SKIPPED)
    publish(lake, plan)
    assert lake.values()[D1] == 7


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ((), "was not verified. Nothing was published. Type `backfill verify"),
        (
            (CheckOutcome.PASSED, CheckOutcome.FAILED),
            r"failed its checks: check 1 \(1 of 2 rows\). Nothing was published",
        ),
        (
            (CheckOutcome.DECISION, CheckOutcome.PASSED),
            "needs a decision: check 0. Nothing was published.*--accept NAME --reason",
        ),
    ],
    ids=["never verified", "failed", "undecided"],
)
def test_without_a_verdict_that_passed_nothing_is_published(lake, outcomes, said):
    plan = rebuilt(lake)
    files = lake.files()
    if outcomes:
        verdict_on(lake, plan, *outcomes)
    with pytest.raises(RefusedByGuard, match=f"(?s){said}"):
        publish(lake, plan)
    assert (lake.files(), lake.plans.state(plan.id)) == (files, "done")


def test_a_decision_that_was_taken_lets_it_be_published(lake):
    plan = rebuilt(lake)
    verdict_on(lake, plan, CheckOutcome.DECISION)
    Verdicts(str(lake.root)).accept(plan.id, ["check 0"], who="bo", reason="meant", at=NOW)
    publish(lake, plan)
    assert lake.values()[D1] == 7


def test_a_verdict_older_than_the_shadows_last_commit_does_not_count(lake):
    plan = rebuilt(lake)
    verdict_on(lake, plan, CheckOutcome.PASSED)
    lake.write({D1: 8}, into=plan)
    with pytest.raises(RefusedByGuard, match=f"(?s){A.name}.*{plan.id}"):
        publish(lake, plan)
    assert lake.values()[D1] == 2


def test_a_verdict_on_other_code_does_not_count(lake):
    plan = rebuilt(lake)
    Verdicts(str(lake.root)).keep(
        replace(verdict_on(lake, plan, CheckOutcome.PASSED), code={A.name: "0"})
    )
    with pytest.raises(RefusedByGuard, match=f"{A.name} .seen 0, now 1"):
        publish(lake, plan)


def test_a_verdict_by_other_reconciliations_does_not_count(lake, golden):
    plan = rebuilt(lake)
    verdict_on(lake, plan, CheckOutcome.PASSED)
    stricter = replace(lake.workspace, reconciliations=(reconciliation(tables=[A])(few_rows),))
    with pytest.raises(RefusedByGuard) as refused:
        Publication(plan, stricter, "ada").publish(require_verified(plan, stricter))
    golden(str(refused.value), PLAN=plan.id, CODE=stricter.reconciliations[0].version)


def test_a_column_of_live_is_not_lost_unless_that_is_allowed(lake, is_refused):
    lake.write({D3: 5}, more="note")
    release_live(lake.workspace, who="sensor")
    plan = rebuilt(lake)
    verdict_on(lake, plan, CheckOutcome.PASSED)
    is_refused(publish, lake, plan)
    publish(lake, plan, allow_breaking=True)
    assert lake.values()[D1] == 7


@pytest.mark.parametrize("spelled", ["n", "N"])
def test_columns_that_do_not_go_together_are_refused_before_any_table_is_written(lake, spelled):
    for table in (A.name, B.name):
        lake.write({D0: 5, D1: 2}, table=table)
    release_live(lake.workspace, who="sensor")
    plan = lake.shadow_plan({A.name: [D1], B.name: [D1]})
    lake.write({D1: 7}, into=plan)
    lake.write(
        {D1: 7}, into=plan, table=B.name, number=(spelled, "string" if spelled == "n" else "long")
    )
    verdict_on(lake, plan, CheckOutcome.PASSED)
    files = lake.files()
    with pytest.raises((UsageError, RefusedByGuard), match=B.name):
        publish(lake, plan, allow_breaking=True)
    assert lake.files() == files
    assert lake.plans.state(plan.id) == "done"
    discard(plan, lake.workspace, who="ada", now=lambda: NOW)


def test_a_column_that_only_the_shadow_has_breaks_nobody(lake):
    plan = rebuilt(lake, more="note")
    verdict_on(lake, plan, CheckOutcome.PASSED)
    publish(lake, plan)
    assert lake.values()[D1] == 7


def test_while_a_step_of_a_run_that_has_committed_is_running_nothing_is_published(lake, golden):
    plan = rebuilt(lake)
    verdict_on(lake, plan, CheckOutcome.PASSED)
    for table in (A.name, B.name):
        lake.write({D3: 6}, table=table, of_run="a night")
    running = mark_running(str(lake.root), RunningStep(B.name, [D3], "a night"))
    with running, pytest.raises(RefusedByGuard) as refused:
        publish(lake, plan, patience=Patience(seconds=0))
    golden(str(refused.value), PLAN=plan.id)
    publish(lake, plan)


def test_outdated_days_of_live_stop_a_publication_unless_the_plan_rebuilds_them(lake, is_refused):
    lake.write({D0: 5, D1: 2, D2: 3, D3: 4}, table=B.name)
    release_live(lake.workspace, who="sensor")
    plan = lake.shadow_plan({B.name: [D1]})
    lake.write({D1: 7}, into=plan, table=B.name)
    verdict_on(lake, plan, CheckOutcome.PASSED)
    lake.write({D3: 6})
    is_refused(publish, lake, plan)
    lake.write({D3: 6}, table=B.name)
    publish(lake, plan)
    assert lake.values(B.name)[D1] == 7


def test_a_plan_into_live_or_that_was_discarded_has_nothing_to_publish(lake, golden):
    in_live = lake.plan({A.name: [D1]})
    with pytest.raises(UsageError) as refused:
        publish(lake, in_live)
    golden(str(refused.value), "into live", PLAN=in_live.id)
    plan = rebuilt(lake)
    discard(plan, lake.workspace, who="ada", now=lambda: NOW)
    with pytest.raises(UsageError) as refused:
        publish(lake, plan)
    golden(str(refused.value), "discarded", PLAN=plan.id)
    assert not (lake.root / "_shadow" / plan.id).exists()


def test_an_open_plan_is_neither_published_nor_discarded(lake, golden, is_refused):
    plan = rebuilt(lake)
    lake.plans.note(plan.id, "started", NOW)
    is_refused(publish, lake, plan, part="published")
    with pytest.raises(RefusedByGuard) as refused:
        discard(plan, lake.workspace, who="ada", now=lambda: NOW)
    golden(str(refused.value), "discarded", PLAN=plan.id)
