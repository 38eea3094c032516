"""Runs and backfills that Dagster records as unfinished."""

from collections.abc import Collection, Iterable, Iterator

from dagster import AssetKey, DagsterInstance, RunsFilter
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from backfill_assets.dagster_client.names import writes_to

# A backfill may have no active run between two runs, so backfills are checked too.
_UNFINISHED_BACKFILLS = [
    BulkActionStatus.REQUESTED,
    BulkActionStatus.CANCELING,
    BulkActionStatus.FAILING,
]


def unfinished_runs(
    instance: DagsterInstance, tables: Collection[str], *, but: str = ""
) -> dict[str, str]:
    """The unfinished runs and backfills that write to these tables, except the run `but`.

    Run ids by name, such as `run 1b9d6bcd`; the id is "" for a backfill.
    """
    found = {}
    for run in instance.get_runs(RunsFilter(statuses=NOT_FINISHED_STATUSES)):
        if run.run_id != but and writes_to(tables, _names(run.asset_selection), run.job_name):
            found[f"run {run.run_id[:8]}"] = run.run_id
    for backfill in instance.get_backfills(BulkActionsFilter(statuses=_UNFINISHED_BACKFILLS)):
        if writes_to(tables, _names(backfill.asset_selection)):
            found[f"backfill {backfill.backfill_id}"] = ""
    return found


def _names(assets: Iterable[AssetKey] | None) -> list[str] | None:
    return None if assets is None else [asset.to_user_string() for asset in assets]


def unfinished_runs_of_job(instance: DagsterInstance, job: str) -> Iterator[str]:
    """Name each unfinished run of a job, as `run 1b9d6bcd`."""
    for run in instance.get_runs(RunsFilter(job_name=job, statuses=NOT_FINISHED_STATUSES)):
        yield f"run {run.run_id[:8]}"
