"""Partitions that are up to date, and that Dagster shows otherwise without a run of their own: as failed, or as stale.

As failed: a run failed on them, and then their delivery or code was put back as it was. As stale: a day of an input has other
rows, and none of those that this partition is made from; Dagster compares whole days.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.latest import Latest, latest
from backfill_assets.lake.record import SCHEMA, Build
from backfill_assets.lake.store import Lake
from backfill_assets.reconcile.dagster_record import read_failed, read_stale, report
from backfill_assets.tables.graph import Graph


def report_shown_wrong(done: Iterable[Partition], readers: Iterable[Partition], lake: Lake, dagster: Dagster) -> int:
    """Report to Dagster, by their accepted builds, those `done` that it shows as failed, and `readers` it shows as stale.

    All of them are up to date. Returns how many were reported.
    """
    shown: dict[str, set[date]] = {}
    for table, days in _by_table(done).items():
        shown[table] = read_failed(dagster, table) & set(days)
    for table, days in _by_table(readers).items():
        shown.setdefault(table, set()).update(read_stale(dagster, table, days))
    wrong = {table: days for table, days in shown.items() if days}
    builds = latest(lake.ledger, wrong, SCHEMA.names) if wrong else Latest()
    right = builds.accepted.keys() - builds.refused()
    return report(dagster, [builds.accepted[partition] for partition in sorted(right)])


def perhaps_shown_stale(graph: Graph, builds: Iterable[Build], up_to_date: Iterable[Partition]) -> Mapping[str, Sequence[date]]:
    """The partitions `up_to_date` that need one which was built after them: only those can be shown as stale."""
    built_at: dict[Partition, datetime] = {}
    for build in builds:
        if build.succeeded:
            partition = (build.table, build.day)
            built_at[partition] = max(build.at, built_at.get(partition, build.at))

    def built_later() -> Iterator[Partition]:
        for partition in up_to_date:
            at = built_at[partition]
            if any(built_at.get(needed, at) > at for needed in graph.needs(partition)):
                yield partition

    return _by_table(built_later())


def _by_table(partitions: Iterable[Partition]) -> dict[str, list[date]]:
    days: dict[str, list[date]] = {}
    for table, day in sorted(partitions):
        days.setdefault(table, []).append(day)
    return days
