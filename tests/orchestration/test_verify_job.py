"""The job `verify`, as Dagster executes it, in this process: the verdict that it keeps, and what
its run shows.
"""

from typing import Any

import pytest
from dagster import DagsterInstance

from backfill_assets.dagster_client import tags
from backfill_assets.verify.checklist import VerdictResult
from backfill_assets.verify.verify import Verdicts
from tests.worlds.code_location import executed, failure, metadata
from tests.worlds.small_lake import DAYS, A, SmallLake

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 10, SECOND: 20})
    return lake


def launched(lake: SmallLake, **config: Any) -> tuple[Any, DagsterInstance]:
    return executed("verify", lake.workspace, config)


def test_a_verdict_that_passes_is_a_run_that_succeeds_and_shows_the_checklist(lake):
    plan = lake.shadow_plan({A.name: [SECOND]})
    lake.write({SECOND: 20}, into=plan)
    result, instance = launched(lake, plan=plan.id[:6])
    assert result.success
    shown = metadata(result)
    assert (shown["plan"], shown["verdict"]) == (plan.id, "passed")
    assert "days built raw/a" in shown["checklist"]
    run = instance.get_run_by_id(result.run_id)
    assert run
    assert run.tags[tags.PLAN] == plan.id
    verdict = Verdicts(str(lake.root)).newest(plan.id)
    assert verdict
    assert (verdict.result, verdict.who) == (VerdictResult.PASSED, "ada")


def test_a_verdict_that_needs_a_decision_fails_the_run_until_its_lines_are_accepted(lake):
    plan = lake.shadow_plan({A.name: [SECOND]})
    lake.write({SECOND: 2}, into=plan)
    result, _ = launched(lake, plan=plan.id)
    assert "--accept" in failure(result)
    verdict = Verdicts(str(lake.root)).newest(plan.id)
    assert verdict
    names = [line.name for line in verdict.undecided()]
    assert names
    result, _ = launched(lake, plan=plan.id, accept=names, reason="fewer events are right")
    assert result.success
    assert metadata(result)["verdict"] == "passed"
    assert "fewer events are right" in metadata(result)["checklist"]


@pytest.mark.parametrize(
    ("plan", "message"),
    [("nosuch", "There is no plan nosuch"), ("", "Which plan? Nothing was done.")],
)
def test_without_a_plan_nothing_is_verified(lake, plan, message):
    kept = lake.shadow_plan({A.name: [SECOND]})
    assert message in failure(launched(lake, plan=plan)[0])
    assert Verdicts(str(lake.root)).newest(kept.id) is None
