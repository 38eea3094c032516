"""The limits of Dagster's pools: the most steps of a kind at once, over all runs.

Dagster stores the limits in its database. Before its first step, our run sets the limits that are
missing, so they hold in any Dagster that loads the project.
"""

from dagster import DagsterInstance, Executor, ExecutorDefinition, InitExecutorContext

POOL_LIMITS = {
    # Reading and hashing files: two steps keep a disk busy.
    "ingestion": 2,
    # Steps share the memory of one engine. Two steps keep two cores busy: half of a step is
    # planning and commits.
    "spark": 2,
    # Unpacking an archive keeps one core busy.
    "archives": 1,
    # A rate-limited service counts the calls of all runs together.
    "external": 1,
}


def with_pool_limits(own: ExecutorDefinition) -> ExecutorDefinition:
    """The executor `own`, which sets the limits of pools first."""

    def create(context: InitExecutorContext) -> Executor:
        set_pool_limits(context.instance)
        assert own.executor_creation_fn
        return own.executor_creation_fn(context)

    return ExecutorDefinition(
        name=own.name,
        config_schema=own.config_schema,  # type: ignore[arg-type]
        requirements=own.get_requirements,
        executor_creation_fn=create,
        description=own.description,
    )


def set_pool_limits(instance: DagsterInstance) -> None:
    """Set the limit of each pool that has no limit yet."""
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    configured = {pool.name for pool in storage.get_pool_limits() if not pool.from_default}
    for pool, limit in POOL_LIMITS.items():
        if pool not in configured:
            storage.set_concurrency_slots(pool, limit)
