"""What keeps a shadow that is built whole from being published: its verdict, columns that go, what runs in live. No Spark."""

from dataclasses import replace
from typing import Any

import pytest

from backfill_assets import Reconciled, reconciliation
from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.running_steps import RunningStep, mark_running
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.published import Published
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.shadows import discard
from backfill_assets.verify.checklist import Line, Outcome, Verdict
from backfill_assets.verify.verdicts import Verdicts
from backfill_assets.verify.verified import code_of, verified, versions_of
from tests.publish.site import DAYS, NOW, A, B, Site

D0, D1, D2, D3 = DAYS


@pytest.fixture
def site(tmp_path) -> Site:
    site = Site(tmp_path / "lake")
    site.write({D0: 1, D1: 2, D2: 3, D3: 4})
    release_live(site.workspace, who="sensor")
    return site


def few_rows(read, days):
    return Reconciled("", ["too many rows"] if read(A, days).num_rows > 10 else [])


def rebuilt(site: Site, more: str = "") -> Plan:
    plan = site.shadow_plan({A.name: [D1]})
    site.write({D1: 7}, into=plan, more=more)
    return plan


def verdict_on(site: Site, plan: Plan, *outcomes: Outcome) -> Verdict:
    lines = tuple(Line(f"check {n}", outcome, "1 of 2 rows") for n, outcome in enumerate(outcomes))
    seen = versions_of(plan, state_of(plan, site.workspace))
    verdict = Verdict(plan.id, lines, seen, code_of(plan, site.workspace), NOW, "ada")
    Verdicts(str(site.root)).keep(verdict)
    return verdict


def publish(site: Site, plan: Plan, channel: str = "stable", **options: Any) -> Published:
    return Publication(plan, site.workspace, "ada").publish(channel, lambda: NOW, verified(plan, site.workspace), **options)


def test_a_verdict_that_passed_on_these_versions_lets_it_be_published(site):
    plan = rebuilt(site)
    verdict_on(site, plan, Outcome.PASSED, Outcome.SKIPPED)
    publish(site, plan)
    assert site.values()[D1] == 7


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ((), "was not verified. Nothing was published. Type `backfill verify"),
        ((Outcome.PASSED, Outcome.FAILED), r"failed: check 1 \(1 of 2 rows\). Nothing was published"),
        ((Outcome.DECISION, Outcome.PASSED), "needs a decision: check 0. Nothing was published.*--accept NAME --reason"),
    ],
    ids=["never verified", "failed", "undecided"],
)
def test_without_a_verdict_that_passed_nothing_is_published(site, outcomes, said):
    plan, files = rebuilt(site), site.files()
    if outcomes:
        verdict_on(site, plan, *outcomes)
    with pytest.raises(Guarded, match=f"(?s){said}"):
        publish(site, plan)
    assert (site.files(), site.plans.state(plan.id)) == (files, "done")


def test_a_decision_that_was_taken_lets_it_be_published(site):
    plan = rebuilt(site)
    verdict_on(site, plan, Outcome.DECISION)
    Verdicts(str(site.root)).accept(plan.id, ["check 0"], who="bo", reason="meant", at=NOW)
    publish(site, plan)
    assert site.values()[D1] == 7


def test_a_verdict_older_than_the_shadows_last_commit_does_not_count(site):
    plan = rebuilt(site)
    verdict_on(site, plan, Outcome.PASSED)
    site.write({D1: 8}, into=plan)
    with pytest.raises(Guarded, match=f"shadow {A.name} .seen 0, now 1.*backfill verify {plan.id}` again"):
        publish(site, plan)
    assert site.values()[D1] == 2


def test_a_verdict_on_other_code_does_not_count(site):
    plan = rebuilt(site)
    Verdicts(str(site.root)).keep(replace(verdict_on(site, plan, Outcome.PASSED), code={A.name: "0"}))
    with pytest.raises(Guarded, match=f"{A.name} .seen 0, now 1"):
        publish(site, plan)


def test_a_verdict_by_other_reconciliations_does_not_count(site):
    plan = rebuilt(site)
    verdict_on(site, plan, Outcome.PASSED)
    stricter = replace(site.workspace, reconciliations=(reconciliation(tables=[A])(few_rows),))
    with pytest.raises(Guarded, match=r"check few_rows .seen none, now "):
        Publication(plan, stricter, "ada").publish("stable", lambda: NOW, verified(plan, stricter))


