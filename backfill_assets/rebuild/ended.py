"""What follows the end of a plan: what reads its days and is outdated now, and Dagster's record of what needed no run."""

from collections.abc import Callable

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError
from backfill_assets.plan.make import latest_builds
from backfill_assets.plan.progress import Progress
from backfill_assets.plan.readers_left import Readers, readers_left
from backfill_assets.plan.remaining import WorkState
from backfill_assets.plan.status import State, status_of
from backfill_assets.reconcile.shown_wrong import NOT_REPORTED, report_shown_wrong
from backfill_assets.workspace import Workspace


def after_plan(end: Progress, workspace: Workspace, dagster: Dagster, warn: Callable[[str], None]) -> Readers:
    """What is not in the plan and reads what it rebuilt. Days that Dagster shows as failed or stale, and are up to date, are
    reported to it. Of a plan in a shadow there is nothing: live has not changed."""
    if end.plan.is_shadow:
        return Readers({})
    readers = readers_left(end.plan, workspace)
    try:
        report_shown_wrong({*_up_to_date(end, workspace), *readers.up_to_date}, workspace.graph, workspace.lake, dagster)
    except BackfillError as error:
        warn(NOT_REPORTED.format(error))
    return readers


def _up_to_date(end: Progress, workspace: Workspace) -> set[Partition]:
    """The partitions that the plan has not built, and that are up to date by `backfill status`.

    Those that were blocked are among them: Dagster shows them as failed, since their run has not materialized them, and their
    rows are still those of what they are made from. The failed day that blocked them is outdated, and stays as it is shown.
    """
    states, saved = end.remaining.states, set(end.remaining.saved)
    unbuilt = {partition for partition, state in states.items() if state != WorkState.DONE or partition in saved}
    tables = [table for table in workspace.tables if any(name == table.name for name, _ in unbuilt)]
    days = sorted({day for _, day in unbuilt})
    status = status_of(workspace, tables, days, latest=latest_builds(workspace)).partitions
    return {partition for partition in unbuilt if status[partition].state == State.UP_TO_DATE}
