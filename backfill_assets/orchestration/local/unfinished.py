"""Runs and backfills that Dagster records as unfinished."""

from collections.abc import Collection, Iterable, Iterator

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
    for run in instance.get_runs(RunsFilter(statuses=NOT_FINISHED_STATUSES)):
        if run.run_id != but and writes_to(tables, _names(run.asset_selection), run.job_name):
            yield f"run {run.run_id[:8]}"
    for backfill in instance.get_backfills(BulkActionsFilter(statuses=_UNFINISHED_BACKFILLS)):
        if writes_to(tables, _names(backfill.asset_selection)):
            yield f"backfill {backfill.backfill_id}"


def _names(assets: Iterable[AssetKey] | None) -> list[str] | None:
    return None if assets is None else [asset.to_user_string() for asset in assets]


def unfinished_runs_of_job(instance: DagsterInstance, job: str) -> Iterator[str]:
    """Name each unfinished run of a job, as `run 1b9d6bcd`."""
    for run in instance.get_runs(RunsFilter(job_name=job, statuses=NOT_FINISHED_STATUSES)):
        yield f"run {run.run_id[:8]}"
