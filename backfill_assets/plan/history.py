"""The state of plans by their events (planned, open, or how they ended), and that no two open ones overlap."""

from __future__ import annotations

from collections.abc import Sequence

from backfill_assets.errors import Guarded, UsageError
from backfill_assets.plan.plan import Plan, read
from backfill_assets.plan.store import Event, Plans

PLANNED, OPEN = "planned", "open"


def state_of(events: Sequence[Event]) -> str:
    """`planned`, `open` (started and not ended: being carried out, or interrupted), or how it ended last."""
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
    """Guarded if a partition of this plan is in another one that is open."""
    for plan_id in open_plans(plans):
        if plan_id != plan.id:
            both = sorted(plan.partitions().keys() & read(plans.read(plan_id), plan_id).partitions().keys())
            if both:
                table, day = both[0]
                raise Guarded(
                    f"{table} {day} is in plan {plan_id} too, which is open ({len(both)} partition(s) in both). Nothing was "
                    f"started. Let that one end (`backfill resume {plan_id}`), or give it up: `backfill cancel {plan_id}`."
                )


def which(plan_id: str, plans: Plans) -> str:
    """The plan named; else the only open one; else the last that ended unfinished and was not cancelled; else the last of all.

    UsageError if several are open, or none was ever started.
    """
    if plan_id:
        plans.read(plan_id)
        return plan_id
    events = {known: plans.events(known) for known in plans.ids()}
    states = {known: state_of(of_plan) for known, of_plan in events.items()}
    open_ids = [known for known, state in states.items() if state == OPEN]
    if len(open_ids) == 1:
        return open_ids[0]
    if open_ids:
        raise UsageError(f"Which plan? Open are {', '.join(open_ids)}. Nothing was started. Name one; see `backfill list`.")
    ended = [known for known, state in states.items() if state != PLANNED]
    if ended:
        finished = ("done", "cancelled")  # meant without a name only if no other ended
        return max(ended, key=lambda known: (states[known] not in finished, events[known][-1].at))
    raise UsageError("Which plan? None was started yet. Nothing was done. Name one; see `backfill list`.")
