"""The ordinary assets of Dagster that read changed days: their names, and their launch."""

from collections.abc import Callable, Iterable

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.downstream import launch_readers, ordinary_readers
from backfill_assets.errors import BackfillError, named
from backfill_assets.grouping import grouped
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Readers
from backfill_assets.plan.store import Plans
from backfill_assets.workspace import Workspace


def assets_downstream(dagster: Dagster, tables: Iterable[str], workspace: Workspace) -> list[str]:
    """The ordinary assets that read these tables. Raises as `Dagster.ask`."""
    readers = ordinary_readers(dagster, workspace.names)
    return sorted(set[str]().union(*(readers.get(table, ()) for table in tables)))


def downstream_line(
    plan: Plan,
    readers: Readers,
    workspace: Workspace,
    dagster: Callable[[], Dagster],
    *,
    launch: bool,
    who: str,
) -> str:
    """Return a sentence on the ordinary assets that read the days that an act has changed.

    `launch`: launch them first, once for each act of the plan. Without such assets, it is "". The
    act stays as it is if the webserver does not answer.
    """
    changed = grouped(readers.changed)
    act = Plans(workspace.lake.root).last_act(plan.id)
    reason = f"downstream of plan {plan.id}"
    run_tags = {tags.LAUNCH: f"{reason}, {act and act.number}", tags.REASON: reason, tags.WHO: who}
    try:
        assets = assets_downstream(dagster(), changed, workspace)
        how = "Launch them with --downstream."
        if assets and launch:
            how = f"Launched: {launch_readers(dagster(), workspace.names, changed, run_tags)}."
    except BackfillError as error:
        failed = f"Assets downstream were not launched. Type the same command again. {error.what}"
        return failed if launch else ""
    return f"Assets of Dagster read the changed days: {named(assets)}. {how}" if assets else ""