def test_a_column_that_live_has_and_the_shadow_has_not_is_not_lost_unless_that_is_meant(site):
    site.write({D3: 5}, more="note")
    release_live(site.workspace, who="sensor")
    plan = rebuilt(site)
    verdict_on(site, plan, Outcome.PASSED)
    with pytest.raises(Guarded, match=f"{A.name}: it has no column note. Nothing was published.*--allow-breaking"):
        publish(site, plan)
    publish(site, plan, allow_breaking=True)
    assert site.values()[D1] == 7


@pytest.mark.parametrize("spelled", ["n", "N"])
def test_columns_that_do_not_go_together_are_refused_before_any_table_is_written(site, spelled):
    for table in (A.name, B.name):
        site.write({D0: 5, D1: 2}, table=table)
    release_live(site.workspace, who="sensor")
    plan = site.shadow_plan({A.name: [D1], B.name: [D1]})
    site.write({D1: 7}, into=plan)
    site.write({D1: 7}, into=plan, table=B.name, number=(spelled, "string" if spelled == "n" else "long"))
    verdict_on(site, plan, Outcome.PASSED)
    files = site.files()
    with pytest.raises((UsageError, Guarded), match=B.name):
        publish(site, plan, allow_breaking=True)
    assert site.files() == files
    assert site.plans.half_published() == []
    discard(plan, site.workspace, who="ada", now=lambda: NOW)


def test_readers_of_stable_do_not_lose_a_column_by_a_plan_that_was_published_to_others(site):
    site.write({D3: 5}, more="note")
    site.write({D1: 2}, table=B.name)
    release_live(site.workspace, who="sensor")
    dropping = site.shadow_plan({A.name: list(DAYS)})
    site.write(dict(zip(DAYS, [2, 3, 4, 5], strict=True)), into=dropping)
    verdict_on(site, dropping, Outcome.PASSED)
    publish(site, dropping, "candidate", allow_breaking=True)
    with pytest.raises(Guarded, match=f"Readers of stable would miss something.*{A.name}: it has no column note"):
        publish(site, dropping)
    other = site.shadow_plan({B.name: [D1]})
    site.write({D1: 7}, into=other, table=B.name)
    verdict_on(site, other, Outcome.PASSED)
    with pytest.raises(Guarded, match=f"{A.name}: it has no column note. Nothing was published"):
        Publication(other, site.workspace, "ada", together_with=(dropping.id,)).publish(
            "stable", lambda: NOW, verified(other, site.workspace)
        )
    assert site.values(B.name)[D1] == 2
    publish(site, dropping, allow_breaking=True)


def test_a_column_that_only_the_shadow_has_breaks_nobody(site):
    plan = rebuilt(site, more="note")
    verdict_on(site, plan, Outcome.PASSED)
    publish(site, plan)
    assert site.values()[D1] == 7


def test_while_a_step_of_live_is_running_nothing_is_published(site):
    plan = rebuilt(site)
    verdict_on(site, plan, Outcome.PASSED)
    running = mark_running(str(site.root), RunningStep(A.name, [D3], "a night"))
    with running, pytest.raises(Guarded, match=r"run a night is computing them\. Nothing was published"):
        publish(site, plan)
    publish(site, plan)


def test_days_of_live_that_failed_keep_the_plan_from_being_published_with_them_unless_the_plan_mends_them(site):
    plan = rebuilt(site)
    verdict_on(site, plan, Outcome.PASSED)
    site.write({D0: 6})
    site.fail(D3)
    with pytest.raises(Guarded, match=f"{A.name} {D3}: no rows. Nothing was published"):
        publish(site, plan)
    release_live(site.workspace, who="sensor")
    site.write({D3: 4, D2: 9})
    site.fail(D1)
    publish(site, plan)
    assert site.values() == {D0: 6, D1: 7, D2: 9, D3: 4}


def test_a_plan_into_live_or_that_was_discarded_has_nothing_to_publish(site):
    in_live = site.plan({A.name: [D1]})
    with pytest.raises(UsageError, match="was built in live, and is released from there by itself"):
        publish(site, in_live)
    plan = rebuilt(site)
    discard(plan, site.workspace, who="ada", now=lambda: NOW)
    with pytest.raises(UsageError, match=r"was discarded\. Nothing was published"):
        publish(site, plan)
    assert not (site.root / "_shadow" / plan.id).exists()


def test_an_open_plan_is_neither_published_nor_discarded(site):
    plan = rebuilt(site)
    site.plans.note(plan.id, "started", NOW)
    with pytest.raises(Guarded, match=f"Plan {plan.id} is open. Nothing was published"):
        publish(site, plan)
    with pytest.raises(Guarded, match=f"Plan {plan.id} is open. Nothing was discarded"):
        discard(plan, site.workspace, who="ada", now=lambda: NOW)
