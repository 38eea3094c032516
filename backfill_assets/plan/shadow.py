"""The lake that a plan builds in: live, or a shadow that no reader sees."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from backfill_assets.calendar import Partition
from backfill_assets.errors import BackfillError, TableUnreadable, UsageError
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import NOT_BUILT
from backfill_assets.lake.listed_files import day_files
from backfill_assets.lake.recorded_acts import Acts
from backfill_assets.lake.released import open_version
from backfill_assets.lake.shadow import (
    Base,
    Shadow,
    ledgers_of_shadows,
    read_base,
    shadow_root,
    write_base,
)
from backfill_assets.plan.lifecycle import is_in_shadow
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import Into, PlanOptions
from backfill_assets.plan.store import PUBLISHED, ROLLED_BACK, Plans
from backfill_assets.workspace import Workspace


def choose_target(options: PlanOptions, partitions: Collection[Partition], lake: Lake) -> Into:
    """Return where a plan of these partitions builds: as requested, or by its readers.

    Without a request, it is a shadow if no row may change, or if readers of a release have any of
    the partitions. Raises UsageError for a request that a shadow cannot carry out, and for a
    request that needs a shadow.
    """
    into: Into = options.into
    if options.expects_nothing and into == "live":
        raise UsageError(
            "Rows that are built in live are not verified, so no changed row asks.",
            unchanged="Nothing was planned.",
            next_step="Leave out --into live, or --expect nothing.",
        )
    if options.expects_nothing:
        into = "shadow"
    if into == "shadow" and options.write_mode != "overwrite":
        raise UsageError(
            f"A shadow has no rows that {options.write_mode} could keep.",
            unchanged="Nothing was planned.",
            next_step="Leave out --write-mode, or plan with --into live.",
        )
    if into != "auto":
        return into
    return (
        "shadow"
        if options.write_mode == "overwrite" and _are_released(partitions, lake)
        else "live"
    )


def _are_released(partitions: Collection[Partition], lake: Lake) -> bool:
    newest = lake.releases.newest()
    for name, version in newest.tables.items() if newest else ():
        days = {day for table, day in partitions if table == name}
        with suppress(TableUnreadable):  # the table is gone, so readers do not get it
            table = open_version(lake.root, version) if days else None
            if table and any(day_files(table, days)):
                return True
    return False


def open_shadow(plan: Plan, workspace: Workspace, who: str) -> None:
    """Record the versions of live that a shadow reads, once per plan.

    The caller holds the plan's lock.
    """
    root = workspace.lake.root
    if plan.is_shadow and read_base(root, plan.id) is None:
        # A publication may be the first commit of the lake, and does not know the zone.
        workspace.lake.ledger.begin()
        write_base(root, plan.id, base_now(plan, workspace, who))


def base_now(plan: Plan, workspace: Workspace, who: str = "") -> Base:
    """Return the current versions of live, as the base of a shadow.

    Raises TableUnreadable if a table of the plan, or an input of one, cannot be read.
    """
    planned = workspace.among(plan.reasons)
    read = {ancestor.name for table in planned for ancestor in table.ancestors()}
    return Base.of(workspace.lake, workspace.names, read, who)


def workspace_of(plan: Plan, workspace: Workspace) -> Workspace:
    """Return the workspace in which a plan builds.

    It is live, or a workspace with the plan's shadow as its lake until the plan is published.
    """
    if not plan.is_shadow or Plans(workspace.lake.root).state(plan.id) in (PUBLISHED, ROLLED_BACK):
        return workspace
    return replace(workspace, lake=shadow_of(plan, workspace))


def shadow_of(plan: Plan, workspace: Workspace) -> Shadow:
    """Return the shadow of a plan, on its recorded versions of live.

    A shadow that is not open yet reads the current live.
    """
    live = workspace.lake
    base = read_base(live.root, plan.id) or base_now(plan, workspace)
    return Shadow(shadow_root(live.root, plan.id), live, base, zone=live.zone)


def built_in_shadows(root: str, plan: str = "") -> set[Partition]:
    """Return the partitions that a plan has built in its shadow and not published.

    Without `plan`, those of all plans. A shadow that cannot be read is left out: it may be broken,
    or another command is deleting it.
    """
    plans = Plans(root)
    built = set[Partition]()
    for plan_id, ledger in ledgers_of_shadows(root).items():
        with suppress(BackfillError, OSError):
            base = read_base(root, plan_id)
            if base and plan in ("", plan_id) and is_in_shadow(plan_id, plans):
                act = plans.last_act(plan_id)
                published = Acts(root).act(act.number).partitions if act and act.left else set()
                rows = ledger.rows(["table", "day", "outcome"]).to_pydict().values()
                built |= {
                    (table, day)
                    for table, day, outcome in zip(*rows, strict=True)
                    if outcome not in NOT_BUILT
                } - base.kept.union(published)
    return built
