"""Verifying a shadow: what the checklist says of it, which versions the verdict is about, and what
it then lets be published. No Spark.
"""

import re
from dataclasses import replace

import pytest

from backfill_assets.diff.sides import DiffRequest
from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.publish import Publication
from backfill_assets.tables.agreements import Reconciled, reconciliation
from backfill_assets.verify.checklist import (
    CheckLine,
    CheckOutcome,
    PlanVerdict,
    Remedy,
    VerdictResult,
)
from backfill_assets.verify.verify import Verdicts, require_verified, verify
from backfill_assets.workspace import Workspace
from tests.worlds.small_lake import DAYS, NOW, A, B, SmallLake, copy_of, ten_rows, timeless

D0, D1, D2, D3 = DAYS
OUTSIDE = "days outside the plan"


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return copy_of(ten_rows, tmp_path)


def rebuilt(lake: SmallLake, rows: int, of: tuple[str, ...] = (A.name, B.name)) -> Plan:
    plan = lake.shadow_plan({A.name: [D1, D2], B.name: [D1, D2]})
    for table in of:
        lake.write({D1: rows, D2: 10}, table=table, into=plan)
    return plan


def verdict_of(plan: Plan, workspace: Workspace) -> PlanVerdict:
    return verify(plan, workspace, who="ada", now=lambda: NOW)


def line(verdict: PlanVerdict, name: str) -> CheckLine:
    return next(each for each in verdict.lines if each.name == name)


def figures(verdict: PlanVerdict, name: str) -> list[int]:
    """The numbers of a check, in order."""
    return [int(n) for n in re.findall(r"\d+", line(verdict, name).figures)]


def test_a_rebuild_that_holds_what_live_holds_passes_and_says_so_of_every_table(lake, golden):
    plan = rebuilt(lake, 10)
    verdict = verdict_of(plan, lake.workspace)
    assert verdict.result == VerdictResult.PASSED, [
        each for each in verdict.lines if each.outcome != CheckOutcome.PASSED
    ]
    for table in (A.name, B.name):
        assert figures(verdict, f"days built {table}") == [2, 2]
        assert figures(verdict, f"{OUTSIDE} {table}") == [2]
        golden(line(verdict, f"changes {table}").figures, table)
    assert Verdicts(str(lake.root)).newest(plan.id) == verdict


def test_a_verdict_is_about_the_shadow_and_live_as_the_shadow_reads_it(lake):
    plan = rebuilt(lake, 10)
    seen = verdict_of(plan, lake.workspace).versions_seen
    hashes = ("rows of ", "files of ")
    assert {name: n for name, n in seen.items() if not name.startswith(hashes)} == {
        f"shadow {A.name}": 0, f"shadow {B.name}": 0, f"live {A.name}": 0, f"live {B.name}": 0,
    }  # fmt: skip
    assert [name for name in seen if name.startswith("rows of ")] == [
        f"rows of shadow {A.name}",
        f"rows of shadow {B.name}",
    ]


def test_a_verdict_is_no_longer_valid_once_a_file_of_the_shadow_was_written_again(lake):
    plan = rebuilt(lake, 10)
    assert verdict_of(plan, lake.workspace).result == VerdictResult.PASSED
    approve = require_verified(plan, lake.workspace)
    approve(state_of(plan, lake.workspace))
    file = next((lake.root / "_shadow" / plan.id / A.name).rglob("*.parquet"))
    file.touch()
    with pytest.raises(RefusedByGuard, match=f"files of shadow {A.name}"):
        approve(state_of(plan, lake.workspace))


def test_the_rows_of_a_stored_diff_are_not_read_again_until_a_file_is_written_again(lake):
    plan = rebuilt(lake, 10)
    diff = DiffRequest(plan.id).run(lake.workspace)
    stored = lake.root / "_diffs" / f"{diff.id}.json"
    assert verdict_of(plan, lake.workspace).passed
    assert list((lake.root / "_diffs").iterdir()) == [stored]
    next((lake.root / "_shadow" / plan.id / A.name).rglob("*.parquet")).touch()
    assert verdict_of(plan, lake.workspace).passed
    assert len(list((lake.root / "_diffs").iterdir())) == 2


def test_far_more_rows_than_live_need_a_decision_before_publishing(lake, golden):
    plan = rebuilt(lake, 30)
    verdict = verdict_of(plan, lake.workspace)
    assert verdict.result == VerdictResult.NEEDS_A_DECISION
    change = line(verdict, f"changes {A.name}")
    assert change.days == (D1,)
    golden("\n".join(change.findings), change.name)
    publication = Publication(plan, lake.workspace, "ada")
    with pytest.raises(RefusedByGuard) as unverified:
        publication.publish(require_verified(plan, lake.workspace))
    golden(str(unverified.value), "publish", PLAN=plan.id)
    verdicts = Verdicts(str(lake.root))
    with pytest.raises(UsageError) as refused:
        verdicts.accept(plan.id, ["changes *", "nulls *"], who="bo", reason="a slip", at=NOW)
    golden(str(refused.value), "accept", PLAN=plan.id)
    verdicts.accept(
        plan.id,
        ["changes raw/a", "changes raw/b*"],
        who="bo",
        reason="it finds more",
        at=NOW,
    )
    # What was accepted stays so on the same versions.
    assert verdict_of(plan, lake.workspace).result == VerdictResult.PASSED
    publication.publish(require_verified(plan, lake.workspace))
    assert lake.values()[D1] == 30


def test_days_that_are_not_built_fail_it(lake):
    plan = rebuilt(lake, 10, of=(A.name,))
    verdict = verdict_of(plan, lake.workspace)
    assert verdict.result == VerdictResult.FAILED
    assert line(verdict, f"days built {B.name}").days == (D1, D2)
    forced = "not built yet, which the plan forces"
    built = line(verdict, f"days built {B.name}")
    assert built.findings == ("0 of 2 days built", f"{D1} {forced}", f"{D2} {forced}")
    assert built.remedy == Remedy.BUILD


def test_live_that_changed_under_the_plan_fails_it_and_a_night_beside_it_does_not(lake, golden):
    plan = rebuilt(lake, 10)
    for table in (A.name, B.name):
        lake.write({D3: 11}, table=table)
    verdict = verdict_of(plan, lake.workspace)
    assert verdict.result == VerdictResult.PASSED
    assert line(verdict, f"{OUTSIDE} {A.name}").figures.endswith(f"by others: {D3}")
    lake.write({D1: 12})
    verdict = verdict_of(plan, lake.workspace)
    assert verdict.result == VerdictResult.FAILED
    conflicts = verdict.lines[-1]
    assert (conflicts.outcome, conflicts.days) == (CheckOutcome.FAILED, (D1,))
    assert conflicts.remedy == Remedy.REBASE
    golden(timeless(conflicts.figures))


@pytest.mark.parametrize(
    ("problems", "result"),
    [((), VerdictResult.PASSED), (("n differs",), VerdictResult.FAILED)],
    ids=["agrees", "not"],
)
def test_a_reconciliation_reads_the_tables_as_they_would_be_published(lake, problems, result):
    plan = rebuilt(lake, 10)
    read_rows = []

    @reconciliation(tables=[A.name, B.name])
    def totals(read, days):
        read_rows.append([read(name, [D0, *days]).num_rows for name in (A.name, B.name)])
        return Reconciled("30 rows of each", problems)

    workspace = replace(lake.workspace, reconciliations=(totals,))
    verdict = verdict_of(plan, workspace)
    assert verdict.result == result
    assert read_rows == [[30, 30]]
