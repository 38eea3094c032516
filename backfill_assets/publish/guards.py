"""Guards of a publication: the shadow is complete, and live allows it.

Live must not have changed under the shadow, and must have no other changes to wait for.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from deltalake import DeltaTable

from backfill_assets.calendar import Partition
from backfill_assets.errors import RefusedByGuard, TableUnreadable, UsageError
from backfill_assets.lake.columns import columns_lost
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.released import open_version
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import (
    DISCARDED,
    OPEN,
    PLANNED,
    PUBLISHED,
    ROLLED_BACK,
    Plans,
)
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.publish.live import LiveState
from backfill_assets.publish.release_live import (
    Obstacle,
    Runs,
    no_runs,
    running,
    why_withheld,
)
from backfill_assets.workspace import Workspace

NOT_PUBLISHED = "Nothing was published."
SHOWN = 5


def refuse_not_publishable(plan: Plan, plans: Plans, nothing: str = NOT_PUBLISHED) -> None:
    """Raise UsageError if a plan has nothing to publish, RefusedByGuard while it is being built.

    `nothing` says what was not done.
    """
    state = plans.state(plan.id)
    if not plan.is_shadow:
        raise UsageError(
            f"Plan {plan.id} was built in live, and is released from there automatically.",
            unchanged=nothing,
            next_step="See `backfill releases`.",
        )
    if state in (PLANNED, ROLLED_BACK, DISCARDED):
        said = {
            PLANNED: "was never started",
            ROLLED_BACK: "was rolled back",
            DISCARDED: "was discarded",
        }[state]
        then = (
            f"Start it: `backfill run {plan.id}`"
            if state == PLANNED
            else "Make a new plan: `backfill plan --into shadow ...`"
        )
        raise UsageError(
            f"Plan {plan.id} {said}.",
            unchanged=nothing,
            next_step=f"{then}.",
        )
    if state == OPEN:
        raise RefusedByGuard(
            f"Plan {plan.id} is open.",
            unchanged=nothing,
            next_step=f"Let it end: `backfill resume {plan.id}`.",
        )


def refuse_not_in_shadow(plan: Plan, plans: Plans, nothing: str) -> None:
    """Raise UsageError for a published plan, and the errors of `refuse_not_publishable`.

    The shadow of a published plan is no longer used.
    """
    refuse_not_publishable(plan, plans, nothing)
    if plans.state(plan.id) == PUBLISHED or Releases(plans.root).number_of_plan(plan.id):
        raise UsageError(
            f"Plan {plan.id} is published.",
            unchanged=nothing,
            next_step=f"`backfill rollback {plan.id}` takes it back.",
        )


def refuse_unfinished(plan: Plan, state: ShadowState, nothing: str = NOT_PUBLISHED) -> None:
    """Raise RefusedByGuard for a shadow with days that are not built, or with outdated inputs."""
    if state.unbuilt:
        raise RefusedByGuard(
            f"{len(state.unbuilt)} partition(s) of plan {plan.id} are not"
            f" built:\n{examples(state.unbuilt)}",
            unchanged=nothing,
            next_step=f"Correct what is named, then `backfill resume {plan.id}`.",
        )
    if state.conflicts:
        raise RefusedByGuard(**conflict_facts(plan, state.conflicts))


def refuse_breaking(
    plan: Plan, workspace: Workspace, after: Callable[[str], DeltaTable | None]
) -> None:
    """Raise RefusedByGuard if readers would lose columns of a table.

    `after` gives the table as it would be published. New columns break no reader. They are null in
    days that were built before.
    """
    breaking = []
    for name, before in _read_now(plan, workspace).items():
        if before and (then := after(name)):
            breaking += [f"{name}: {lost}" for lost in columns_lost(before, then)]
    if breaking:
        raise RefusedByGuard(
            f"Readers would miss something after plan {plan.id}: {'; '.join(breaking)}.",
            unchanged=NOT_PUBLISHED,
            next_step=(f"If that is meant, `backfill publish {plan.id} --allow-breaking`."),
        )


def _read_now(plan: Plan, workspace: Workspace) -> dict[str, DeltaTable | None]:
    """Return the tables of the plan in the newest release; those of live, if not released."""
    root = workspace.lake.root
    newest = workspace.lake.releases.newest()
    read: dict[str, DeltaTable | None] = {}
    for name in plan.reasons:
        version = newest.tables.get(name) if newest else None
        read[name] = open_table(workspace.lake.path(name))
        with suppress(TableUnreadable):  # no reader can read it any more
            read[name] = open_version(root, version) if version else read[name]
    return read


def refuse_unreleased(
    plan: Plan, workspace: Workspace, state: LiveState, runs: Runs = no_runs
) -> None:
    """Raise RefusedByGuard if live has other changes that cannot be released.

    The plan's own days do not count. `runs` returns the unfinished runs of live by Dagster's
    record.
    """
    reasons = running(workspace.lake.root, runs)
    if not reasons:
        others = replace(
            state,
            in_part=tuple(each for each in state.in_part if each != plan.id),
            expected=frozenset(plan.reasons),
        )
        reasons = [each for each in why_withheld(workspace, others) if _is_of_others(each, plan)]
    if reasons:
        raise RefusedByGuard(
            f"Live has changes that are not released: {'; '.join(map(str, reasons))}.",
            unchanged=NOT_PUBLISHED,
            next_step=(
                "Wait for what runs; fix what failed, or release it as it stands (`backfill release"
                " --reason ...`); then publish again."
            ),
        )


def _is_of_others(reason: Obstacle, plan: Plan) -> bool:
    return not reason.days or not set(reason.days) <= plan.days_of(reason.table)


def conflict_facts(plan: Plan, conflicts: Mapping[Partition, str]) -> dict[str, str]:
    """The facts of the error about days that live changed since the shadow was opened."""
    what = (
        f"Live has changed under {len(conflicts)} partition(s) of plan {plan.id} since its shadow"
        f" was opened:\n{examples(conflicts)}"
    )
    next_step = (
        f"`backfill rebase {plan.id}` builds what this concerns on live as it is now; then verify"
        " and publish."
    )
    unchanged = "These days were not published."
    return {"what": what, "unchanged": unchanged, "next_step": next_step}


def examples(partitions: Mapping[Partition, str]) -> str:
    """The first few of these, each with what is the matter, a line each."""
    lines = [f"  {table} {day}: {why}" for (table, day), why in list(partitions.items())[:SHOWN]]
    return "\n".join(
        [*lines, *([f"  and {len(partitions) - SHOWN} more"] if len(partitions) > SHOWN else [])]
    )
