"""What follows the end of a plan: what reads its days and is outdated now, and Dagster's record of what needed no run."""

from collections.abc import Callable

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError
from backfill_assets.plan.progress import Progress
from backfill_assets.plan.readers_left import Readers, readers_left
from backfill_assets.reconcile.shown_wrong import NOT_REPORTED, report_shown_wrong
from backfill_assets.workspace import Workspace


def after_plan(end: Progress, workspace: Workspace, dagster: Dagster, warn: Callable[[str], None]) -> Readers:
    """What is not in the plan and reads what it rebuilt. Days that Dagster shows as failed or stale, and are up to date, are
    reported to it. Of a plan in a shadow there is nothing: live has not changed."""
    if end.plan.is_shadow:
        return Readers({})
    readers = readers_left(end.plan, workspace)
    try:
        report_shown_wrong({*end.remaining.saved, *readers.up_to_date}, workspace.graph, workspace.lake, dagster)
    except BackfillError as error:
        warn(NOT_REPORTED.format(error))
    return readers
