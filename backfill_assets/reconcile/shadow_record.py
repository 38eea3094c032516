"""What Dagster shows of shadows, once none is open any more."""

from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import Dagster, payload
from backfill_assets.dagster_client.loaded_table import SHADOW
from backfill_assets.lake.shadow_base import ledgers_of_shadows
from backfill_assets.workspace import Workspace


def wipe_shadows(dagster: Dagster, workspace: Workspace) -> None:
    """Wipe Dagster's record of the assets of shadows if no shadow is there: it would go on showing days of plans that ended.

    Dagster wipes an asset whole, and not single partitions of it: what a plan has left stays while another one has a shadow.
    Raises as `Dagster.ask`.
    """
    if not ledgers_of_shadows(workspace.lake.root):
        assets = [{"assetKey": {"path": [SHADOW, *name.split("/")]}} for name in workspace.names]
        payload(dagster.ask(documents.WIPE, {"assets": assets})["wipeAssets"])
