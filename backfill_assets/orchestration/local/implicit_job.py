"""The executor of the job for assets that belong to no other job.

Dagster has one such job for a code location, and gives it the executor of the location. Backfills,
"Materialize" in the UI and launches over GraphQL use it. A project may merge our definitions with
its own. So this module replaces the function that makes that job: a run of only our assets gets our
executor, any other run gets the location's.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dagster import Executor, ExecutorDefinition, JobDefinition
from dagster import multi_or_in_process_executor as default_executor
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster._core.definitions.repository_definition import repository_data_builder
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.init import InitExecutorContext

# The tag of an op whose steps run in our executor.
OWN_OP: Mapping[str, str] = {"backfill/executor": "backfill"}

_make_job = repository_data_builder.get_base_asset_job_lambda


def run_own_assets_in(own: ExecutorDefinition) -> None:
    """Use the executor `own` for runs of only our assets, in code locations of this process."""

    def make_job(
        asset_graph: AssetGraph, executor_def: ExecutorDefinition | None, **others: Any
    ) -> Callable[[], JobDefinition]:
        are_own = {
            OWN_OP.items() <= assets.node_def.tags.items()
            for assets in asset_graph.assets_defs
            if assets.is_executable
        }
        if True in are_own:
            others_executor = executor_def or default_executor
            executor_def = own if are_own == {True} else _by_run(own, others_executor)
        return _make_job(asset_graph=asset_graph, executor_def=executor_def, **others)

    repository_data_builder.get_base_asset_job_lambda = make_job  # type: ignore[assignment]


def _by_run(own: ExecutorDefinition, others: ExecutorDefinition) -> ExecutorDefinition:
    """An executor with the configuration of `others`. It uses `own` for runs of our steps."""

    def create(context: InitExecutorContext) -> Executor:
        resolved = own.apply_config_mapping({"config": {}}).value or {}
        own_config = resolved["config"]
        return _ByRun(
            _created(own, context._replace(executor_config=own_config)), _created(others, context)
        )

    return ExecutorDefinition(
        name=others.name,
        config_schema=others.config_schema,  # type: ignore[arg-type]
        requirements=others.get_requirements,
        executor_creation_fn=create,
        description=others.description,
    )


def _created(definition: ExecutorDefinition, context: InitExecutorContext) -> Executor:
    assert definition.executor_creation_fn
    return definition.executor_creation_fn(context._replace(executor_def=definition))


class _ByRun(Executor):
    def __init__(self, own: Executor, others: Executor):
        self._own = own
        self._others = others

    @property
    def retries(self) -> RetryMode:
        return self._others.retries

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[Any]:
        steps = [execution_plan.get_step_by_key(key) for key in execution_plan.step_keys_to_execute]
        are_own = all(OWN_OP.items() <= (step.tags or {}).items() for step in steps)
        return (self._own if are_own else self._others).execute(plan_context, execution_plan)
