"""Move the shadow of a plan to the current live (rebase), or delete it (discard)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from backfill_assets.calendar import Partition
from backfill_assets.errors import RefusedByGuard
from backfill_assets.lake.acts import finish
from backfill_assets.lake.shadow import delete_shadow, write_base
from backfill_assets.plan.lifecycle import refuse_open
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import base_now
from backfill_assets.plan.store import DISCARDED, Plans
from backfill_assets.publish.conflicts import ShadowState, rewritten_in_live, state_of
from backfill_assets.publish.guards import (
    conflict_facts,
    examples,
    may_replace,
    refuse_not_in_shadow,
)
from backfill_assets.publish.part import accepted_in_live
from backfill_assets.publish.pointers import end_preview, move_preview
from backfill_assets.workspace import Workspace

_NOT_DISCARDED = "Nothing was discarded."


def rebase(plan: Plan, workspace: Workspace, who: str, *, keep_live: bool = False) -> ShadowState:
    """Let the shadow of `plan` read the current live.

    With `keep_live`, the plan gives up the days that were built in live since the shadow was
    opened. Raises RefusedByGuard if live has rows of such a day that no build accepted, and for
    rows of another program that the plan may not replace.

    The shadow changes only if live conflicts with it or has new tables. A preview moves to the
    newest release, unless days must be built again. Returns the state after the move, with the
    conflicts from before.
    """
    plans = Plans(workspace.lake.root)
    with plans.exclusive(plan.id):
        finish(workspace.lake.root)
        refuse_not_in_shadow(plan, plans, "Nothing was changed.")
        plan.refuse_gone_tables(workspace.names)
        before = state_of(plan, workspace)
        if not may_replace(plan, before.conflicts):
            raise RefusedByGuard(**conflict_facts(plan, before.conflicts, "Nothing was changed."))
        base = before.shadow.base
        newer = _newer_in_live(plan, workspace, before) if keep_live else frozenset()
        if before.conflicts or set(workspace.names) - base.versions.keys():
            now = replace(base_now(plan, workspace, who), kept=base.kept | newer)
            write_base(workspace.lake.root, plan.id, now)
        after = state_of(plan, workspace)
        move_preview(plan, workspace, after, who)
    return replace(after, conflicts=before.conflicts)


def _newer_in_live(plan: Plan, workspace: Workspace, state: ShadowState) -> frozenset[Partition]:
    """The partitions that were built in live since the shadow was opened."""
    rewritten = rewritten_in_live(plan, workspace, state.shadow, state.builds)
    of_live = accepted_in_live(workspace, rewritten)
    others = {p: why for p, why in rewritten.items() if p not in of_live}
    if others:
        raise RefusedByGuard(
            f"{len(others)} partition(s) in live cannot be kept: no build has accepted their"
            f" rows:\n{examples(others)}",
            unchanged="Nothing was changed.",
            next_step=(
                "`backfill status --why TABLE DAY` says what to do about one. Or replace them by"
                f" the plan's: `backfill rebase {plan.id}`."
            ),
        )
    return frozenset(rewritten)


def discard(
    plan: Plan, workspace: Workspace, *, who: str, now: Callable[[], datetime], reason: str = ""
) -> None:
    """Delete the shadow of `plan`. Live does not change. Readers of its preview follow again.

    Published days of the plan stay in live. A rollback takes them back.

    Raises RefusedByGuard if the plan is open.
    """
    plans = Plans(workspace.lake.root)
    with plans.exclusive(plan.id):
        finish(workspace.lake.root)
        refuse_open(plan, plans, _NOT_DISCARDED)
        if plans.state(plan.id) != DISCARDED:  # a killed discard is completed
            refuse_not_in_shadow(plan, plans, _NOT_DISCARDED)
        end_preview(plan, workspace, who, reason)
        if plans.state(plan.id) != DISCARDED:
            plans.note(plan.id, DISCARDED, now(), who=who, reason=reason)
        delete_shadow(workspace.lake.root, plan.id)
