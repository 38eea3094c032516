"""Sources that are assets of Dagster ask the webserver, outside of runs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date

from backfill_assets.calendar import NO_DAY
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import NotDelivered, UsageError
from backfill_assets.reconcile.dagster_record import read_materialized
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import Settings
from backfill_assets.workspace import Workspace


def asking_dagster(
    workspace: Workspace, dagster: Callable[[Settings], Dagster] = dagster_of
) -> Workspace:
    """Return the workspace whose sources ask the webserver for materializations.

    It is looked up when a source asks, so that other commands need no webserver.
    """

    def ask(asset: str, days: Sequence[date]) -> Mapping[date, str]:
        record = None
        # Its partitions may be hours.
        with suppress(UsageError):
            record = read_materialized(dagster(workspace.settings), asset, days)
        if record is None or record.first == NO_DAY:
            raise NotDelivered(
                f"Dagster has no asset {asset} with daily partitions.",
                unchanged="Built days keep their rows.",
                next_step="Correct the name in DagsterAsset, or load the code that has it.",
            )
        return {day: f"{version}@{record.at[day]}" for day, version in record.versions.items()}

    return workspace.asking(ask)
