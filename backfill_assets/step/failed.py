"""Which partitions of a plan block what needs them, although an earlier build of them is accepted."""

from collections.abc import Collection, Iterable, Iterator
from datetime import date

from backfill_assets.calendar import Calendar, Partition, days_around
from backfill_assets.lake.latest import Latest
from backfill_assets.step.inputs import days_up_to_date
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def failed_partitions(table: Table, request: StepRequest, builds: Latest, workspace: Workspace) -> set[Partition]:
    """Those that the request's plan built last and failed, and, of the tables that `table` is made from, those that need one.

    A partition that failed and is up to date again, its delivery or code put back as it was, blocks nothing.
    """
    if not request.plan:
        return set()
    failed = {partition for partition, build in builds.last.items() if not build.succeeded and build.plan == request.plan}
    failed -= set(_up_to_date(table, failed, builds, workspace)) if failed else set()
    planned = set(request.planned)
    for ancestor in table.ancestors() if failed else ():
        new = failed
        while new := {(ancestor.name, day) for day in _needing(ancestor, new, workspace.calendar)} & planned - failed:
            failed = failed | new
    return failed


def _up_to_date(table: Table, partitions: Collection[Partition], builds: Latest, workspace: Workspace) -> Iterator[Partition]:
    for ancestor in table.ancestors():
        days = [day for name, day in partitions if name == ancestor.name]
        yield from ((ancestor.name, day) for day in days_up_to_date(ancestor, days, builds, workspace))


def _needing(table: Table, partitions: Collection[Partition], calendar: Calendar) -> Iterable[date]:
    """The days of `table` that need one of `partitions`."""
    for other, window in table.windows():
        for day in [day for name, day in partitions if name == other.name]:
            yield from table.calendar_of(calendar).clip(days_around(day, -window.last_needed, -window.first))
