"""`backfill reload`: the servers load the project's code again, after an edit."""

from backfill_assets.cli import exit_codes
from backfill_assets.dagster_client.reload import reload
from backfill_assets.servers.home import dagster_of
from backfill_assets.workspace import open_workspace


def run() -> int:
    """Reload the project's code location; the exit code is 0 if it is loaded."""
    settings = open_workspace(only_reading=True).settings  # code that cannot be imported is refused with the line that raised
    dagster = dagster_of(settings)
    reload(dagster, settings.project)
    print(
        f"The servers at {dagster.url} have loaded {settings.project} as it is now. Nothing was rebuilt; `backfill status` "
        "shows which days that makes outdated."
    )
    return exit_codes.DONE
