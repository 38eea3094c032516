"""Sources that are assets of Dagster ask the webserver, outside of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date

from backfill_assets.workspace import Workspace


def asking_dagster(workspace: Workspace) -> Workspace:
    """Return the workspace whose sources ask the webserver for materializations.

    It is looked up when a source asks, so that other commands need no webserver.
    """

    def ask(asset: str, days: Sequence[date]) -> Mapping[date, str]:
        from backfill_assets.dagster_client.materialized import materialized
        from backfill_assets.servers.home import dagster_of

        return materialized(dagster_of(workspace.settings), asset, days)

    return replace(workspace, area=replace(workspace.area, materialized=ask))
