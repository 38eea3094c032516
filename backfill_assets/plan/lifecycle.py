"""Which plan is meant, whether another open plan overlaps, and what of a plan is half done.

A publication or a rollback that was begun and not finished may have left a part of the plan in
live. Protected days are never rebuilt, by any plan.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from backfill_assets.calendar import ranges
from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake.releases import STABLE
from backfill_assets.lake.storage import writing
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import (
    DISCARDED,
    PLANNED,
    PUBLISHED,
    PUBLISHING,
    ROLLED_BACK,
    ROLLING_BACK,
    Plans,
)
from backfill_assets.workspace import Workspace


def begun_for(plan_id: str, plans: Plans) -> str:
    """The channel that a plan's publication was begun for last; `stable` if that is not known."""
    with suppress(UsageError):
        for begun in plans.events(plan_id, f"{PUBLISHING}-")[-1:]:
            return str(begun.facts.get("channel", STABLE))
    return STABLE


def finishing(plan_id: str, plans: Plans) -> str:
    """The command that finishes it."""
    if plans.half_done(plan_id) == ROLLING_BACK:
        return f"backfill rollback {plan_id}"
    channel = begun_for(plan_id, plans)
    return f"backfill publish {plan_id}" + ("" if channel == STABLE else f" --channel {channel}")


def what_is_half_done(plan_id: str, plans: Plans, which: str = "") -> str:
    """The act in words, and the command that finishes it. `which` names its days."""
    act = "taken back" if plans.half_done(plan_id) == ROLLING_BACK else "published"
    days = f" ({which})" if which else ""
    return f"plan {plan_id} is {act} in part{days}: `{finishing(plan_id, plans)}` finishes it"


def refuse_half_done(plans: Plans, nothing: str) -> None:
    """RefusedByGuard while a plan is published, or taken back, in part. `nothing`: what was not
    done.
    """
    if half_done := plans.half_published():
        words = "; ".join(what_is_half_done(plan_id, plans) for plan_id in half_done)
        raise RefusedByGuard(
            f"{words[0].upper()}{words[1:]}.",
            unchanged=nothing,
        )


# The states in which a plan has no shadow: not yet, or not any more.
NOT_IN_SHADOW = (PLANNED, PUBLISHED, DISCARDED, ROLLED_BACK)


def start(plan: Plan, plans: Plans, at: datetime, who: str) -> None:
    """Record that a plan is started; RefusedByGuard, and nothing is recorded, if a partition of it
    is in another open plan. UsageError if it was published, discarded or rolled back.

    Both under a lock of the lake, so that of two plans started at the same moment one is refused.
    In an object store there is no lock: there both may start, and their runs build the same
    partitions one after the other.
    """
    refuse_ended(plan.id, plans)
    with writing(plans.root, "_plans"):
        refuse_overlap(plan, plans)
        plans.note(plan.id, "started", at, who=who)


def refuse_ended(plan_id: str, plans: Plans) -> None:
    """UsageError for a plan that was published, discarded or rolled back: what it has built, it
    would take for done.
    """
    if (state := plans.state(plan_id)) in (PUBLISHED, DISCARDED, ROLLED_BACK):
        raise UsageError(
            f"Plan {plan_id} was {state.replace('_', ' ')}, and is not carried out again.",
            unchanged="Nothing was started.",
            next_step="Plan anew: `backfill plan`.",
        )


def refuse_overlap(plan: Plan, plans: Plans, *, in_live: bool = False) -> None:
    """RefusedByGuard if a partition of this plan is in another one that is open. One that cannot be
    read cannot be run either.

    Plans into shadows do not meet: what changed in live meanwhile is looked at when one is
    published. One that is taken back writes to live, wherever it was built: `in_live`.
    """
    for plan_id in plans.open() if in_live or not plan.is_shadow else ():
        if plan_id != plan.id:
            try:
                other = plans.read(plan_id)
            except UsageError:
                continue
            both = (
                []
                if other.is_shadow
                else sorted(plan.partitions().keys() & other.partitions().keys())
            )
            if both:
                table, day = both[0]
                raise RefusedByGuard(
                    f"{table} {day} is in plan {plan_id} too, which is open ({len(both)}"
                    " partition(s) in both).",
                    unchanged="Nothing was started.",
                    next_step=(
                        f"Let that one end (`backfill resume {plan_id}`), or"
                        f" give it up: `backfill cancel {plan_id}`."
                    ),
                )


def resolve_shadow_id(plan_id: str, plans: Plans, published: Sequence[str] = ()) -> str:
    """The plan named, by its id or the beginning of it; else the only one that was built in a
    shadow and is not in live, or is one of those `published` to other readers.

    UsageError if there are several, or none.
    """
    if plan_id:
        return plans.full_id(plan_id)
    in_shadows = [known for known in plans.ids() if is_in_shadow(known, plans)]
    if len(waiting := [*in_shadows, *published]) == 1:
        return waiting[0]
    if waiting:
        to_others = (
            f", published to other channels only {', '.join(published)}" if published else ""
        )
        where = f"In shadows are {', '.join(in_shadows) or 'none'}{to_others}"
        raise UsageError(
            f"Which plan? {where}.",
            unchanged="Nothing was done.",
            next_step="Name one; see `backfill list`.",
        )
    raise UsageError(
        "Which plan? None is built in a shadow.",
        unchanged="Nothing was done.",
        next_step="`backfill run --into shadow --partitions ...` builds one.",
    )


def is_in_shadow(plan_id: str, plans: Plans) -> bool:
    """Whether a plan was started in a shadow and is neither published nor discarded."""
    try:
        started = plans.state(plan_id) not in NOT_IN_SHADOW and plans.events(plan_id, "started")
        return bool(started) and plans.read(plan_id).is_shadow
    except UsageError:  # one that cannot be read concerns nobody else
        return False


def resolve_plan_id(plan_id: str, plans: Plans) -> str:
    """The plan named, by its id or the beginning of it; else the only open one; else the last one
    that has days left.

    That is the last that ended unfinished and was not cancelled, or else the last of all.
    UsageError if several are open, or begin so, or none was ever started.
    """
    if plan_id:
        return plans.full_id(plan_id)
    open_ids = plans.open()
    if len(open_ids) == 1:
        return open_ids[0]
    if open_ids:
        raise UsageError(
            f"Which plan? Open are {', '.join(open_ids)}.",
            unchanged="Nothing was done.",
            next_step="Name one; see `backfill list`.",
        )
    states = {known: plans.state(known) for known in plans.ids()}
    ended = [known for known, state in states.items() if state != PLANNED]
    if ended:
        # Meant without a name only if no other ended.
        finished = ("done", "cancelled", ROLLED_BACK, PUBLISHED, DISCARDED)
        return max(
            ended, key=lambda known: (states[known] not in finished, plans.events(known)[-1].at)
        )
    raise UsageError(
        "Which plan? None was started yet.",
        unchanged="Nothing was done.",
        next_step="Name one; see `backfill list`.",
    )


def refuse_protected(plan: Plan, workspace: Workspace, nothing: str) -> None:
    """RefusedByGuard if a day of the plan is protected; `nothing`: what was not done."""
    settings = workspace.settings
    protected = sorted(set(settings.protected()) & set(plan.days()))
    if protected:
        raise RefusedByGuard(
            f"{ranges(protected)} is protected"
            f" (BACKFILL_PROTECTED_DAYS={settings.protected_days}).",
            unchanged=nothing,
            next_step="Leave these days out, or change the setting.",
        )
