"""What follows the end of a plan: what reads its days and is outdated now, and Dagster's record of what had no run."""

from collections.abc import Callable, Collection, Sequence

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError
from backfill_assets.lake.record import Build
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Progress
from backfill_assets.plan.readers_left import Readers, readers_left
from backfill_assets.plan.remaining import WorkState
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.selector import selector_of
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.reconcile.dagster_record import report
from backfill_assets.reconcile.shadow_record import wipe_shadows
from backfill_assets.reconcile.shown_wrong import NOT_REPORTED, report_shown_wrong
from backfill_assets.workspace import Workspace


def after_plan(end: Progress, workspace: Workspace, dagster: Dagster, warn: Callable[[str], None]) -> Readers:
    """What is not in the plan and reads what it rebuilt. Days that Dagster shows as failed or stale, and are up to date, are
    reported to it. Of a plan in a shadow there is nothing: live has not changed."""
    if end.plan.is_shadow:
        return Readers({})
    readers, states, saved = readers_left(end.plan, workspace), end.remaining.states, set(end.remaining.saved)
    # Those that were blocked are among them: Dagster shows them as failed, since their run has not materialized them, and their
    # rows are still those of what they are made from. The failed day that blocked them is outdated, and stays as it is shown.
    unbuilt = {partition for partition, state in states.items() if state != WorkState.DONE or partition in saved}
    try:
        report_up_to_date({*unbuilt, *readers.up_to_date}, workspace, dagster)
    except BackfillError as error:
        warn(NOT_REPORTED.format(error))
    return readers


def after_nothing(request: RebuildRequest, workspace: Workspace, dagster: Dagster, warn: Callable[[str], None]) -> None:
    """Of a request that comes to no plan: Dagster may show its days as failed although they are up to date again, because a bad
    delivery was taken away. Without servers nobody sees them."""
    if not dagster.url:
        return
    selector = selector_of(request, workspace, workspace.calendar)
    try:
        report_up_to_date({(name, day) for name in selector.tables for day in selector.days}, workspace, dagster)
    except BackfillError as error:
        warn(NOT_REPORTED.format(error))


def after_publication(plan: Plan, builds: Sequence[Build], readers: Readers, workspace: Workspace, dagster: Dagster) -> None:
    """Dagster's record of a plan that was put into live, or taken back: `builds` say what was recorded by that.

    The plan's other days, which live had already, and the `readers` of what changed are reported where Dagster shows them as
    failed or stale. Raises as `report`.
    """
    report(dagster, builds)
    if builds:
        recorded = {(build.table, build.day) for build in builds}
        report_up_to_date({*plan.partitions(), *readers.up_to_date} - recorded, workspace, dagster)
    if plan.is_shadow:
        wipe_shadows(dagster, workspace.lake.root, workspace.names)


def report_up_to_date(partitions: Collection[Partition], workspace: Workspace, dagster: Dagster) -> None:
    """Report to Dagster those of `partitions` that are up to date by `backfill status`, and that it shows as failed or stale.

    Raises as `report`.
    """
    tables = [table for table in workspace.tables if any(name == table.name for name, _ in partitions)]
    days = sorted({day for _, day in partitions})
    status = status_of(workspace, tables, days, latest=latest_builds(workspace)).partitions
    up_to_date = {each for each in partitions if each in status and status[each].state == State.UP_TO_DATE}
    report_shown_wrong(up_to_date, workspace.graph, workspace.lake, dagster)
