"""Partitions that failed and are up to date again without a run: Dagster would show them as failed for ever."""

from collections.abc import Iterable
from datetime import date

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.latest import latest
from backfill_assets.lake.record import SCHEMA
from backfill_assets.lake.store import Lake
from backfill_assets.reconcile.dagster_record import report


def report_cleared(done: Iterable[Partition], lake: Lake, dagster: Dagster) -> int:
    """Report to Dagster those of the partitions `done` whose last build failed, by their accepted builds; how many."""
    days: dict[str, list[date]] = {}
    for table, day in done:
        days.setdefault(table, []).append(day)
    builds = latest(lake.ledger, days)
    cleared = [partition for partition, build in builds.last.items() if not build.succeeded and partition in builds.accepted]
    if not cleared:
        return 0
    whole = latest(lake.ledger, {table: days[table] for table, _ in cleared}, SCHEMA.names)
    return report(dagster, [whole.accepted[partition] for partition in sorted(cleared)])
