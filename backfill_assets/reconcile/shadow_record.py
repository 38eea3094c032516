"""What Dagster shows of shadows, once none is open any more."""

from collections.abc import Iterable

from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import Dagster, payload
from backfill_assets.dagster_client.loaded_table import SHADOW
from backfill_assets.lake.shadow_base import ledgers_of_shadows


def wipe_shadows(dagster: Dagster, root: str, tables: Iterable[str]) -> None:
    """Wipe Dagster's record of the shadow assets of these tables if the lake at `root` has no shadow.

    It would go on showing days of plans that have ended. Dagster wipes an asset whole, and not single partitions of it: what
    a plan has left stays while another one has a shadow. Raises as `Dagster.ask`.
    """
    if not ledgers_of_shadows(root):
        assets = [{"assetKey": {"path": [SHADOW, *name.split("/")]}} for name in tables]
        payload(dagster.ask(documents.WIPE, {"assets": assets})["wipeAssets"])
