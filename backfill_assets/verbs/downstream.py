"""The ordinary assets downstream of changed days: their names, and their launch."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.downstream import launch_readers, ordinary_readers
from backfill_assets.errors import BackfillError, named
from backfill_assets.grouping import grouped
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans
from backfill_assets.workspace import Workspace


def assets_downstream(
    dagster: Dagster, partitions: Collection[Partition], workspace: Workspace
) -> list[str]:
    """The ordinary assets that read these partitions; none if the webserver does not answer."""
    readers: dict[str, set[str]] = {}
    if dagster.url:
        with suppress(BackfillError):
            readers = ordinary_readers(dagster, workspace.names)
    tables = {table for table, _ in partitions}
    return sorted(set[str]().union(*(readers.get(table, ()) for table in tables)))


def downstream_line(
    plan: Plan,
    changed: Sequence[Partition],
    workspace: Workspace,
    dagster: Callable[[], Dagster],
    *,
    launch: bool,
    command: str,
    who: str,
) -> str:
    """A sentence on the ordinary assets that read the days that an act has changed; "" for none.

    `launch`: launch them first, once for each act of the plan.
    """
    server = dagster()
    if not launch:
        assets = assets_downstream(server, changed, workspace)
        how = f"`backfill {command} {plan.id} --downstream` launches them."
        return f"These assets read the changed days: {named(assets)}. {how}" if assets else ""
    act = Plans(workspace.lake.root).last_act(plan.id)
    run_tags = {
        tags.LAUNCH: f"{plan.id}-{act.number if act else 0}",
        tags.REASON: f"downstream of plan {plan.id}",
        tags.WHO: who,
    }
    try:
        launched = launch_readers(server, workspace.names, grouped(changed), run_tags)
    except BackfillError as error:
        what = error.what.rstrip(".")
        return f"Assets downstream were not launched: {what}. Type the same command again."
    return f"The assets that read these days: {launched}." if launched else ""
