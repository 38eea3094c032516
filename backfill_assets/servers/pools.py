"""How many steps of a kind may run at once, over all runs."""

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.documents import POOLS, SET_POOL

LIMITS = {
    # Reading and hashing files on disk: two keep it busy, more only make it seek.
    "ingestion": 2,
    # Steps of the one engine share its memory: two keep two cores busy, since half of each step is planning and commits.
    "spark": 2,
    # A rate-limited service counts calls of all runs together; one at a time stays below any limit by itself.
    "external": 1,
}


def set_limits(dagster: Dagster) -> None:
    """Give each pool its limit, unless someone has given it one before."""
    limits = dagster.ask(POOLS)["instance"]["concurrencyLimits"]
    chosen = {pool["concurrencyKey"] for pool in limits if not pool["usingDefaultLimit"]}
    for pool, limit in LIMITS.items():
        if pool not in chosen:
            dagster.ask(SET_POOL, {"pool": pool, "limit": limit})
