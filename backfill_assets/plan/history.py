"""What became of plans, from what is written beside them: open, done, stopped; and that no two open ones meet."""

from __future__ import annotations

from collections.abc import Sequence

from backfill_assets.errors import Guarded, UsageError
from backfill_assets.plan.plan import Plan, read
from backfill_assets.plan.store import Event, Plans

PLANNED, OPEN = "planned", "open"


def state_of(events: Sequence[Event]) -> str:
    """`planned`, `open` (started, and not ended: at work, or interrupted), or how it ended last."""
    for event in reversed(events):
        if event.kind == "started":
            return OPEN
        if event.kind == "cancelled":
            return "cancelled"
        if event.kind == "ended":
            return str(event.facts["ending"])
    return PLANNED


def open_plans(plans: Plans) -> list[str]:
    return [plan_id for plan_id in plans.ids() if state_of(plans.events(plan_id)) == OPEN]


def refuse_overlap(plan: Plan, plans: Plans) -> None:
    """Guarded if a day of a table of this plan is in another one that is open."""
    for plan_id in open_plans(plans):
        if plan_id != plan.id:
            both = sorted(plan.partitions().keys() & read(plans.read(plan_id), plan_id).partitions().keys())
            if both:
                table, day = both[0]
                raise Guarded(
                    f"{table} {day} is in plan {plan_id} too, which is open ({len(both)} day(s) of tables in both). Nothing "
                    f"was started. Let that one end (`backfill resume {plan_id}`), or give it up: `backfill cancel {plan_id}`."
                )


def which(plan_id: str, plans: Plans) -> str:
    """The plan named; else the only open one; else the last of those that ended with days left and were not cancelled, or the
    last of all.

    UsageError if that leaves a selection, or none.
    """
    if plan_id:
        plans.read(plan_id)
        return plan_id
    told = {each: plans.events(each) for each in plans.ids()}
    found = [each for each, events in told.items() if state_of(events) == OPEN]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"Which plan? Open are {', '.join(found)}. Nothing was started. Name one; see `backfill list`.")
    ended = [each for each, events in told.items() if state_of(events) != PLANNED]
    if ended:
        settled = ("done", "cancelled")  # meant without a name only if it was the last
        return max(ended, key=lambda each: (state_of(told[each]) not in settled, told[each][-1].at))
    raise UsageError("Which plan? None was started yet. Nothing was done. Name one; see `backfill list`.")
