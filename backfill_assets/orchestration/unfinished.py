"""The runs and backfills of tables that are not finished, by Dagster's own record."""

from collections.abc import Collection, Iterator

from dagster import AssetKey, DagsterInstance, RunsFilter
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from backfill_assets.dagster_client.client import writes_to

# Between its runs a backfill has none that is not finished.
UNFINISHED_BACKFILLS = [
    BulkActionStatus.REQUESTED,
    BulkActionStatus.CANCELING,
    BulkActionStatus.FAILING,
]


def unfinished_runs(
    instance: DagsterInstance, tables: Collection[str], *, but: str = ""
) -> Iterator[str]:
    """Each such run or backfill of these tables, as `run 1b9d6bcd`, other than the run `but`."""
    keys = {AssetKey(name.split("/")) for name in tables}
    for run in instance.get_runs(RunsFilter(statuses=NOT_FINISHED_STATUSES)):
        selected = run.asset_selection
        if run.run_id == but:
            continue
        if writes_to(run.job_name, tables) if selected is None else bool(keys & selected):
            yield f"run {run.run_id[:8]}"
    for backfill in instance.get_backfills(BulkActionsFilter(statuses=UNFINISHED_BACKFILLS)):
        assets = backfill.asset_selection
        if assets is None or keys & set(assets):
            yield f"backfill {backfill.backfill_id}"
