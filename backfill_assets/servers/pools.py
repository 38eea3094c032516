"""The limits of Dagster's concurrency pools: how many steps of a kind may run at once, over all runs."""

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.documents import POOLS, SET_POOL

LIMITS = {
    # Reading and hashing files: two keep a disk busy, more only make it seek.
    "ingestion": 2,
    # Steps share the memory of one engine: two keep two cores busy, since half of each step is planning and commits.
    "spark": 2,
    # An archive is read from its beginning to its end, and unpacked: each keeps one core busy.
    "archives": 1,
    # A rate-limited service counts the calls of all runs together; one step at a time can keep below its limit.
    "external": 1,
}


def set_limits(dagster: Dagster) -> None:
    """Set the limit of each pool that has none yet."""
    limits = dagster.ask(POOLS)["instance"]["concurrencyLimits"]
    configured = {pool["concurrencyKey"] for pool in limits if not pool["usingDefaultLimit"]}
    for pool, limit in LIMITS.items():
        if pool not in configured:
            dagster.ask(SET_POOL, {"pool": pool, "limit": limit})
