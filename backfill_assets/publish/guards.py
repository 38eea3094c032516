"""Guards of a publication or a rollback: the state of the plan, and of live.

For a publication, the shadow must be complete, and live must have no conflicts with it and no other
unfinished changes.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress

from deltalake import DeltaTable

from backfill_assets.calendar import Partition, TextByPartition, ranges
from backfill_assets.errors import RefusedByGuard, TableUnreadable, UsageError, first_of
from backfill_assets.lake.columns import columns_lost
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.history import last_committed
from backfill_assets.lake.released import open_version
from backfill_assets.plan.lifecycle import refuse_open, refuse_overlap
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import as_accepted, without_command
from backfill_assets.plan.store import (
    DISCARDED,
    PLANNED,
    PUBLISHED,
    ROLLED_BACK,
    Plans,
    in_words,
)
from backfill_assets.publish.conflicts import FOREIGN_ROWS, ShadowState
from backfill_assets.publish.release_live import Obstacle
from backfill_assets.workspace import Workspace

NOT_PUBLISHED = "Nothing was published."
_EXAMPLES_SHOWN = 5
NOT_RESTORED = "Nothing was restored."


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
        started = "never started" if state == PLANNED else in_words(state)
        start = f"Start it: `backfill run {plan.id}`."
        again = f"Make a new plan: `{plan.as_typed} --into shadow`."
        raise UsageError(
            f"Plan {plan.id} was {started}.",
            unchanged=nothing,
            next_step=start if state == PLANNED else again,
        )
    refuse_open(plan, plans, nothing)


def refuse_not_in_shadow(plan: Plan, plans: Plans, nothing: str) -> None:
    """Raise UsageError for a published plan, and the errors of `refuse_not_publishable`.

    The shadow of a published plan is no longer used.
    """
    refuse_not_publishable(plan, plans, nothing)
    if plans.state(plan.id) == PUBLISHED:
        raise UsageError(
            f"Plan {plan.id} is published.",
            unchanged=nothing,
            next_step=f"`backfill rollback {plan.id}` takes it back.",
        )


def refuse_unfinished(plan: Plan, state: ShadowState, nothing: str = NOT_PUBLISHED) -> None:
    """Raise RefusedByGuard for a shadow with days that are not built, or with outdated inputs."""
    refuse_unbuilt(plan, state, nothing)
    if state.conflicts:
        raise RefusedByGuard(**conflict_facts(plan, state.conflicts, nothing))


def refuse_unbuilt(plan: Plan, state: ShadowState, nothing: str = NOT_PUBLISHED) -> None:
    """Raise RefusedByGuard for a shadow with days that are not built."""
    if state.unbuilt:
        unbuilt = without_command(examples(state.unbuilt))
        accept = as_accepted(plan, state.unbuilt.values())
        raise RefusedByGuard(
            f"{len(state.unbuilt)} partition(s) of plan {plan.id} are not built:\n{unbuilt}",
            unchanged=nothing,
            next_step=f"Correct what is named, then `backfill resume {plan.id}`. {accept}".rstrip(),
        )


def refuse_breaking(plan: Plan, workspace: Workspace, state: ShadowState) -> None:
    """Raise RefusedByGuard if readers would lose columns of a table.

    New columns break no reader. They are null in days that were built before.
    """
    newest = workspace.lake.releases.newest()
    breaking = []
    for name in plan.reasons:
        live = open_table(workspace.lake.path(name))
        before: DeltaTable | None = live
        with suppress(TableUnreadable):  # no reader can read it any more
            if version := newest.tables.get(name) if newest else None:
                before = open_version(workspace.lake.root, version)
        after = open_table(state.shadow.path(name)) or live
        lost = columns_lost(before, after) if before and after else ()
        breaking += [f"{name}: {column}" for column in lost]
    if breaking:
        raise RefusedByGuard(
            f"Readers would miss something after plan {plan.id}: {'; '.join(breaking)}.",
            unchanged=NOT_PUBLISHED,
            next_step=(f"If that is meant, `backfill publish {plan.id} --allow-breaking`."),
        )


def refuse_unreleased(reasons: Sequence[Obstacle]) -> None:
    """Raise RefusedByGuard if live has other changes that cannot be released for these reasons."""
    if reasons:
        raise RefusedByGuard(
            f"Live has changes that are not released: {'; '.join(map(str, reasons))}.",
            unchanged=NOT_PUBLISHED,
            next_step=(
                "Wait for what runs, and build what failed or is outdated; or release it as it"
                " stands (`backfill release --reason 'why'`). Then publish again."
            ),
        )


def refuse_not_in_live(plan: Plan, plans: Plans) -> None:
    """Raise an error if no day of a plan is in live, or if it or an overlapping plan is open.

    The error is a UsageError or a RefusedByGuard.
    """
    state = plans.state(plan.id)
    if state == PLANNED:
        raise UsageError(
            f"Plan {plan.id} was never started, so it has built nothing.", unchanged=NOT_RESTORED
        )
    refuse_open(plan, plans, NOT_RESTORED)
    if plan.is_shadow and not plans.last_act(plan.id):
        raise UsageError(
            f"Plan {plan.id} is in its shadow, and has changed nothing in live.",
            unchanged=NOT_RESTORED,
            next_step=f"`backfill discard {plan.id}` deletes the shadow.",
        )
    refuse_overlap(plan, plans, NOT_RESTORED, in_live=True)


def refuse_undeclared(plan: Plan, workspace: Workspace) -> None:
    """Raise UsageError if the project no longer has a table of the plan."""
    gone = [name for name in plan.reasons if name not in workspace.names]
    if gone:
        raise UsageError(
            f"Plan {plan.id} has days of {', '.join(gone)}, which the project does not have any"
            " more. Readers would get a part of the plan.",
            unchanged=NOT_RESTORED,
            next_step="Declare the table again, then roll back.",
        )


def refuse_unrecorded(plan: Plan, workspace: Workspace, recorded: Collection[Partition]) -> None:
    """Raise RefusedByGuard if a log has builds of the plan that are not `recorded`."""
    for name in plan.reasons:
        unknown = {day for day in plan.days_of(name) if (name, day) not in recorded}
        last = last_committed(workspace.lake.path(name), unknown)
        of_plan = sorted(day for day, build in last.items() if build.plan == plan.id)
        if of_plan:
            raise RefusedByGuard(
                f"The log of {name} shows {ranges(of_plan)} as built by plan {plan.id},"
                " and the ledger does not.",
                unchanged=NOT_RESTORED,
                next_step=(
                    f"Type `backfill reconcile --repair`, then `backfill rollback {plan.id}` again."
                ),
            )


def conflict_facts(
    plan: Plan,
    conflicts: TextByPartition,
    nothing: str = NOT_PUBLISHED,
    *,
    has_others: bool = False,
) -> dict[str, str]:
    """The facts of the error about days that changed in live since the shadow was opened.

    `nothing` says what was not done. `has_others`: the plan's other days can be published alone.
    """
    others = f"Or publish the other days first: `backfill publish {plan.id} --without-conflicts`."
    what = (
        f"Live has changed under {len(conflicts)} partition(s) of plan {plan.id} since its shadow"
        f" was opened:\n{examples(conflicts)}"
    )
    next_step = (
        f"`backfill rebase {plan.id}` builds what this concerns on live as it is now; then verify"
        " it again. With `--keep live`, live keeps its newer rows."
        if may_replace(plan, conflicts)
        else f"To replace the rows of others: `backfill discard {plan.id}`, then"
        f" `{plan.as_typed} --into shadow --replace-foreign-rows --reason 'why'`."
    )
    steps = [next_step, *([others] if has_others else [])]
    return {"what": what, "unchanged": nothing, "next_step": " ".join(steps)}


def may_replace(plan: Plan, conflicts: TextByPartition) -> bool:
    """False if the conflicts include days of another program that the plan may not replace."""
    return plan.options.replace_foreign_rows or FOREIGN_ROWS not in conflicts.values()


def examples(partitions: TextByPartition) -> str:
    """The first few of these partitions with their problems, one per line."""
    lines = [f"{table} {day}: {why}" for (table, day), why in partitions.items()]
    return "\n".join(f"  {line}" for line in first_of(lines, _EXAMPLES_SHOWN))
