"""Partitions that are up to date again without a run, after one failed on them: Dagster would show them as failed for ever."""

from collections.abc import Iterable
from datetime import date

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.latest import Latest, latest
from backfill_assets.lake.record import SCHEMA
from backfill_assets.lake.store import Lake
from backfill_assets.reconcile.dagster_record import read_failed, report


def report_cleared(done: Iterable[Partition], lake: Lake, dagster: Dagster) -> int:
    """Report to Dagster those of the partitions `done` that it shows as failed, by their accepted builds; how many."""
    days: dict[str, set[date]] = {}
    for table, day in done:
        days.setdefault(table, set()).add(day)
    shown = {table: read_failed(dagster, table) & of_table for table, of_table in days.items()}
    failed = {table: of_table for table, of_table in shown.items() if of_table}
    builds = latest(lake.ledger, failed, SCHEMA.names) if failed else Latest()
    right = builds.accepted.keys() - builds.refused()
    return report(dagster, [builds.accepted[partition] for partition in sorted(right)])
