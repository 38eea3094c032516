"""A plan of the lake, ready to be carried out."""

import time
from collections.abc import Callable

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.plan.history import refuse_ended
from backfill_assets.plan.protected import refuse_protected
from backfill_assets.plan.read_remaining import remaining_reader
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import Launcher
from backfill_assets.rebuild.run import Rebuild
from backfill_assets.workspace import Workspace


def rebuild_of(
    plan_id: str,
    workspace: Workspace,
    *,
    dagster: Dagster,
    who: str,
    sleep: Callable[[float], None] = time.sleep,
) -> Rebuild:
    """The plan, ready to be carried out. UsageError if it is unknown, edited, ended for good, or made for other code;
    Guarded for protected days."""
    plans = Plans(workspace.lake.root)
    plan = plans.read(plan_id)
    refuse_ended(plan_id, plans)
    plan.refuse_other_code(workspace.code)
    refuse_protected(plan, workspace, "Nothing was started.")
    launcher = Launcher(plan, dagster, plans, who, sleep)
    return Rebuild(launcher, remaining_reader(plan, workspace), lambda: open_shadow(plan, workspace, who))
