"""The newest days of a calendar that has ended, as the webserver pages them for an asset's plots."""

from collections.abc import Callable
from datetime import datetime

from dagster import TimeWindowPartitionsDefinition
from dagster._core.definitions.partitions.context import PartitionLoadingContext
from dagster._core.types.pagination import PaginatedResults

Paginate = Callable[..., PaginatedResults[str]]


def page_from_the_last_day() -> None:
    """Let partition keys be paged backwards from the last partition, in this process.

    Dagster 1.13 starts at the current day, whatever the end of the partitions is: the plots of a calendar that ended years ago
    show a hundred days that have no partition.
    """
    TimeWindowPartitionsDefinition.get_paginated_partition_keys = from_the_last(  # type: ignore[method-assign]
        TimeWindowPartitionsDefinition.get_paginated_partition_keys
    )


def from_the_last(paginate: Paginate) -> Paginate:
    """Dagster's own `paginate`, asked as of the end of the partitions if that is over."""

    def paginate_from_the_last(
        partitions: TimeWindowPartitionsDefinition,
        context: PartitionLoadingContext,
        limit: int,
        ascending: bool,
        cursor: str | None = None,
    ) -> PaginatedResults[str]:
        end: datetime | None = partitions.end
        if not ascending and end and end < context.effective_dt:
            context = context.updated(effective_dt=end, dynamic_partitions_store=None)
        return paginate(partitions, context=context, limit=limit, ascending=ascending, cursor=cursor)

    return paginate_from_the_last
