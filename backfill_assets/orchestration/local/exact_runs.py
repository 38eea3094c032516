"""Dagster's plan of a run on days with gaps: only the days that each asset builds.

Dagster records the days that a run is to materialize and check when it creates the run. It knows
them by the range of the run, so it would show the days between as in progress, and as failed if the
run fails. The tag `backfill/days` names the days of each asset.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dagster import AssetKey, DagsterRun
from dagster._core.instance.runs.run_domain import RunDomain

from backfill_assets.dagster_client.tags import days_of_assets
from backfill_assets.errors import UsageError

if TYPE_CHECKING:
    from dagster._core.snap.execution_plan_snapshot import ExecutionPlanSnapshot, ExecutionStepSnap


class ExactRuns(RunDomain):
    """Creates runs, and records exactly the days that each asset is to build."""

    def _log_asset_planned_events(
        self,
        dagster_run: DagsterRun,
        execution_plan_snapshot: "ExecutionPlanSnapshot",
        asset_graph: Any,
    ) -> None:
        days = {}
        with suppress(UsageError):  # the step refuses the tag; here, the run is stored already
            days = days_of_assets(dagster_run.tags)
        if not days:
            super()._log_asset_planned_events(dagster_run, execution_plan_snapshot, asset_graph)
            return
        for step in execution_plan_snapshot.steps:
            if step.key not in execution_plan_snapshot.step_keys_to_execute:
                continue
            key = _asset_of(step)
            partitions = key and self._get_partitions_def(
                key, asset_graph, dagster_run.remote_job_origin, dagster_run
            )
            of_step = dagster_run
            if key and partitions:
                named = map(str, days.get(key.to_user_string(), ()))
                keys = [day for day in named if partitions.has_partition_key(day)]
                subset = partitions.subset_with_partition_keys(keys).to_serializable_subset()
                of_step = dagster_run._replace(partitions_subset=subset)
            of_plan = execution_plan_snapshot._replace(step_keys_to_execute=[step.key])
            super()._log_asset_planned_events(of_step, of_plan, asset_graph)


def _asset_of(step: "ExecutionStepSnap") -> AssetKey | None:
    """The asset that a step materializes or checks."""
    for output in step.outputs:
        if output.properties and output.properties.asset_key:
            return output.properties.asset_key
        if output.properties and output.properties.asset_check_key:
            return output.properties.asset_check_key.asset_key
    return None
