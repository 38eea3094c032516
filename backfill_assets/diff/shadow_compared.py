"""What a plan has built in its shadow, against live as the shadow reads it."""

from collections.abc import Collection
from datetime import date

from backfill_assets.diff.compared import Compared, builds_of, recorded
from backfill_assets.diff.diff_tables import TablePair
from backfill_assets.diff.side import Side
from backfill_assets.errors import UsageError
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import shadow_of
from backfill_assets.workspace import Workspace


def shadow_compared(
    plan: Plan, workspace: Workspace, names: Collection[str] = (), days: Collection[date] | None = None
) -> Compared:
    """Each partition that a plan has built in its shadow: as live has it, and as the shadow does.

    UsageError for a plan that has built nothing.
    """
    shadow, pairs = shadow_of(plan, workspace), dict[str, TablePair]()
    for table in (table for table in workspace.tables if table.name in plan.reasons and (not names or table.name in names)):
        name, column = table.name, table.partition_by
        wanted = plan.days_of(name) if days is None else plan.days_of(name) & set(days)
        of_shadow = builds_of(name, wanted, shadow.root)
        built = sorted({build.day for build in of_shadow})
        if built:
            live = Side(workspace.lake.path(name), column, shadow.base.versions.get(name, -1))
            sides = (live, Side(shadow.path(name), column, shadow.version(name)))
            known = recorded([*builds_of(name, wanted, workspace.lake.root), *of_shadow])
            before, after = (f"version {side.version}" if side.exists else "no table" for side in sides)
            key = list(table.key) or None
            pairs[name] = TablePair(dict.fromkeys(built, sides), key, f"live, {before}", f"the shadow, {after}", known)
    if not pairs and not names and days is None:
        raise UsageError(f"Plan {plan.id} has built nothing yet. Nothing was compared. See `backfill show {plan.id}`.")
    return Compared("live", f"the shadow of plan {plan.id}", pairs)
