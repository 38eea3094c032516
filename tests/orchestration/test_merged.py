"""Our definitions merged with those of a project that uses the names that we would like."""

from pathlib import Path

import pytest
from dagster import (
    AssetKey,
    DagsterInstance,
    Definitions,
    ExecutorDefinition,
    ScheduleDefinition,
    asset,
    executor,
    job,
    op,
    sensor,
)
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.in_process import InProcessExecutor

from backfill_assets.orchestration.definitions import definitions_of
from tests.worlds.small_lake import CALENDAR, A, B
from tests.worlds.tables import workspace_of

pytestmark = pytest.mark.lake

USED: list[str] = []
OURS = AssetKey(["raw", "a"])
THEIRS = AssetKey("releases")


class TheirExecutor(InProcessExecutor):
    def execute(self, plan_context, execution_plan):
        USED.append("theirs")
        yield from super().execute(plan_context, execution_plan)


@executor(name="theirs")
def their_executor(_) -> TheirExecutor:
    return TheirExecutor(RetryMode.ENABLED)


def their_definitions(their_executor: ExecutorDefinition | None) -> Definitions:
    """A project with names of ours, and with its own executor or none."""

    @asset
    def releases() -> None: ...

    @op
    def plan() -> None: ...

    def their_job(name: str):
        @job(name=name)
        def graph() -> None:
            plan()

        return graph

    jobs = [their_job(name) for name in ("rebuild", "publish", "nightly", "maintain")]

    @sensor(name="release_live", job=jobs[0])
    def their_sensor(_) -> None: ...

    return Definitions(
        assets=[releases],
        jobs=jobs,
        schedules=[ScheduleDefinition(name="nightly", job=jobs[2], cron_schedule="0 0 * * *")],
        sensors=[their_sensor],
        resources={"spark": 1, "options": 2},
        executor=their_executor,
    )


@pytest.fixture(params=[their_executor, None], ids=["with an executor", "with none"])
def merged(request, tmp_path: Path) -> Definitions:
    USED.clear()
    ours = definitions_of(workspace_of([A, B], CALENDAR, str(tmp_path)))
    return Definitions.merge(ours, their_definitions(request.param))


def test_definitions_can_be_merged_with_a_project_that_uses_plain_names(merged):
    Definitions.validate_loadable(merged)
    assert {"rebuild", "backfill_rebuild"} <= {found.name for found in merged.jobs or ()}


def test_all_our_names_have_our_prefix(tmp_path):
    ours = definitions_of(workspace_of([A, B], CALENDAR, str(tmp_path)))
    named = [*(ours.jobs or ()), *(ours.schedules or ()), *(ours.sensors or ())]
    names = {found.name for found in named} | {*(ours.resources or ())}
    ops = {
        node.name for found in ours.jobs or () if hasattr(found, "nodes") for node in found.nodes
    }
    assert [name for name in names | ops if not name.startswith("backfill_")] == []
    keys = {key.path[0] for key in ours.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {"raw", "backfill"}
    assert ours.executor is None


@pytest.mark.parametrize(
    ("keys", "is_theirs"),
    [
        pytest.param({OURS}, False, id="ours"),
        pytest.param({THEIRS}, True, id="theirs"),
        pytest.param({OURS, THEIRS}, True, id="both"),
    ],
)
def test_our_executor_is_only_for_runs_of_our_assets(tmp_path, keys, is_theirs):
    USED.clear()
    ours = definitions_of(workspace_of([A, B], CALENDAR, str(tmp_path)))
    merged = Definitions.merge(ours, their_definitions(their_executor))
    implicit = merged.resolve_implicit_global_asset_job_def()
    with DagsterInstance.ephemeral() as instance:
        subset = implicit.get_subset(asset_selection=keys)
        run = instance.create_run_for_job(subset, asset_selection=frozenset(keys))
        result = execute_run(InMemoryJob(subset), run, instance, raise_on_error=False)
    assert result.success == (OURS not in keys)  # our assets need days
    assert bool(USED) == is_theirs
