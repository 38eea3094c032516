"""Runs and backfills that Dagster records as unfinished."""

from collections.abc import Collection, Iterator

from dagster import AssetKey, DagsterInstance, RunsFilter
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from backfill_assets.dagster_client.client import writes_to

# A backfill may have no active run between two of its runs, so backfills are checked too.
_UNFINISHED_BACKFILLS = [
    BulkActionStatus.REQUESTED,
    BulkActionStatus.CANCELING,
    BulkActionStatus.FAILING,
]


def unfinished_runs(
    instance: DagsterInstance, tables: Collection[str], *, but: str = ""
) -> Iterator[str]:
    """Name each unfinished run or backfill that writes to these tables, except the run `but`.

    A name reads `run 1b9d6bcd` or `backfill kqjzstvo`.
    """
    keys = {AssetKey(name.split("/")) for name in tables}
    for run in instance.get_runs(RunsFilter(statuses=NOT_FINISHED_STATUSES)):
        selected = run.asset_selection
        if run.run_id == but:
            continue
        if writes_to(run.job_name, tables) if selected is None else bool(keys & selected):
            yield f"run {run.run_id[:8]}"
    for backfill in instance.get_backfills(BulkActionsFilter(statuses=_UNFINISHED_BACKFILLS)):
        assets = backfill.asset_selection
        if assets is None or keys & set(assets):
            yield f"backfill {backfill.backfill_id}"


def unfinished_runs_of_job(instance: DagsterInstance, job: str) -> Iterator[str]:
    """Name each unfinished run of a job, as `run 1b9d6bcd`."""
    for run in instance.get_runs(RunsFilter(job_name=job, statuses=NOT_FINISHED_STATUSES)):
        yield f"run {run.run_id[:8]}"
