"""The job `verify`, executed by Dagster in this process: its verdict and its metadata."""

from typing import Any

import pytest
from dagster import DagsterInstance

from backfill_assets.dagster_client import tags
from backfill_assets.verbs.verify import markdown
from backfill_assets.verify.checklist import VerdictResult
from backfill_assets.verify.verify import Verdicts
from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, A, SmallLake

FIRST, SECOND, _, _ = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 10, SECOND: 20})
    return lake


def test_a_verdict_that_passes_is_a_run_that_succeeds_and_shows_the_checklist(lake):
    plan = lake.shadow_plan({A.name: [SECOND]})
    lake.write({SECOND: 20}, into=plan)
    with DagsterInstance.ephemeral() as instance:
        result = executed("verify", lake.workspace, instance=instance, plan=plan.id[:6])
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.tags[tags.PLAN] == plan.id
    assert result.success
    shown = metadata(result)
    assert (shown["plan"], shown["verdict"]) == (plan.id, "passed")
    verdict = Verdicts(str(lake.root)).newest(plan.id)
    assert verdict is not None
    assert shown["checklist"] == markdown(verdict)
    assert (verdict.result, verdict.who) == (VerdictResult.PASSED, "ada")


def test_a_verdict_that_needs_a_decision_fails_the_run_until_its_checks_are_accepted(lake):
    plan = lake.shadow_plan({A.name: [SECOND]})
    lake.write({SECOND: 2}, into=plan)
    assert "--accept" in failure(executed("verify", lake.workspace, plan=plan.id))
    verdict = Verdicts(str(lake.root)).newest(plan.id)
    assert verdict is not None
    names = [check.name for check in verdict.undecided()]
    assert names
    reason = "fewer events are right"
    result = executed("verify", lake.workspace, plan=plan.id, accept=names, reason=reason)
    assert result.success
    assert metadata(result)["verdict"] == "passed"
    assert reason in metadata(result)["checklist"]


@pytest.mark.parametrize("is_planned", [True, False], ids=["in the plan", "in verify"])
def test_changed_rows_ask_if_nothing_is_expected(lake, is_planned):
    """The decision on changes beyond the bounds is another one, and does not count."""
    planned = {"*": "nothing"} if is_planned else {A.name: "*"}
    expect: dict[str, Any] = {} if is_planned else {"expect": "nothing"}
    plan = lake.shadow_plan({A.name: [SECOND]}, expect=planned)
    lake.write({SECOND: 20}, into=plan)
    assert executed("verify", lake.workspace, plan=plan.id, **expect).success
    lake.write({SECOND: 21}, into=plan)
    assert executed("verify", lake.workspace, plan=plan.id).success is not is_planned
    name = f"changes {A.name} (none expected)"
    assert name in failure(executed("verify", lake.workspace, plan=plan.id, **expect))
    accepted: dict[str, Any] = {"accept": [name], "reason": "one more is right"}
    refused = executed("verify", lake.workspace, plan=plan.id, expect="nothing", **accepted)
    assert metadata(refused)["error"] == "UsageError"
    assert executed("verify", lake.workspace, plan=plan.id, **accepted).success


def test_an_unknown_plan_and_no_plan_where_two_are_in_shadows_are_refused(lake):
    others = [lake.shadow_plan({A.name: [at]}) for at in (SECOND, FIRST)]
    for plan in ("nosuch", ""):
        result = executed("verify", lake.workspace, plan=plan)
        assert metadata(result)["error"] == "UsageError"
    assert [Verdicts(str(lake.root)).newest(other.id) for other in others] == [None, None]


def test_without_a_plan_the_only_one_in_a_shadow_is_verified(lake):
    other = lake.shadow_plan({A.name: [SECOND]})
    executed("verify", lake.workspace, plan="")
    assert Verdicts(str(lake.root)).newest(other.id)
