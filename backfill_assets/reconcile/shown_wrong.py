"""Partitions that are up to date, and that Dagster shows otherwise without a run of their own: as failed, or as stale.

As failed: a run failed on them, and then their delivery or code was put back as it was; or they were blocked in a run, and are
still what their inputs, as accepted, make them. As stale: a day of an input has other
rows, and none of those that this partition is made from (Dagster compares whole days); or they were reported without a run,
and an input was materialized since. Of what is reported without a run Dagster knows neither code nor inputs: it compares times.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import date

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.record import SCHEMA
from backfill_assets.lake.store import Lake
from backfill_assets.reconcile.dagster_record import Materialized, read_materialized, read_stale, report
from backfill_assets.tables.graph import Graph

NOT_REPORTED = (
    "Dagster may show days as failed or stale that are up to date, for they could not be reported to it: {} "
    "`backfill reconcile --repair` does it later."
)


def report_shown_wrong(up_to_date: Collection[Partition], graph: Graph, lake: Lake, dagster: Dagster) -> int:
    """Report to Dagster, by their accepted builds, those of `up_to_date` that it shows as failed or stale; how many."""
    needed = {other for partition in up_to_date for other in graph.needs(partition)}
    days = {name: of_table for name, of_table in graph.by_table({*up_to_date, *needed}).items() if of_table}
    known = {name: read_materialized(dagster, name, of_table) for name, of_table in days.items()}
    known = with_stale(dagster, known, graph, up_to_date)
    wrong = [(name, day) for name, day in graph.in_order(up_to_date) if _is_shown_wrong(known[name], day)]
    builds = lake.latest(_by_table(wrong), SCHEMA.names) if wrong else Latest()
    right = builds.accepted.keys() - builds.refused()
    # Inputs first: what is reported later than its inputs is not stale.
    return report(dagster, [builds.accepted[partition] for partition in wrong if partition in right])


def _is_shown_wrong(known: Materialized | None, day: date) -> bool:
    return known is not None and (day in known.failed or day in known.stale)


def with_stale(
    dagster: Dagster, known: Mapping[str, Materialized | None], graph: Graph, of: Iterable[Partition] | None = None
) -> dict[str, Materialized | None]:
    """The same records with the partitions that Dagster shows as stale, of all or of some."""
    at = {(name, day): time for name, each in known.items() if each for day, time in each.at.items()}
    perhaps = _by_table(perhaps_stale(graph, at, at if of is None else of))
    stale = {name: read_stale(dagster, name, days) for name, days in perhaps.items()}
    return {name: replace(each, stale=stale.get(name, ())) if each else None for name, each in known.items()}


def perhaps_stale(graph: Graph, at: Mapping[Partition, int], partitions: Iterable[Partition]) -> list[Partition]:
    """Those that need one which was materialized after them: no others can be stale for an input. Not all of them are."""
    return [
        partition
        for partition in partitions
        if partition in at and any(at.get(needed, 0) > at[partition] for needed in graph.needs(partition))
    ]


def _by_table(partitions: Iterable[Partition]) -> dict[str, list[date]]:
    days: dict[str, list[date]] = {}
    for table, day in sorted(partitions):
        days.setdefault(table, []).append(day)
    return days
